import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ofa_triton.resources import resource
from tests.conftest import ROOT


@pytest.mark.slow
def test_a_wheel_carries_policies_wiring_backends_and_recipes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("models", "ensemble", "backends", "targets"):
        for file in resource(folder).rglob("*.*"):
            if file.is_file() and "__pycache__" not in file.parts:
                assert f"ofa_triton/resources/{folder}/{file.relative_to(resource(folder))}" in names
    assert not [name for name in names if "checkpoint/" in name or "tests/" in name or "__pycache__" in name]
