"""What the README shows works as it stands there."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ofa_triton.server import TritonServer
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```\w*\n(.*?)```", README, re.DOTALL)


def block(holding: str) -> str:
    (found,) = [text for text in BLOCKS if holding in text]
    return found


def at(server: TritonServer, text: str) -> str:
    """The same commands for the test's server."""
    return text.replace("127.0.0.1:8001", server.grpc_url.removeprefix("grpc://")).replace(
        "http://127.0.0.1:8000", server.http_url
    )


def test_python_example(server: TritonServer) -> None:
    command = [sys.executable, "-c", at(server, block("with Client("))]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    label, confidence = result.stdout.split()
    assert label in ("entailment", "contradiction", "neutral")
    assert 1 / 3 <= float(confidence) <= 1


def test_curl_example(server: TritonServer) -> None:
    if not shutil.which("curl") or not shutil.which("bash"):
        pytest.skip("curl and bash are needed")
    command = ["bash", "-c", at(server, block("curl -s"))]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    scores = json.loads(result.stdout)["outputs"][0]["data"]
    assert sorted(score.split(":")[2] for score in scores) == ["contradiction", "entailment", "neutral"]


def test_every_command_and_flag_exists() -> None:
    ofa = str(Path(sys.executable).with_name("ofa-triton"))
    shown = {tuple(m.groups()) for m in re.finditer(r"ofa-triton ([a-z]+)((?: [^\n`]*)?)", "\n".join(BLOCKS))}
    assert {command for command, _ in shown} >= {
        "download",
        "inspect",
        "export",
        "engines",
        "repository",
        "serve",
        "ask",
    }
    for command, rest in shown:
        text = subprocess.run([ofa, command, "--help"], capture_output=True, text=True, check=True)
        for flag in re.findall(r"--[a-z-]+", rest.split("#")[0]):
            assert flag in text.stdout, f"ofa-triton {command} has no {flag}"


def test_every_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make ([a-z-]+)", "\n".join([*BLOCKS, *re.findall(r"`([^`]+)`", README)])):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_linked_file_exists() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert link.startswith("https://") or (ROOT / link).exists(), link
    for path in re.findall(r"`((?:src|models|ensemble|backends|build|demo|docs)/[^`<*]+)`", README):
        assert (ROOT / path).exists() or path.startswith("build/out"), path
