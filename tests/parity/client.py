"""The test's end of the oracle: a process in the environment that holds ModelScope."""

import json
import os
import subprocess
import threading
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
PYTHON_VARIABLE = "OFA_TRITON_ORACLE_PYTHON"
TIMEOUT_S = 300

Arrays = dict[str, NDArray[Any]]


class OracleError(Exception):
    """The oracle could not answer; the message is the reference's own."""


class Reply(NamedTuple):
    """What an operation of ``oracle/worker.py`` returns."""

    result: Any
    arrays: Arrays


def oracle_python() -> Path:
    """The interpreter that holds ModelScope.

    Raises:
        OracleError: there is none. Parity tests then fail: a suite that skips judges nothing.
    """
    python = Path(os.environ.get(PYTHON_VARIABLE) or ROOT / ".venv-oracle" / "bin" / "python")
    if not python.is_file():
        raise OracleError(
            f"{python}: no interpreter with ModelScope, the judge of the parity tests. "
            f"Run 'make setup-oracle', or set {PYTHON_VARIABLE} to one that has oracle/requirements.txt."
        )
    return python


class Oracle:
    """One worker for the whole session: it takes seconds to start."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._log = scratch / "oracle.log"
        self._number = count()
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        worker = Path(__file__).parent / "oracle" / "worker.py"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [str(oracle_python()), str(worker), str(scratch)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
                encoding="utf-8",
            )

    def __call__(self, operation: str, arrays: Mapping[str, NDArray[Any]] | None = None, /, **args: Any) -> Reply:
        """Run one operation.

        Raises:
            OracleError: the operation raised, or the worker ended or took too long.
        """
        file = self._scratch / f"request-{next(self._number)}.npz"
        if arrays:
            np.savez(file, **arrays)
        request = {"op": operation, "args": args, "arrays": str(file) if arrays else None}
        assert self._process.stdin
        assert self._process.stdout
        watchdog = threading.Timer(TIMEOUT_S, self._process.kill)
        watchdog.start()
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watchdog.cancel()
            file.unlink(missing_ok=True)
        if not line:
            tail = "\n".join(self._log.read_text("utf-8", "replace").splitlines()[-30:])
            raise OracleError(f"{operation}: the oracle ended, or took over {TIMEOUT_S} s. Its last words:\n{tail}")
        reply = json.loads(line)
        if "error" in reply:
            raise OracleError(f"{operation}: {reply['error']['type']}: {reply['error']['message']}")
        produced = Path(reply["arrays"]) if reply["arrays"] else None
        answer = Reply(reply["result"], dict(np.load(produced)) if produced else {})
        if produced:
            produced.unlink()
        return answer

    def close(self) -> None:
        """End the worker."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
