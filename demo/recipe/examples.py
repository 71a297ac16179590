"""From statements, questions and captions to token ids, through the very functions that serving uses.

Legend: B batch, T source tokens, N decoder tokens.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from demo.recipe.nouns import NOTHING, NUMBERS, Phrase
from demo.recipe.questions import ANSWER_LIST, Question
from demo.recipe.scenes import COLOURS, SHAPES, SIZES
from demo.recipe.statements import ANSWERS, Statement
from ofa_triton.preprocessing.prompts import ENTAILMENT, ENTAILMENT_WITH_PREMISE, Prompt, prompt_ids
from ofa_triton.preprocessing.text import pre_caption, pre_question
from ofa_triton.preprocessing.tokenizer import OFATokenizer

MAX_SOURCE = 80
"""``max_src_length`` of the checkpoint: words of a text, then tokens of the prompt."""

IGNORED = -100
"""Target of a decoder position that is not scored."""

_MENTION = re.compile(rf"(?:({'|'.join(SIZES)}) )?(?:({'|'.join(COLOURS)}) )?({'|'.join((*SHAPES, 'shape'))})s?\b")
_HYPOTHESIS = Prompt(ENTAILMENT)
_PREMISE_AND_HYPOTHESIS = Prompt(ENTAILMENT_WITH_PREMISE)
_QUESTION = Prompt(" {}")
_CAPTION = Prompt(" what does the image describe?")


class Example(NamedTuple):
    """Token ids of the source, of the decoder's input, and what each decoder position shall say next.

    `mentions` are the source's noun phrases, each with the position of its last token.
    """

    source: list[int]
    decoder: list[int]
    target: list[int]
    mentions: tuple[tuple[int, Phrase], ...] = ()


def statement_source(tokenizer: OFATokenizer, statement: Statement) -> list[int]:
    """Source tokens of a visual-entailment request, with or without a premise."""
    hypothesis = pre_caption(statement.hypothesis, MAX_SOURCE)
    if statement.premise is None:
        return prompt_ids(tokenizer, _HYPOTHESIS, (hypothesis,), MAX_SOURCE)
    premise = pre_caption(statement.premise, MAX_SOURCE)
    return prompt_ids(tokenizer, _PREMISE_AND_HYPOTHESIS, (premise, hypothesis), MAX_SOURCE)


def question_source(tokenizer: OFATokenizer, question: str) -> list[int]:
    """Source tokens of a question."""
    return prompt_ids(tokenizer, _QUESTION, (pre_question(question, MAX_SOURCE),), MAX_SOURCE)


def caption_source(tokenizer: OFATokenizer) -> list[int]:
    """Source tokens of a captioning request."""
    return prompt_ids(tokenizer, _CAPTION, (), MAX_SOURCE)


def statement_example(tokenizer: OFATokenizer, statement: Statement) -> Example:
    """A statement whose answer follows the repeated source (``prompt_type`` prev_output)."""
    return _after(tokenizer, statement_source(tokenizer, statement), ANSWERS[statement.label], repeat=True)


def question_example(tokenizer: OFATokenizer, question: Question, *, repeat: bool) -> Example:
    """A question whose answer follows the repeated source, or the beginning of sentence alone."""
    return _after(tokenizer, question_source(tokenizer, question.text), question.answer, repeat=repeat)


def caption_example(tokenizer: OFATokenizer, text: str) -> Example:
    """A caption, written from the beginning of sentence."""
    return _after(tokenizer, caption_source(tokenizer), text, repeat=False)


def answer_ids(tokenizer: OFATokenizer, answer: str) -> list[int]:
    """Tokens of an answer as the decoder writes it: after a blank."""
    return tokenizer.encode(" " + answer).ids


def written_tokens(tokenizer: OFATokenizer) -> list[int]:
    """Every token that the decoder is ever asked to write."""
    words = {*NUMBERS, NOTHING, "a", "an", "and", *COLOURS, *SIZES, *SHAPES, *ANSWER_LIST, *ANSWERS.values()}
    words |= {shape + "s" for shape in SHAPES}
    return sorted({token for word in words for token in answer_ids(tokenizer, word)} | {tokenizer.eos})


def padded(rows: Sequence[list[int]], value: int) -> Tensor:
    """Rows of ids, filled up on the right: INT64 [B, longest]."""
    longest = max(map(len, rows))
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows])


def mentions(tokenizer: OFATokenizer, source: list[int]) -> tuple[tuple[int, Phrase], ...]:
    """Noun phrases of a source, each with the position of its last token."""
    sentence = tokenizer.decode(source)
    ends = tokenizer.encode(sentence).ends
    return tuple(
        (1 + next(index for index, end in enumerate(ends) if end >= match.end()), Phrase(*_said(match)))
        for match in _MENTION.finditer(sentence)
    )


def _said(match: re.Match[str]) -> tuple[str | None, str | None, str | None]:
    size, colour, shape = match.groups()
    return size, colour, None if shape == "shape" else shape


def collate(examples: Sequence[Example], tokenizer: OFATokenizer) -> tuple[Tensor, Tensor, Tensor]:
    """Source INT64 [B, T], decoder input INT64 [B, N] and targets INT64 [B, N]."""
    sources, decoders, targets, _ = zip(*examples, strict=True)
    return padded(sources, tokenizer.pad), padded(decoders, tokenizer.pad), padded(targets, IGNORED)


def _after(tokenizer: OFATokenizer, source: list[int], answer: str, *, repeat: bool) -> Example:
    start = source[:-1] if repeat else [tokenizer.bos]
    answered = answer_ids(tokenizer, answer)
    target = [IGNORED] * (len(start) - 1) + [*answered, tokenizer.eos]
    return Example(source, start + answered, target, mentions(tokenizer, source))
