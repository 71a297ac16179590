"""Labels and probabilities of the whole pipeline, from encoded picture and texts."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from .checkpoints import ANSWERS, Checkpoints
from .client import Oracle
from .conftest import Differences
from .pictures import pictures
from .product import Answer, Request

PROBABILITY_LIMIT = 1e-4

PICTURES = pictures()
KINDS = ("jpeg, orientation 6", "wide", "png, rgba", "tall", "1 x 1", "jpeg, cmyk")
HYPOTHESES = (
    "there are two birds.",
    "A dog-like <person> runs.",
    "two",
    "one <pad> two </s> three <s> four",
    "<pad> <pad> birds <pad>",
    "\U0001f426 sits on the \u6811 <mask> <bin_5>",
    "the quick brown fox jumps over the lazy dog while a man in a red shirt looks at it",
)
PREMISES = (None, "a bird sits on a branch", "Two <pad> dogs </s> run.")
REQUESTS = [
    Request(PICTURES[KINDS[index % len(KINDS)]], hypothesis, premise)
    for index, (hypothesis, premise) in enumerate((h, p) for p in PREMISES for h in HYPOTHESES)
]

CHECKPOINTS = {
    "seed 30": {"seed": 30},
    "seed 31, ImageNet colours": {
        "seed": 31,
        "settings": {"imagenet_default_mean_and_std": True, "patch_image_size": 100},
    },
    "resnet50, 128 pixels": {
        "seed": 32,
        "config": {"resnet_type": "resnet50", "d_model": 96, "encoder_layers": 3},
        "settings": {"patch_image_size": 128, "max_src_length": 128},
    },
    "hub's own file": {"seed": 1, "with_derived": True},
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("checkpoint", CHECKPOINTS.values(), ids=list(CHECKPOINTS))
def test_labels_and_probabilities(
    checkpoint: dict,
    batch: int,
    answer: Answer,
    oracle: Oracle,
    checkpoints: Checkpoints,
    differences: Differences,
    tmp_path: Path,
) -> None:
    path = checkpoints(**checkpoint)
    labels = _compare(path, batch, REQUESTS, ANSWERS, answer, oracle, differences, tmp_path)
    assert len(labels) > 1, "the checkpoint gives one label to everything; take another seed"


@pytest.mark.parametrize(
    "answers",
    [("maybe", "no", "yes"), ("no", "yes"), ("red", "two", "dog", "blue", "yes", "no")],
    ids=",".join,
)
def test_other_answers(
    answers: tuple[str, ...],
    answer: Answer,
    oracle: Oracle,
    checkpoints: Checkpoints,
    differences: Differences,
    tmp_path: Path,
) -> None:
    path = checkpoints(seed=30, answers=answers)
    _compare(path, 3, REQUESTS[:9], answers, answer, oracle, differences, tmp_path)


EXPORTED = {
    "resnet50, 128 pixels": CHECKPOINTS["resnet50, 128 pixels"],
    "six answers, ImageNet colours": {
        "seed": 31,
        "settings": {"imagenet_default_mean_and_std": True, "patch_image_size": 100},
        "answers": ("red", "two", "dog", "blue", "yes", "no"),
    },
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("checkpoint", EXPORTED.values(), ids=list(EXPORTED))
def test_exported_stages(
    checkpoint: dict,
    batch: int,
    exported_answer: Answer,
    oracle: Oracle,
    checkpoints: Checkpoints,
    differences: Differences,
    tmp_path: Path,
) -> None:
    path, answers = checkpoints(**checkpoint), checkpoint.get("answers", ANSWERS)
    _compare(path, batch, REQUESTS, answers, exported_answer, oracle, differences, tmp_path, "exported stages")


def _compare(
    path: Path,
    batch: int,
    requests: Sequence[Request],
    answers: Sequence[str],
    answer: Answer,
    oracle: Oracle,
    differences: Differences,
    directory: Path,
    way: str = "pipeline",
) -> set[str]:
    """Compare request by request, and return the labels that occurred."""
    reference = oracle("answer", path=str(path), items=[_item(r, directory) for r in requests]).result
    ours = [row for at in range(0, len(requests), batch) for row in answer(path, requests[at : at + batch])]
    for request, row, expected in zip(requests, ours, reference, strict=True):
        assert list(row) == list(answers) == list(expected["distribution"])
        probabilities = np.array(list(expected["distribution"].values()))
        group = f"{way}: probabilities, batch {batch}"
        differences.check(group, np.array(list(row.values())), probabilities, PROBABILITY_LIMIT)
        label = max(row, key=row.__getitem__)
        assert label == expected["label"], request
        assert abs(row[label] - expected["score"]) <= PROBABILITY_LIMIT
    return {row["label"] for row in reference}


def _item(request: Request, directory: Path) -> dict[str, str]:
    file = directory / f"{hash(request.image):x}"
    file.write_bytes(request.image)
    item = {"image": str(file), "text": request.hypothesis}
    return item if request.premise is None else {**item, "text2": request.premise}
