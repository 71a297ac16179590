"""Answers the parity tests with ModelScope's own code: one JSON object a line, in on stdin and out on stdout.

A request is ``{"op", "args", "arrays"}`` and a reply ``{"result", "arrays"}`` or ``{"error": {"type", "message"}}``;
``arrays`` is null or the path of an ``.npz`` file. Whatever ModelScope prints goes to stderr.
"""

import json
import os
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

if __name__ == "__main__":
    REPLIES = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

import numpy as np
import torch
from checkpoint import DERIVED, write_checkpoint
from reference import OFAModel, OfaPreprocessor, expand_mask, ofa_for_all_tasks, pipeline

Arrays = dict[str, np.ndarray]
Answer = tuple[Any, Arrays]


class Oracle:
    """The operations. Models, preprocessors and pipelines are kept by their directory."""

    def __init__(self) -> None:
        self.models: dict[str, OFAModel] = {}
        self.preprocessors: dict[str, OfaPreprocessor] = {}
        self.pipelines: dict[str, Any] = {}

    def write_checkpoint(self, arrays: Arrays, path: str, **options: Any) -> Answer:
        self.models[path] = write_checkpoint(Path(path), **options)
        return None, {}

    def forward(self, arrays: Arrays, path: str) -> Answer:
        """Encoder and decoder, the decoder without a mask of its own tokens, as answers are scored."""
        return None, _forward(self._model(path), arrays)

    def effects(self, arrays: Arrays, path: str) -> Answer:
        """How far the outputs move when each tensor of the checkpoint is disturbed, by the tensor's name."""
        model = self._model(path)
        before = _forward(model, arrays)
        seen = ~before["padding"]
        result = {}
        for name, tensor in model.state_dict().items():
            if name.endswith(DERIVED):
                continue
            kept = tensor.clone()
            tensor.mul_(torch.rand(tensor.shape, generator=torch.Generator().manual_seed(1)) + 1).add_(0.1)
            after = _forward(model, arrays)
            tensor.copy_(kept)
            states = np.abs(after["states"] - before["states"])[seen].max()
            result[name] = float(max(states, np.abs(after["logits"] - before["logits"]).max()))
        return result, {}

    def preprocess(self, arrays: Arrays, path: str, items: list[dict[str, str]]) -> Answer:
        """Token ids ``source`` and ``decoder_prompt`` of each item, or its ``error``; pixels as ``pixels_<index>``."""
        if path not in self.preprocessors:
            self.preprocessors[path] = OfaPreprocessor(model_dir=path)
        preprocess = self.preprocessors[path].preprocess
        results: list[dict[str, Any]] = []
        pixels = {}
        for index, item in enumerate(items):
            try:
                sample = preprocess(item)
            except Exception as error:  # what the reference cannot read is an answer too
                results.append({"error": f"{type(error).__name__}: {error}"})
                continue
            results.append({key: sample[key].tolist() for key in ("source", "decoder_prompt")})
            pixels[f"pixels_{index}"] = sample["patch_image"].numpy()
        return results, pixels

    def answer(self, arrays: Arrays, path: str, items: list[dict[str, str]]) -> Answer:
        """What the whole pipeline returns for each item, and ``distribution``, the probability of every answer."""
        if path not in self.pipelines:
            task = json.loads((Path(path) / "configuration.json").read_text("utf-8"))["task"]
            self.pipelines[path] = pipeline(task, model=path, device="cpu")
        results = []
        for item in items:
            with _SoftmaxSpy() as spy:
                reply = self.pipelines[path](item)
            answers = self.pipelines[path].model.ans2label_dict
            distribution = dict(zip(answers, spy.seen[-1][0].tolist(), strict=True))
            results.append({"label": reply["labels"], "score": reply["scores"], "distribution": distribution})
        return results, {}

    def _model(self, path: str) -> OFAModel:
        if path not in self.models:
            self.models[path] = OFAModel.from_pretrained(path).eval()
        return self.models[path]


class _SoftmaxSpy:
    """Keeps what the reference's softmax over all answers returns: it reports only the best one's share."""

    def __enter__(self) -> "_SoftmaxSpy":
        self.seen: list[torch.Tensor] = []
        self.functional = ofa_for_all_tasks.F
        ofa_for_all_tasks.F = SimpleNamespace(softmax=self._softmax)
        return self

    def __exit__(self, *error: object) -> None:
        ofa_for_all_tasks.F = self.functional

    def _softmax(self, scores: torch.Tensor, dim: int) -> torch.Tensor:
        self.seen.append(self.functional.softmax(scores, dim=dim))
        return self.seen[-1]


def _forward(model: OFAModel, arrays: Arrays) -> Arrays:
    pixels, ids, decoder_ids = (torch.from_numpy(arrays[name]) for name in ("pixels", "input_ids", "decoder_ids"))
    encoded = model.encoder(
        input_ids=ids.long(), patch_images=pixels, patch_masks=torch.ones(len(ids), dtype=torch.bool)
    )
    decoded = model.decoder(
        decoder_ids.long(),
        encoder_hidden_states=encoded.last_hidden_state,
        encoder_attention_mask=expand_mask(encoded.padding_mask, torch.float32, decoder_ids.shape[1]),
        src_pos_embed=encoded.position_embedding,
    )
    return {
        "states": encoded.last_hidden_state.numpy(),
        "padding": encoded.padding_mask.numpy(),
        "positions": encoded.position_embedding.numpy(),
        "logits": decoded[0].numpy(),
    }


def serve(scratch: Path) -> None:
    """Answer until stdin ends. Arrays of replies are written to `scratch`."""
    oracle = Oracle()
    for number, line in zip(count(), sys.stdin, strict=False):
        request = json.loads(line)
        try:
            arrays = dict(np.load(request["arrays"])) if request["arrays"] else {}
            operation: Callable[..., Answer] = getattr(oracle, request["op"])
            result, produced = operation(arrays, **request["args"])
            file = scratch / f"reply-{number}.npz"
            if produced:
                np.savez(file, **produced)
            reply = {"result": result, "arrays": str(file) if produced else None}
        except Exception as error:
            reply = {"error": {"type": type(error).__name__, "message": str(error)}}
        print(json.dumps(reply), file=REPLIES, flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)  # the tests compute in turns, and small matrices gain nothing from a second thread
    serve(Path(sys.argv[1]))
