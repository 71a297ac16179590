"""The demo's checkpoint is right about the demo's pictures, in process and through the real server alike."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ofa_triton.asking import Question, ask_all
from ofa_triton.results import Entailment
from ofa_triton.server import TritonServer
from tests.conftest import DEMO

OFA = Path(sys.executable).with_name("ofa-triton")
PAIRS = [json.loads(line) for line in (DEMO / "pairs.jsonl").read_text().splitlines()]
QUESTIONS = [Question(DEMO / pair["image"], pair["hypothesis"], pair.get("premise")) for pair in PAIRS]


@pytest.fixture(scope="module")
def demo_server(demo_built: Path) -> Iterator[TritonServer]:
    with TritonServer(demo_built / "repository") as running:
        yield running


def answers(demo_built: Path, url: str, checkpoint: Path | None) -> list[Entailment]:
    found = ask_all(QUESTIONS, url=url, checkpoint=checkpoint, out=demo_built, timeout_s=60)
    return [answer for _, answer in found if isinstance(answer, Entailment)]


def test_the_pairs_cover_labels_premises_and_photographs() -> None:
    assert len(PAIRS) >= 12
    assert {pair["label"] for pair in PAIRS} == {"entailment", "contradiction", "neutral"}
    assert any("premise" in pair for pair in PAIRS)
    assert len({pair["image"] for pair in PAIRS if pair["image"].startswith("photos/")}) == 2


def test_every_answer_is_right_and_the_same_both_ways(demo_built: Path, demo_server: TritonServer) -> None:
    through_server = answers(demo_built, demo_server.grpc_url, None)
    in_process = answers(demo_built, "", DEMO / "checkpoint")
    assert [answer.label for answer in through_server] == [pair["label"] for pair in PAIRS]
    assert [answer.label for answer in in_process] == [pair["label"] for pair in PAIRS]
    for one, other in zip(through_server, in_process, strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-5)


def test_ask_prints_the_same_label_both_ways(demo_built: Path, demo_server: TritonServer) -> None:
    image, statement = DEMO / PAIRS[0]["image"], PAIRS[0]["hypothesis"]
    labels = []
    for where in (
        ["--url", demo_server.grpc_url],
        ["--checkpoint", str(DEMO / "checkpoint"), "--out", str(demo_built)],
    ):
        command = [str(OFA), "ask", str(image), "--hypothesis", statement, "--json", *where]
        labels.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["label"])
    assert labels == [PAIRS[0]["label"]] * 2
