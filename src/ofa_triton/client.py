"""Ask a server over gRPC. Needs no torch and no model files: everything it must know, the server tells."""

import json
import re
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from ofa_triton.errors import RequestError, ServerError
from ofa_triton.results import Entailment, entailment_from_scores, text_bytes

DEFAULT_URL = "grpc://127.0.0.1:8001"
ENTAILMENT = "visual_entailment"
TIMEOUT_S = 60.0
_ADDRESS = re.compile(r"(?:grpc://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):(?P<port>[0-9]{1,5})/?")
_INVALID = "StatusCode.INVALID_ARGUMENT"
_MESSAGE_BYTES = 1 << 28


class Client:
    """A connection to one server. Safe to share between threads.

    Args:
        url: ``grpc://HOST:PORT``.
        timeout_s: longest wait for one request.

    Raises:
        RequestError: the address is not one of a gRPC port.
    """

    def __init__(self, url: str = DEFAULT_URL, timeout_s: float = TIMEOUT_S) -> None:
        match = _ADDRESS.fullmatch(url)
        if not match or not 0 < int(match["port"]) < 65536:
            raise RequestError(f"--url {url}: an address of the form grpc://HOST:PORT is needed (Triton's gRPC port).")
        address = f"{match['host']}:{match['port']}"
        options = [
            ("grpc.max_send_message_length", _MESSAGE_BYTES),
            ("grpc.max_receive_message_length", _MESSAGE_BYTES),
        ]
        self.url = f"grpc://{address}"
        self.timeout_s = timeout_s
        self._triton = triton.InferenceServerClient(address, channel_args=options)
        self._names: tuple[list[str], list[str]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._triton.close()

    def entailment(
        self, images: Sequence[bytes], hypotheses: Sequence[str], premises: Sequence[str] | None = None
    ) -> list[Entailment]:
        """Judge each statement by its picture, all in one request.

        Args:
            images: encoded pictures (the files' bytes), at most the server's batch size.
            hypotheses: a statement for each.
            premises: what is already known of each picture.

        Raises:
            RequestError: the request is wrong; names the field.
            ServerError: the server cannot be reached, or failed.
        """
        columns: dict[str, Sequence[bytes]] = {"IMAGE": images, "HYPOTHESIS": text_bytes(hypotheses)}
        if premises is not None:
            columns["PREMISE"] = text_bytes(premises)
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) != 1 or not images:
            raise RequestError(f"the fields differ in length or are empty: {lengths}. Give one of each per picture.")
        labels, answers = self._labels_and_answers()
        start = time.perf_counter()
        result = self._call(
            self._triton.infer,
            ENTAILMENT,
            [_column(*column) for column in columns.items()],
            client_timeout=self.timeout_s,
        )
        elapsed = (time.perf_counter() - start) * 1e3
        return [entailment_from_scores(row, labels, answers, elapsed) for row in result.as_numpy("SCORES").tolist()]

    def _labels_and_answers(self) -> tuple[list[str], list[str]]:
        if self._names is None:
            config = self._call(self._triton.get_model_config, ENTAILMENT, client_timeout=self.timeout_s).config
            parameters = {key: value.string_value for key, value in config.parameters.items()}
            if not {"labels", "answers"} <= parameters.keys():
                raise ServerError(f"{self.url}: its model {ENTAILMENT!r} was not built by 'ofa-triton repository'.")
            self._names = json.loads(parameters["labels"]), json.loads(parameters["answers"])
        return self._names

    def _call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except InferenceServerException as error:
            message = error.message() or "no reason given"
            if error.status() == _INVALID:
                raise RequestError(message.removeprefix(f"in ensemble '{ENTAILMENT}', ")) from error
            raise ServerError(
                f"{self.url}: {error.status() or 'failed'}: {message}{_advice(error.status())}"
            ) from error


def _advice(status: str | None) -> str:
    return {
        "StatusCode.UNAVAILABLE": ". Is it running? Start it with 'ofa-triton serve'.",
        "StatusCode.DEADLINE_EXCEEDED": ". It did not answer in time.",
        "StatusCode.NOT_FOUND": f". It serves no {ENTAILMENT!r}.",
    }.get(status or "", "")


def _column(name: str, values: Sequence[bytes]) -> Any:
    tensor = triton.InferInput(name, [len(values), 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[value] for value in values], dtype=object))  # 'S' would strip zero bytes
    return tensor
