"""What ``ask`` does: rows of pictures and texts in, answers in the same order out, a bad row failing alone."""

import json
from collections.abc import Iterator, Sequence
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


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be asked, and why."""

    image: str
    error: RequestError


Row = Question | BadRow


def questions_from_arguments(paths: list[Path], hypothesis: str | None, premise: str | None) -> list[Row]:
    """Pictures with the statement of the command line, and the rows of JSONL files; a malformed row is kept as such.

    Raises:
        RequestError: a statement is missing, a file cannot be read, or there is no row at all.
    """
    questions: list[Row] = []
    for path in paths:
        if path.suffix == ".jsonl":
            questions += _from_jsonl(path, hypothesis, premise)
        elif hypothesis is None:
            raise RequestError("--hypothesis is missing: the statement to judge the picture by.")
        else:
            questions.append(Question(path, hypothesis, premise))
    if not questions:
        raise RequestError(f"{', '.join(map(str, paths))}: no rows.")
    return questions


def ask_all(
    questions: Sequence[Row], *, url: str, checkpoint: Path | None, out: Path, timeout_s: float
) -> Iterator[tuple[Row, Answer]]:
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


def _answer(answerer: "Client | Pipeline", question: Row) -> Answer:
    if isinstance(question, BadRow):
        return question.error
    try:
        image = question.image.read_bytes()
    except (OSError, ValueError) as error:
        return RequestError(f"IMAGE: the file cannot be read ({getattr(error, 'strerror', None) or error}).")
    premises = None if question.premise is None else [question.premise]
    try:
        return answerer.entailment([image], [question.hypothesis], premises)[0]
    except OfaTritonError as error:
        return error


def _from_jsonl(path: Path, hypothesis: str | None, premise: str | None) -> Iterator[Row]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{path}: cannot be read ({error}).") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield _from_line(path.parent, line, hypothesis, premise)
            except RequestError as error:
                yield BadRow(f"{path}, line {number}", error)


def _from_line(folder: Path, line: str, hypothesis: str | None, premise: str | None) -> Question:
    try:
        row = json.loads(line)
        image, statement = row["image"], row.get("hypothesis", hypothesis)
        known = row.get("premise", premise)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RequestError(f'{error!r}; a row like {{"image": ..., "hypothesis": ...}} is needed.') from error
    if not isinstance(image, str) or not isinstance(statement, str) or not isinstance(known, str | None):
        raise RequestError("image, hypothesis and premise must be texts; premise may be absent.")
    return Question(folder / image, statement, known)
