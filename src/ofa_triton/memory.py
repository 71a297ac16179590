"""What an exported stage takes in memory, measured in a process of its own."""

import resource
import subprocess
import sys
from pathlib import Path

from ofa_triton.errors import BuildError
from ofa_triton.onnx_stage import OnnxStage


def resident_bytes(path: Path) -> int:
    """Resident memory that loading an ONNX file adds to a fresh process, in bytes.

    Raises:
        BuildError: the file cannot be loaded.
    """
    result = subprocess.run([sys.executable, "-m", __name__, str(path)], capture_output=True, text=True, check=False)
    if result.returncode:
        raise BuildError(f"{path}: cannot be loaded in a process of its own: {result.stderr.strip()[-500:]}")
    return int(result.stdout)


def _resident_now() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    before = _resident_now()
    stage = OnnxStage(Path(sys.argv[1]))
    print(_resident_now() - before)  # noqa: T201 - read by resident_bytes
