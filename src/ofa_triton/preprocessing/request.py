"""One request of a task, from raw fields to the arrays that the stages take."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from ofa_triton.errors import RequestError
from ofa_triton.preprocessing.image import MAX_PIXELS, decode_image, resize_image
from ofa_triton.preprocessing.prompts import Prompt, prompt_ids
from ofa_triton.preprocessing.text import pre_caption, require_text, text_from_bytes
from ofa_triton.preprocessing.tokenizer import tokenizer_from_directory

TEXT_MULTIPLE = 16
"""Texts are padded to a multiple of this many tokens, so that requests of different length share a batch."""

SETTINGS_FILE = "preprocess.json"


class PreprocessSettings(BaseModel):
    """What the preprocess stage must know of a checkpoint; written by ``export`` beside the tokenizer's files.

    Attributes:
        image_size: side of the resized picture, in pixels.
        max_words: words of a text that are read.
        max_tokens: tokens of the filled prompt that are read, beginning and end of sentence not counted.
        max_positions: positions the model has for text.
        entailment_prompt: the sentence for a statement alone.
        entailment_premise_prompt: the sentence for premise and statement.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    image_size: int
    max_words: int
    max_tokens: int
    max_positions: int
    entailment_prompt: str
    entailment_premise_prompt: str


class Prepared(NamedTuple):
    """Pixels UINT8 [size, size, 3] and token ids of one request, not padded yet."""

    pixel_values: NDArray[np.uint8]
    input_ids: list[int]


class Preprocessor:
    """Prepares requests for one checkpoint. Holds no state between them."""

    def __init__(self, directory: Path, max_pixels: int = MAX_PIXELS) -> None:
        self.settings = PreprocessSettings.model_validate_json((directory / SETTINGS_FILE).read_bytes())
        self.tokenizer = tokenizer_from_directory(directory)
        self.max_pixels = max_pixels
        self._hypothesis = Prompt(self.settings.entailment_prompt)
        self._premise_and_hypothesis = Prompt(self.settings.entailment_premise_prompt)

    def entailment(self, image: bytes, hypothesis: bytes, premise: bytes | None = None) -> Prepared:
        """Prepare one picture and statement, and what is already known about the picture (`premise`).

        Raises:
            RequestError: names the field that is wrong.
        """
        prompt, texts = self._hypothesis, [self._statement("HYPOTHESIS", hypothesis)]
        if premise is not None:
            prompt, texts = self._premise_and_hypothesis, [self._statement("PREMISE", premise), *texts]
        ids = prompt_ids(self.tokenizer, prompt, texts, self.settings.max_tokens)
        if len(ids) > self.settings.max_positions:
            raise RequestError(
                f"HYPOTHESIS: the text makes {len(ids)} tokens with its prompt; the checkpoint's position table holds "
                f"{self.settings.max_positions}. Send a shorter text."
            )
        return Prepared(self.pixels(image), ids)

    def entailment_batch(self, fields: Mapping[str, NDArray[np.object_]]) -> list[Prepared]:
        """Prepare the rows of one request: BYTES [B, 1] each of ``IMAGE``, ``HYPOTHESIS`` and, optionally, ``PREMISE``.

        Raises:
            RequestError: names the field, and the row where there are several.
        """
        images, hypotheses, premises = (fields.get(name) for name in ("IMAGE", "HYPOTHESIS", "PREMISE"))
        if images is None or hypotheses is None:
            raise RequestError(
                f"{'IMAGE' if images is None else 'HYPOTHESIS'}: missing. Both are needed in every request."
            )
        rows = []
        for row in range(len(images)):
            premise = None if premises is None else premises[row, 0]
            try:
                rows.append(self.entailment(images[row, 0], hypotheses[row, 0], premise))
            except RequestError as error:
                raise error if len(images) == 1 else RequestError(f"row {row} of {len(images)}: {error}") from error
        return rows

    def pixels(self, image: bytes) -> NDArray[np.uint8]:
        """Pixels UINT8 [size, size, 3] of an encoded picture."""
        return resize_image(decode_image(image, self.max_pixels), self.settings.image_size)

    def _statement(self, field: str, value: bytes) -> str:
        given = text_from_bytes(field, value)
        return require_text(field, given, pre_caption(given, self.settings.max_words))


def collate(rows: list[Prepared], pad_token_id: int) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Stack requests: pixel_values UINT8 [B, size, size, 3], and input_ids INT32 [B, T], right-padded."""
    length = max(len(row.input_ids) for row in rows)
    length = -(-length // TEXT_MULTIPLE) * TEXT_MULTIPLE
    ids = np.full((len(rows), length), pad_token_id, np.int32)
    for index, row in enumerate(rows):
        ids[index, : len(row.input_ids)] = row.input_ids
    return np.stack([row.pixel_values for row in rows]), ids
