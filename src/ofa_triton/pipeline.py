"""The pipeline in this process: the same preprocessing and the same exported stages, with no server."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ofa_triton.artefacts import PREPROCESS_DIRECTORY, manifest_from_export
from ofa_triton.checkpoint import checkpoint_from_directory
from ofa_triton.errors import BuildError
from ofa_triton.onnx_stage import Arrays, OnnxStage
from ofa_triton.preprocessing.request import Prepared, Preprocessor, collate
from ofa_triton.results import Entailment, entailment_from_scores, text_bytes

_Row = TypeVar("_Row")


class Pipeline:
    """The stages of one export, loaded.

    Args:
        export: the directory that ``ofa-triton export`` made.
        threads: threads of one stage's run; 0 takes every core.

    Raises:
        BuildError: nothing was exported there.
    """

    def __init__(self, export: Path, threads: int = 0) -> None:
        self.manifest = manifest_from_export(export)
        self.preprocessor = Preprocessor(export / PREPROCESS_DIRECTORY)
        stages = (OnnxStage(export / file.file, threads) for file in self.manifest.stages.values())
        self.stages = dict(zip(self.manifest.stages, stages, strict=True))

    def entailment(
        self, images: Sequence[bytes], hypotheses: Sequence[str], premises: Sequence[str] | None = None
    ) -> list[Entailment]:
        """Judge each statement by its picture (and, where given, by what is already known of it).

        Raises:
            RequestError: names the field that is wrong.
        """
        known: Sequence[bytes | None] = [None] * len(images) if premises is None else text_bytes(premises)
        fields = zip(images, text_bytes(hypotheses), known, strict=True)
        results: list[Entailment] = []
        for batch in _cut(list(fields), self.manifest.geometry.batch.max):
            start = time.perf_counter()
            scores = self.scores([self.preprocessor.entailment(*row) for row in batch])
            elapsed = (time.perf_counter() - start) * 1e3
            labels, answers = self.manifest.labels, self.manifest.answers
            results += [entailment_from_scores(row, labels, answers, elapsed) for row in scores.tolist()]
        return results

    def scores(self, rows: list[Prepared]) -> NDArray[np.float32]:
        """Probabilities [B, A] of prepared requests, run as one batch."""
        pixel_values, input_ids = collate(rows, self.manifest.pad_token_id)
        tensors: Arrays = {"pixel_values": pixel_values, "input_ids": input_ids}
        for stage in self.stages.values():
            tensors |= stage.run({name: tensors[name] for name in stage.input_names})
        return tensors["SCORES"]


def export_of_checkpoint(checkpoint: Path, out: Path) -> Path:
    """The export directory below `out`, if it was made from this very checkpoint.

    Raises:
        CheckpointError: the checkpoint is not one.
        BuildError: nothing was exported yet, or from another checkpoint.
    """
    export = out / "onnx"
    manifest = manifest_from_export(export)
    if manifest.fingerprint != checkpoint_from_directory(checkpoint).fingerprint:
        raise BuildError(
            f"{export} was made from {manifest.checkpoint}, or from {checkpoint} before it changed. "
            f"Run 'ofa-triton export {checkpoint}' first, or name another folder with --out."
        )
    return export


def _cut(rows: list[_Row], size: int) -> Iterator[list[_Row]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
