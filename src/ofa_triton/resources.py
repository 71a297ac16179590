"""Files that travel with the package: policies, wiring, backends and recipes."""

from pathlib import Path

from ofa_triton.errors import BuildError


def resource(name: str) -> Path:
    """Path of ``models``, ``ensemble``, ``backends`` or ``targets``: in the source tree, or its copy in a wheel.

    Raises:
        BuildError: the installation is incomplete.
    """
    package = Path(__file__).parent
    inside_checkout = {"targets": "build/targets"}.get(name, name)
    for candidate in (package / "resources" / name, package.parents[1] / inside_checkout):
        if candidate.is_dir():
            return candidate
    raise BuildError(f"the folder {name!r} is missing beside the package in {package}. Install ofa-triton again.")
