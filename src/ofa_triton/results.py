"""Answers, the same whether they come from a server or from this process."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Entailment:
    """What a picture says of a statement.

    Attributes:
        label: entailment, contradiction or neutral; or the checkpoint's own answer, where its answers are others.
        confidence: probability of `label`.
        scores: probability of every label.
        answer: the checkpoint's answer as it is (yes, no, maybe).
        latency_ms: time from the request to the answer, shared by the rows of one request.
    """

    label: str
    confidence: float
    scores: dict[str, float]
    answer: str
    latency_ms: float

    def as_dict(self) -> dict[str, Any]:
        """The object that ``ask --json`` prints."""
        return {"task": "visual_entailment", **asdict(self)}


def entailment_from_scores(
    scores: Sequence[float], labels: Sequence[str], answers: Sequence[str], latency_ms: float
) -> Entailment:
    """Name the probabilities of one row, which stand in the order of the checkpoint's answers."""
    probabilities = [float(score) for score in scores]
    best = max(range(len(probabilities)), key=probabilities.__getitem__)
    return Entailment(
        labels[best], probabilities[best], dict(zip(labels, probabilities, strict=True)), answers[best], latency_ms
    )


def text_bytes(texts: Sequence[str]) -> list[bytes]:
    """UTF-8. Bytes that a command line could not decode go through as they were, for the server to refuse."""
    return [text.encode("utf-8", "surrogatepass" if _lone(text) else "surrogateescape") for text in texts]


def _lone(text: str) -> bool:
    """Whether a text holds half of a surrogate pair that no command line made: it cannot be encoded, only refused."""
    return any("\ud800" <= character < "\udc80" or "\udcff" < character <= "\udfff" for character in text)
