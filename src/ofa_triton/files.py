"""Artefacts on disk: either the old one or the new one, never half."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ofa_triton.errors import BuildError

MANIFEST = "manifest.json"


@contextmanager
def replaced_directory(target: Path) -> Iterator[Path]:
    """Give an empty directory to fill, and put it in the place of `target` when the block ends without an error.

    A directory that is not one of ours (it holds files but no manifest) is never replaced.

    Raises:
        BuildError: `target` is something else.
    """
    if target.exists() and not _is_ours(target):
        raise BuildError(
            f"{target}: exists and was not made by ofa-triton; it is left alone. Choose another folder with --out."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield fresh
        fresh.chmod(0o755)
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}-old-", dir=target.parent))
            target.replace(old / target.name)
            fresh.replace(target)
            shutil.rmtree(old)
        else:
            fresh.replace(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def link_or_copy(source: Path, target: Path) -> None:
    """Put a file in a second place without copying it, where the file system can."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_ours(target: Path) -> bool:
    return target.is_dir() and (not any(target.iterdir()) or (target / MANIFEST).is_file())
