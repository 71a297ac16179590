"""The preprocess stage: a picture and its texts in, pixels and token ids out."""

import json
from pathlib import Path

import triton_python_backend_utils as pb_utils

from ofa_triton.errors import RequestError
from ofa_triton.preprocessing.request import Preprocessor, collate


class TritonPythonModel:
    """Each request fails or succeeds by itself."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the checkpoint's tokenizer and settings from beside this file."""
        parameters = json.loads(args["model_config"])["parameters"]
        version = Path(args["model_repository"]) / args["model_version"]
        self.preprocessor = Preprocessor(version, int(parameters["max_pixels"]["string_value"]))

    def execute(self, requests: list) -> list:
        """Answer every request, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: object) -> object:
        fields = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        try:
            rows = self.preprocessor.entailment_batch(fields)
        except RequestError as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG))
        pixel_values, input_ids = collate(rows, self.preprocessor.tokenizer.pad)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("pixel_values", pixel_values), pb_utils.Tensor("input_ids", input_ids)]
        )
