"""A python-based backend named as NVIDIA's native one, for servers that lack it: one repository runs on both."""

import json
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

from ofa_triton.onnx_stage import OnnxStage


class TritonPythonModel:
    """Runs ``model.onnx``: all requests that Triton hands over at once go through one session run."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model of this version."""
        config = json.loads(args["model_config"])
        threads = config["parameters"].get("intra_op_thread_count", {"string_value": "0"})["string_value"]
        version = Path(args["model_repository"]) / args["model_version"]
        self.stage = OnnxStage(version / (config["default_model_filename"] or "model.onnx"), int(threads))

    def execute(self, requests: list) -> list:
        """Run one batch and give each request its rows; when the batch fails, each request by itself."""
        try:
            return self._run(requests)
        except Exception as error:  # the library's exceptions share no base
            if len(requests) == 1:
                reason = str(error).partition("\n")[0]
                failure = pb_utils.TritonError(
                    f"the engine refused the tensors: {reason}", pb_utils.TritonError.INVALID_ARG
                )
                return [pb_utils.InferenceResponse(error=failure)]
        return [response for request in requests for response in self.execute([request])]

    def _run(self, requests: list) -> list:
        inputs = {
            name: _joined([pb_utils.get_input_tensor_by_name(request, name).as_numpy() for request in requests])
            for name in self.stage.input_names
        }
        outputs = self.stage.run(inputs)
        responses, start = [], 0
        for request in requests:
            stop = start + len(request.inputs()[0].as_numpy())
            tensors = [pb_utils.Tensor(name, array[start:stop]) for name, array in outputs.items()]
            responses.append(pb_utils.InferenceResponse(tensors))
            start = stop
        return responses


def _joined(arrays: list) -> np.ndarray:
    """One array of all rows; a single request's tensor is passed on as it lies in shared memory."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
