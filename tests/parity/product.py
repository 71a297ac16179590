"""The package's own code, as the tests call it. Nothing here knows of the reference."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ofa_triton.checkpoint import checkpoint_from_directory
from ofa_triton.export import export_checkpoint
from ofa_triton.ofa.model import OFAModel, encoder_mask
from ofa_triton.ofa.weights import model_from_tensors, tensors_from_file
from ofa_triton.pipeline import Pipeline
from ofa_triton.preprocessing.request import SETTINGS_FILE, Prepared, Preprocessor, collate


class Request(NamedTuple):
    """One visual entailment request."""

    image: bytes
    hypothesis: str
    premise: str | None = None


Answer = Callable[[Path, Sequence[Request]], list[dict[str, float]]]
"""From a checkpoint and a batch of requests to the probability of each answer, in the answer file's order."""


class Outputs(NamedTuple):
    """Encoder states [B, L, D], position embeddings [L, D] and logits [B, N, V]."""

    states: NDArray[np.float32]
    positions: NDArray[np.float32]
    logits: NDArray[np.float32]


@cache
def model_from_checkpoint(path: Path) -> OFAModel:
    checkpoint = checkpoint_from_directory(path)
    return model_from_tensors(checkpoint.config, tensors_from_file(checkpoint.weights), checkpoint.weights)


@cache
def preprocessor_from_checkpoint(path: Path) -> Preprocessor:
    settings = checkpoint_from_directory(path).preprocess_settings
    (path / SETTINGS_FILE).write_text(settings.model_dump_json(), encoding="utf-8")
    return Preprocessor(path)


@cache
def pipeline_from_checkpoint(path: Path) -> Pipeline:
    export = path.with_name(f"{path.name}-export")
    export_checkpoint(checkpoint_from_directory(path), export)
    return Pipeline(export, threads=1)


def normalise(path: Path, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """UINT8 [..., height, width, 3] to FP32 [..., 3, height, width], as the vision encoder's graph begins."""
    mean, std = checkpoint_from_directory(path).normalisation
    scaled = pixels.astype(np.float32) / np.float32(255)
    return np.moveaxis((scaled - np.float32(mean)) / np.float32(std), -1, -3)


@torch.inference_mode()
def forward(model: OFAModel, pixels: NDArray, input_ids: NDArray, decoder_ids: NDArray) -> Outputs:
    """The plain model on normalised pixels [B, 3, height, width], text [B, T] and decoder tokens [B, N]."""
    ids = torch.from_numpy(input_ids).long()
    embeds, grid = model.encoder.embed_pixels(torch.from_numpy(pixels))
    states = model.encoder.encode(embeds, ids, grid)
    positions = model.encoder.positions(grid, ids.shape[1])
    mask = encoder_mask(ids, embeds.shape[1], model.config.pad_token_id)
    hidden = model.decoder.decode(torch.from_numpy(decoder_ids).long(), states, positions, mask)
    logits = hidden @ model.encoder.embed_tokens.weight.T
    return Outputs(states.numpy(), positions.numpy(), logits.numpy())


def answer_with_model(path: Path, requests: Sequence[Request]) -> list[dict[str, float]]:
    """Answer through the plain model: softmax over the answers' tokens at the last token of the prompt."""
    checkpoint, preprocessor = checkpoint_from_directory(path), preprocessor_from_checkpoint(path)
    rows = _prepared(preprocessor, requests)
    pixels, ids = collate(rows, preprocessor.tokenizer.pad)
    logits = torch.from_numpy(forward(model_from_checkpoint(path), normalise(path, pixels), ids, ids).logits)
    last = torch.tensor([len(row.input_ids) - 2 for row in rows])
    scores: Tensor = logits[torch.arange(len(rows)), last][:, checkpoint.answer_ids()].softmax(-1)
    return [dict(zip(checkpoint.answers, row, strict=True)) for row in scores.tolist()]


def answer_with_stages(path: Path, requests: Sequence[Request]) -> list[dict[str, float]]:
    """Answer through the exported stages, in this process."""
    pipeline = pipeline_from_checkpoint(path)
    scores = pipeline.scores(_prepared(pipeline.preprocessor, requests))
    return [dict(zip(pipeline.manifest.answers, row, strict=True)) for row in scores.tolist()]


def _prepared(preprocessor: Preprocessor, requests: Sequence[Request]) -> list[Prepared]:
    return [
        preprocessor.entailment(r.image, r.hypothesis.encode(), None if r.premise is None else r.premise.encode())
        for r in requests
    ]
