"""What ``ask`` does: rows of pictures and texts in, answers in the same order out, a bad row failing alone."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ofa_triton.client import Client
from ofa_triton.errors import OfaTritonError, RequestError
from ofa_triton.results import Entailment

if TYPE_CHECKING:
    from ofa_triton.pipeline import Pipeline

IN_FLIGHT = 8


@dataclass(frozen=True)
class Question:
    """One row."""

    image: Path
    hypothesis: str
    premise: str | None = None


Answer = Entailment | OfaTritonError


def questions_from_arguments(paths: list[Path], hypothesis: str | None, premise: str | None) -> list[Question]:
    """Pictures with the statement of the command line, and the rows of JSONL files.

    Raises:
        RequestError: a statement is missing, or a line cannot be read; names file and line.
    """
    questions: list[Question] = []
    for path in paths:
        if path.suffix == ".jsonl":
            questions += _from_jsonl(path, hypothesis, premise)
        elif hypothesis is None:
            raise RequestError("--hypothesis is missing: the statement to judge the picture by.")
        else:
            questions.append(Question(path, hypothesis, premise))
    return questions


def ask_all(
    questions: list[Question], *, url: str, checkpoint: Path | None, out: Path, timeout_s: float
) -> Iterator[tuple[Question, Answer]]:
    """Answer in order: in this process when a checkpoint is named, else by the server with several in flight."""
    if checkpoint is not None:
        try:
            from ofa_triton.pipeline import Pipeline, export_of_checkpoint
        except ImportError as error:
            raise RequestError(f"--checkpoint needs {error.name}. Run: pip install 'ofa-triton[serve]'") from error
        pipeline = Pipeline(export_of_checkpoint(checkpoint, out))
        for question in questions:
            yield question, _answer(pipeline, question)
        return
    with Client(url, timeout_s) as client, ThreadPoolExecutor(IN_FLIGHT) as pool:
        yield from zip(questions, pool.map(lambda question: _answer(client, question), questions), strict=True)


def _answer(answerer: "Client | Pipeline", question: Question) -> Answer:
    try:
        image = question.image.read_bytes()
    except OSError as error:
        return RequestError(f"{question.image}: cannot be read ({error.strerror}).")
    premises = None if question.premise is None else [question.premise]
    try:
        return answerer.entailment([image], [question.hypothesis], premises)[0]
    except OfaTritonError as error:
        return error


def _from_jsonl(path: Path, hypothesis: str | None, premise: str | None) -> Iterator[Question]:
    try:
        lines = path.read_text().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{path}: cannot be read ({error}).") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            image, statement = row["image"], row.get("hypothesis", hypothesis)
            known = row.get("premise", premise)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RequestError(
                f'{path}, line {number}: {error!r}; a row like {{"image": ..., "hypothesis": ...}} is needed.'
            ) from error
        if not isinstance(image, str) or not isinstance(statement, str) or not isinstance(known, str | None):
            raise RequestError(
                f"{path}, line {number}: image, hypothesis and premise must be texts, premise may be absent."
            )
        yield Question(path.parent / image, statement, known)
