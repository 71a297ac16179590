from pathlib import Path

import pytest

from ofa_triton.errors import BuildError
from ofa_triton.files import MANIFEST, link_or_copy, replaced_directory


def fill(directory: Path, word: str) -> None:
    (directory / MANIFEST).write_text(word)


def test_new_replaces_old_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "target"
    for word in ("old", "new"):
        with replaced_directory(target) as directory:
            fill(directory, word)
    assert (target / MANIFEST).read_text() == "new"
    assert [path.name for path in target.parent.iterdir()] == ["target"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_and_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "target"
    with replaced_directory(target) as directory:
        fill(directory, "old")
    with pytest.raises(error), replaced_directory(target) as directory:  # noqa: PT012 - the block is what is tested
        fill(directory, "half")
        raise error
    assert (target / MANIFEST).read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_a_directory_of_the_user_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    with pytest.raises(BuildError, match="was not made by ofa-triton"), replaced_directory(tmp_path / "photos"):
        pass
    assert (tmp_path / "photos" / "cat.jpg").exists()


def test_link_or_copy(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    link_or_copy(tmp_path / "a", tmp_path / "sub" / "b")
    assert (tmp_path / "sub" / "b").read_text() == "x"
