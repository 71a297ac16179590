from pathlib import Path

import pytest

from tests.checkpoints import write_checkpoint

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "demo"


@pytest.fixture(scope="session")
def checkpoint_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random checkpoint. Copy it before changing it."""
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "small")


@pytest.fixture(scope="session")
def built(checkpoint_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Export, engines and repository of the small checkpoint. Copy before changing it."""
    return build(checkpoint_path, tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="session")
def demo_built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Export, engines and repository of the demo's checkpoint."""
    return build(DEMO / "checkpoint", tmp_path_factory.mktemp("demo"))


def build(checkpoint: Path, out: Path) -> Path:
    from ofa_triton.checkpoint import checkpoint_from_directory
    from ofa_triton.engines import engines_from_export
    from ofa_triton.export import export_checkpoint
    from ofa_triton.repository import repository_from_engines

    export_checkpoint(checkpoint_from_directory(checkpoint), out / "onnx")
    engines_from_export(out / "onnx", out / "engines", "cpu")
    repository_from_engines(out / "engines" / "cpu", out / "repository")
    return out
