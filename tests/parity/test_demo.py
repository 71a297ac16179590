"""The demo's trained checkpoint, as stored, through ModelScope's own pipeline and through the exported stages."""

import json
from pathlib import Path

import numpy as np

from ofa_triton.pipeline import Pipeline
from tests.conftest import DEMO

from .client import Oracle
from .conftest import Differences
from .test_pipeline import PROBABILITY_LIMIT

PAIRS = [json.loads(line) for line in (DEMO / "pairs.jsonl").read_text().splitlines()]


def test_labels_and_probabilities(demo_built: Path, oracle: Oracle, differences: Differences) -> None:
    items = [
        {"image": str(DEMO / pair["image"]), "text": pair["hypothesis"]}
        | ({"text2": pair["premise"]} if "premise" in pair else {})
        for pair in PAIRS
    ]
    reference = oracle("answer", path=str(DEMO / "checkpoint"), items=items).result
    pipeline = Pipeline(demo_built / "onnx", threads=1)
    for pair, expected in zip(PAIRS, reference, strict=True):
        premises = [pair["premise"]] if "premise" in pair else None
        (found,) = pipeline.entailment([(DEMO / pair["image"]).read_bytes()], [pair["hypothesis"]], premises)
        assert found.answer == expected["label"]
        assert found.label == pair["label"]
        ours, theirs = (np.array(list(row.values())) for row in (found.scores, expected["distribution"]))
        differences.check("demo: probabilities, exported stages", ours, theirs, PROBABILITY_LIMIT)
