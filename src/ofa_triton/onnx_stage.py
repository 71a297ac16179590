"""Run one exported stage with ONNX Runtime: whole batches, bound buffers, threads that do not fight.

Used by the ``onnxruntime`` backend inside Triton and by the in-process pipeline alike.
"""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from ofa_triton.errors import BuildError

Arrays = dict[str, NDArray[Any]]

_NUMPY: dict[str, np.dtype[Any]] = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(float16)": np.dtype(np.float16),
    "tensor(int32)": np.dtype(np.int32),
    "tensor(int64)": np.dtype(np.int64),
    "tensor(uint8)": np.dtype(np.uint8),
}


class OnnxStage:
    """One ONNX file, loaded. Not for use by several threads at once.

    Args:
        path: the ONNX file.
        threads: threads of one run; 0 takes every core.

    Raises:
        BuildError: the file cannot be loaded.
    """

    def __init__(self, path: Path, threads: int = 0) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # A memory pattern is kept for every shape that was seen; texts and batches come in many.
        options.enable_mem_pattern = False
        # Idle workers sleep: spinning ones would take the cores from the other stages.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the library's exceptions share no base
            raise BuildError(f"{path}: ONNX Runtime cannot load it: {error}") from error
        self.input_names = tuple(argument.name for argument in self._session.get_inputs())
        self.output_names = tuple(argument.name for argument in self._session.get_outputs())
        self._dtypes: dict[str, np.dtype[Any]] = {
            argument.name: _NUMPY[argument.type] for argument in self._session.get_outputs()
        }
        self._shapes: dict[tuple[tuple[int, ...], ...], dict[str, tuple[int, ...]]] = {}
        self._buffers: Arrays = {}

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> Arrays:
        """Run one batch. The arrays returned are views of buffers that the next run writes over."""
        key = tuple(inputs[name].shape for name in self.input_names)
        shapes = self._shapes.get(key)
        if shapes is None:
            results = dict(zip(self.output_names, self._session.run(None, dict(inputs)), strict=True))
            self._shapes[key] = {name: array.shape for name, array in results.items()}
            return results
        binding = self._session.io_binding()
        bound = {name: np.ascontiguousarray(inputs[name]) for name in self.input_names}
        for name, array in bound.items():
            binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        outputs = {name: self._buffer(name, shape) for name, shape in shapes.items()}
        for name, array in outputs.items():
            binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        self._session.run_with_iobinding(binding)
        return outputs

    def _buffer(self, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        size = prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size:
            buffer = self._buffers[name] = np.empty(size, self._dtypes[name])
        return buffer[:size].reshape(shape)
