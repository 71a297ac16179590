"""The embedded tritonserver: found in the ``nvidia-pytriton`` wheel, started on free ports, stopped without a trace."""

import ctypes
import importlib.util
import os
import platform
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from ofa_triton.errors import ServerError
from ofa_triton.files import link_or_copy
from ofa_triton.resources import resource

LOOPBACK = "127.0.0.1"
GLIBC_NEEDED = (2, 35)
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 15
SHM = Path("/dev/shm")  # noqa: S108 - where the python backend keeps its shared memory
SCRATCH_PREFIX = "ofa-triton-"
_KEPT_LINES = 2000
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h

_HARMLESS = re.compile(r"cuda|nvml|dcgm|pinned memory|gpu|CacheManager", re.IGNORECASE)
"""Lines a CPU machine always gets; they frighten and mean nothing."""

Log = Callable[[str], None]


class TritonServer:
    """A running tritonserver over one model repository, as a context manager.

    Args:
        repository: the model repository.
        http_port, grpc_port, metrics_port: 0 takes a free port.
        address: where it listens; loopback unless told.
        log: told every line worth a user's attention.
        verbose: let every line through.

    Raises:
        ServerError: the platform is not supported, a port is taken, or the server ended before it was ready.
    """

    def __init__(
        self,
        repository: Path,
        *,
        http_port: int = 0,
        grpc_port: int = 0,
        metrics_port: int = 0,
        address: str = LOOPBACK,
        log: Log = lambda _: None,
        verbose: bool = False,
    ) -> None:
        if not (repository / "visual_entailment" / "config.pbtxt").is_file():
            raise ServerError(f"{repository}: no model repository. Run 'ofa-triton repository' first.")
        self.repository = repository
        self.address = address
        self.http_port, self.grpc_port, self.metrics_port = _ports(address, http_port, grpc_port, metrics_port)
        self._log, self._verbose = log, verbose
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._process: subprocess.Popen[str] | None = None
        self._shm_prefix = f"ofa_triton_{os.getpid()}_{secrets.token_hex(4)}_"
        self._scratch: Path | None = None

    @property
    def grpc_url(self) -> str:
        """Where gRPC clients find it."""
        return f"grpc://{self.address}:{self.grpc_port}"

    @property
    def http_url(self) -> str:
        """Where HTTP clients find it."""
        return f"http://{self.address}:{self.http_port}"

    @property
    def metrics_url(self) -> str:
        """Where Prometheus finds its metrics."""
        return f"http://{self.address}:{self.metrics_port}/metrics"

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start and wait until every model is loaded."""
        wheel = embedded_triton()
        _remove_stale_scratch()
        self._scratch = Path(tempfile.mkdtemp(prefix=f"{SCRATCH_PREFIX}{os.getpid()}-"))
        try:
            backends = _backend_directory(wheel, self._scratch / "backends")
            self._process = subprocess.Popen(
                self._command(wheel, backends),
                env=_environment(wheel),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
            threading.Thread(target=self._read_lines, args=(self._process,), daemon=True).start()
            self._wait_until_ready(timeout_s)
        except BaseException:
            self.stop()
            raise

    def wait(self) -> int:
        """Wait until the server ends by itself, and return its exit status."""
        assert self._process is not None
        return self._process.wait()

    def stop(self) -> None:
        """End the server and its stages, and remove what they leave in /dev/shm. May be called twice."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._log(f"tritonserver did not end within {STOP_TIMEOUT_S} s and is killed")
            _kill_group(process.pid)
            process.wait()
        for leftover in SHM.glob(f"{self._shm_prefix}*"):
            leftover.unlink(missing_ok=True)
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def last_lines(self, count: int = 20) -> str:
        """The last lines it wrote."""
        return "\n".join(list(self._lines)[-count:])

    def _command(self, wheel: Path, backends: Path) -> list[str]:
        key = secrets.token_hex(16)  # nobody has it: these interfaces stay closed
        return [
            str(wheel / "bin" / "tritonserver"),
            f"--model-repository={self.repository.resolve()}",
            f"--backend-directory={backends}",
            f"--http-address={self.address}",
            f"--http-port={self.http_port}",
            f"--grpc-address={self.address}",
            f"--grpc-port={self.grpc_port}",
            f"--metrics-address={self.address}",
            f"--metrics-port={self.metrics_port}",
            "--allow-gpu-metrics=false",
            "--disable-auto-complete-config",
            "--exit-on-error=true",
            f"--exit-timeout-secs={STOP_TIMEOUT_S - 5}",
            f"--backend-config=python,shm-region-prefix-name={self._shm_prefix}",
            f"--http-restricted-api=model-repository,shared-memory,logging,trace:ofa-triton-key={key}",
            f"--grpc-restricted-protocol=model-repository,shared-memory,logging,trace:ofa-triton-key={key}",
        ]

    def _read_lines(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.append(line.rstrip())
            if self._verbose or (line.startswith(("E", "W")) and not _HARMLESS.search(line)):
                self._log(line.rstrip())

    def _wait_until_ready(self, timeout_s: float) -> None:
        assert self._process is not None
        end = time.monotonic() + timeout_s
        while not _answers(f"{self.http_url}/v2/health/ready"):
            if self._process.poll() is not None:
                time.sleep(0.2)  # let the reader take the last lines
                raise ServerError(
                    f"tritonserver ended with status {self._process.returncode} before it was ready. It said last:\n"
                    f"{_causes(self._lines) or self.last_lines()}"
                )
            if time.monotonic() > end:
                raise ServerError(
                    f"tritonserver was not ready within {timeout_s:.0f} s. It said last:\n{self.last_lines()}"
                )
            time.sleep(0.05)


def embedded_triton() -> Path:
    """Folder of the tritonserver inside the ``nvidia-pytriton`` wheel.

    Raises:
        ServerError: it is not installed, or cannot run on this machine.
    """
    libc, version = platform.libc_ver()
    found = tuple(int(part) for part in version.split(".")[:2]) if libc == "glibc" else (0, 0)
    if sys.platform != "linux" or found < GLIBC_NEEDED:
        raise ServerError(
            f"the embedded Triton runs on Linux with glibc {'.'.join(map(str, GLIBC_NEEDED))} or newer; this is "
            f"{platform.system()} with {libc or 'another libc'} {version}. Use NVIDIA's container (README, Limits)."
        )
    spec = importlib.util.find_spec("pytriton")
    if spec is None or not spec.submodule_search_locations:
        raise ServerError("the embedded Triton is not installed. Run: pip install 'ofa-triton[serve]'")
    return Path(spec.submodule_search_locations[0]) / "tritonserver"


def shared_libpython() -> Path:
    """Folder of the shared library of the running Python, which Triton's python stages are linked with.

    Raises:
        ServerError: this Python was built without one and the system has none.
    """
    name = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    folders = [sysconfig.get_config_var("LIBDIR"), f"{sys.base_prefix}/lib", sysconfig.get_config_var("LIBPL")]
    folders += [f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"]
    for folder in folders:
        if folder and (Path(folder) / name).exists():
            return Path(folder)
    short = f"{sys.version_info.major}.{sys.version_info.minor}"
    raise ServerError(
        f"{name} was not found: {sys.executable} was built without it, and Triton's python stages need it. "
        f"Install it (Debian, Ubuntu: apt-get install libpython{short}), or use a Python built with --enable-shared."
    )


def _backend_directory(wheel: Path, target: Path) -> Path:
    """Put together what the wheel keeps apart: python backend, the stub of this Python, and our own backends."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = wheel / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.is_file():
        known = sorted(path.name for path in (wheel / "python_backend_stubs").iterdir())
        raise ServerError(f"the embedded Triton has no stub for Python {version}; it has {', '.join(known)}.")
    for file in (*(wheel / "backends" / "python").glob("*.*"), stub):
        link_or_copy(file, target / "python" / file.name)  # Triton refuses a symbolic link that leads elsewhere
    for backend in resource("backends").iterdir():
        link_or_copy(backend / "model.py", target / backend.name / "model.py")
    return target


def _environment(wheel: Path) -> dict[str, str]:
    libraries = [wheel.parents[1] / "nvidia_pytriton.libs", shared_libpython(), os.environ.get("LD_LIBRARY_PATH")]
    return os.environ | {
        "LD_LIBRARY_PATH": os.pathsep.join(str(path) for path in libraries if path),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


def _ports(address: str, *wanted: int) -> Sequence[int]:
    """Check the wanted ports and replace each 0 by a free one."""
    chosen = [port for port in wanted if port]
    if len(set(chosen)) != len(chosen):
        raise ServerError(f"HTTP, gRPC and metrics need a port each, and {list(wanted)} names one twice.")
    held = [socket.socket() for _ in wanted]
    try:
        for holder, port in zip(held, wanted, strict=True):
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                holder.bind((address, port))
            except OSError as error:
                raise ServerError(
                    f"port {port} of {address} cannot be had ({error.strerror}). Choose another with --http-port, "
                    f"--grpc-port or --metrics-port; 0 takes a free one."
                ) from error
        return [holder.getsockname()[1] for holder in held]
    finally:
        for holder in held:
            holder.close()


def _remove_stale_scratch() -> None:
    """Remove folders of servers whose owner was killed before it could."""
    for folder in Path(tempfile.gettempdir()).glob(f"{SCRATCH_PREFIX}*-*"):
        owner = folder.name.removeprefix(SCRATCH_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as response:  # noqa: S310 - our own http address
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _causes(lines: Sequence[str]) -> str:
    """The lines that say why a model did not load."""
    return "\n".join(line for line in lines if line.startswith("E") and not _HARMLESS.search(line))


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
