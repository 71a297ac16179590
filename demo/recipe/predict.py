"""Answers of a stored checkpoint, through the project's own model: scores of labels and answers, and greedy writing.

Legend: B batch, P patches, D width, A answers.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from demo.recipe.examples import answer_ids, caption_source, padded, question_source, statement_source
from demo.recipe.joint import states_of
from demo.recipe.statements import ANSWERS, LABELS, Statement
from demo.recipe.tower import image_embeddings
from ofa_triton.ofa.config import config_from_json
from ofa_triton.ofa.model import encoder_mask
from ofa_triton.ofa.weights import model_from_tensors, tensors_from_file
from ofa_triton.preprocessing.tokenizer import tokenizer_from_directory

MOST_TOKENS = 20
_BATCH = 64


class Predictor:
    """A checkpoint directory, ready to answer."""

    def __init__(self, checkpoint: Path) -> None:
        config_file, weights = checkpoint / "config.json", checkpoint / "pytorch_model.bin"
        config = config_from_json(json.loads(config_file.read_bytes()), config_file)
        self.model = model_from_tensors(config, tensors_from_file(weights), weights)
        self.tokenizer = tokenizer_from_directory(checkpoint)

    def look(self, pixels: NDArray[np.uint8]) -> Tensor:
        """Image embeddings FP32 [B, P, D] of pictures UINT8 [B, size, size, 3]."""
        return image_embeddings(self.model.encoder, pixels).float()

    def label_probabilities(self, embeds: Tensor, statements: Sequence[Statement]) -> Tensor:
        """Probabilities [B, 3] of entailment, contradiction and neutral for one statement per picture."""
        sources = [statement_source(self.tokenizer, statement) for statement in statements]
        return self._answer_probabilities(embeds, sources, [ANSWERS[label] for label in LABELS])

    def closed_answers(self, embeds: Tensor, questions: Sequence[str], answers: Sequence[str]) -> list[str]:
        """The best of `answers`, which are of one token each, to one question per picture."""
        sources = [question_source(self.tokenizer, question) for question in questions]
        best = self._answer_probabilities(embeds, sources, answers).argmax(1)
        return [answers[index] for index in best.tolist()]

    def written_answers(self, embeds: Tensor, questions: Sequence[str]) -> list[str]:
        """An answer to one question per picture, written from the beginning of sentence over the whole vocabulary."""
        return self._written(embeds, [question_source(self.tokenizer, question) for question in questions])

    def captions(self, embeds: Tensor) -> list[str]:
        """A caption of each picture, written greedily."""
        return self._written(embeds, [caption_source(self.tokenizer)] * len(embeds))

    @torch.inference_mode()
    def _answer_probabilities(self, embeds: Tensor, sources: list[list[int]], answers: Sequence[str]) -> Tensor:
        ids = [answer_ids(self.tokenizer, answer) for answer in answers]
        if any(len(tokens) != 1 for tokens in ids):
            raise ValueError(f"answers of one token each are needed, not {list(answers)}")
        rows = self.model.encoder.embed_tokens(torch.tensor(ids)[:, 0])
        parts = []
        for start in range(0, len(sources), _BATCH):
            some = sources[start : start + _BATCH]
            source = padded(some, self.tokenizer.pad)
            decoder = padded([tokens[:-1] for tokens in some], self.tokenizer.pad)
            _, hidden = states_of(self.model, embeds[start : start + _BATCH], source, decoder)
            last = torch.tensor([len(tokens) - 2 for tokens in some])
            parts.append((hidden[torch.arange(len(some)), last] @ rows.T).softmax(-1))
        return torch.cat(parts)

    @torch.inference_mode()
    def _written(self, embeds: Tensor, sources: list[list[int]]) -> list[str]:
        encoder, decoder, texts = self.model.encoder, self.model.decoder, []
        side = round(embeds.shape[1] ** 0.5)
        for start in range(0, len(sources), _BATCH):
            source = padded(sources[start : start + _BATCH], self.tokenizer.pad)
            states = encoder.encode(embeds[start : start + _BATCH], source, (side, side))
            mask = encoder_mask(source, embeds.shape[1], self.tokenizer.pad)
            positions = encoder.positions((side, side), source.shape[1])
            written = torch.full((len(source), 1), self.tokenizer.bos)
            while written.shape[1] <= MOST_TOKENS and not (written == self.tokenizer.eos).any(1).all():
                hidden = decoder.decode(written, states, positions, mask)[:, -1]
                best = (hidden @ encoder.embed_tokens.weight.T).argmax(-1, keepdim=True)
                written = torch.cat([written, best], 1)
            texts += [self._text(row) for row in written[:, 1:].tolist()]
        return texts

    def _text(self, ids: list[int]) -> str:
        end = ids.index(self.tokenizer.eos) if self.tokenizer.eos in ids else len(ids)
        return self.tokenizer.decode(ids[:end]).strip()
