"""How the server starts, fails to start, and ends."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import ofa_triton.server as server_module
from ofa_triton.client import Client
from ofa_triton.errors import ServerError
from ofa_triton.server import SHM, TritonServer, embedded_triton, shared_libpython
from tests.pictures import encoded, noise

OFA = Path(sys.executable).with_name("ofa-triton")


def serve(out: Path, *flags: str) -> subprocess.Popen[str]:
    ports = ["--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    command = [str(OFA), "serve", f"--out={out}", "--json", *ports, *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def leftovers(pid: int) -> list[str]:
    return [path.name for path in SHM.glob(f"ofa_triton_{pid}_*")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_cleanly(built: Path, number: signal.Signals) -> None:
    process = serve(built)
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 6
    with Client(ready["grpc_url"]) as client:
        assert client.entailment([encoded(noise())], ["a bird"])
    process.send_signal(number)
    process.send_signal(number)  # an impatient user
    assert process.wait(40) == 0
    assert not [child for child in family if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert leftovers(process.pid) == []


def test_a_signal_while_it_starts_ends_it(built: Path) -> None:
    process = serve(built)
    while not (family := psutil.Process(process.pid).children(recursive=True)):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(40) == 0
    assert not [child for child in family if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert leftovers(process.pid) == []


def test_it_ends_with_its_parent(built: Path) -> None:
    process = serve(built)
    assert process.stdout is not None
    process.stdout.readline()
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []
    process.wait()
    assert leftovers(process.pid) == []


def test_the_server_s_own_death_is_told(built: Path) -> None:
    process = serve(built)
    assert process.stdout is not None
    assert process.stderr is not None
    os.kill(json.loads(process.stdout.readline())["pid"], signal.SIGKILL)
    assert process.wait(40) == 3
    assert "tritonserver ended by itself with status -9" in process.stderr.read()
    assert leftovers(process.pid) == []


def test_it_listens_on_loopback_only(server: TritonServer) -> None:
    assert server.pid is not None
    listening = [c.laddr for c in psutil.Process(server.pid).net_connections("inet") if c.status == psutil.CONN_LISTEN]
    assert {address.port for address in listening} >= {server.http_port, server.grpc_port, server.metrics_port}
    assert {address.ip.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


def test_a_taken_port_is_named(built: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(ServerError, match=f"port {port} of 127.0.0.1 cannot be had"):
            TritonServer(built / "repository", http_port=port)


def test_a_port_named_twice_is_refused(built: Path) -> None:
    with pytest.raises(ServerError, match="names one twice"):
        TritonServer(built / "repository", http_port=18000, grpc_port=18000)


def test_folders_of_killed_servers_are_removed(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module.tempfile, "tempdir", str(tmp_path))
    dead, alive = (tmp_path / f"ofa-triton-{pid}-x" for pid in (2**22 + 1, os.getpid()))
    dead.mkdir()
    alive.mkdir()
    with TritonServer(built / "repository"):
        assert not dead.exists()
    assert [path.name for path in tmp_path.iterdir()] == [alive.name]


def test_a_missing_repository_is_described(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="Run 'ofa-triton repository' first"):
        TritonServer(tmp_path)


def test_a_stage_that_cannot_load_says_why(built: Path, tmp_path: Path) -> None:
    repository = Path(shutil.copytree(built / "repository", tmp_path / "repository"))
    (repository / "text_encoder" / "1" / "model.onnx").write_bytes(b"no model")
    with pytest.raises(ServerError, match=r"(?s)before it was ready.*text_encoder.*ONNX Runtime cannot load it"):
        TritonServer(repository).start()
    assert leftovers(os.getpid()) == [] or all("text" not in name for name in leftovers(os.getpid()))


def test_a_python_without_shared_library_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "Path", lambda *parts: Path("/nonexistent"))
    with pytest.raises(ServerError, match=r"libpython3\.\d+\.so\.1\.0 was not found.*apt-get install libpython3"):
        shared_libpython()


@pytest.mark.parametrize(("name", "version"), [("glibc", "2.31"), ("", ""), ("musl", "1.2")])
def test_an_old_or_other_libc_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, version: str) -> None:
    monkeypatch.setattr(server_module.platform, "libc_ver", lambda: (name, version))
    with pytest.raises(ServerError, match=r"runs on Linux with glibc 2\.35 or newer"):
        embedded_triton()


def test_a_missing_wheel_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ServerError, match=re.escape("pip install 'ofa-triton[serve]'")):
        embedded_triton()
