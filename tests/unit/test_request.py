import shutil
from pathlib import Path

import numpy as np
import pytest

from ofa_triton.artefacts import PREPROCESS_DIRECTORY
from ofa_triton.errors import RequestError
from ofa_triton.preprocessing.request import SETTINGS_FILE, TEXT_MULTIPLE, Preprocessor, collate
from tests.pictures import encoded, noise

PNG = encoded(noise())


@pytest.fixture(scope="module")
def preprocessor(built: Path) -> Preprocessor:
    return Preprocessor(built / "onnx" / PREPROCESS_DIRECTORY)


def column(*values: bytes) -> np.ndarray:
    return np.array([[value] for value in values], dtype=object)


def test_rows_are_padded_to_the_next_multiple(preprocessor: Preprocessor) -> None:
    texts = [b"a bird", b"a bird sits on a fence by the road"]
    rows = preprocessor.entailment_batch({"IMAGE": column(PNG, PNG), "HYPOTHESIS": column(*texts)})
    pixel_values, input_ids = collate(rows, preprocessor.tokenizer.pad)
    assert (pixel_values.shape, pixel_values.dtype) == ((2, 64, 64, 3), np.uint8)
    assert input_ids.shape[1] % TEXT_MULTIPLE == 0
    assert input_ids.dtype == np.int32
    for row, ids in zip(rows, input_ids, strict=True):
        assert ids[: len(row.input_ids)].tolist() == row.input_ids
        assert (ids[len(row.input_ids) :] == preprocessor.tokenizer.pad).all()


def test_premise_changes_the_prompt(preprocessor: Preprocessor) -> None:
    alone = preprocessor.entailment(PNG, b"a bird").input_ids
    both = preprocessor.entailment(PNG, b"a bird", b"a dog").input_ids
    assert preprocessor.tokenizer.decode(alone) == ' does the image describe " a bird "?'
    assert preprocessor.tokenizer.decode(both) == ' can image and text1 " a dog " imply text2 " a bird "?'


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"IMAGE": column(b"x")}, "HYPOTHESIS: missing"),
        ({"HYPOTHESIS": column(b"x")}, "IMAGE: missing"),
        ({"IMAGE": column(PNG, b""), "HYPOTHESIS": column(b"a", b"b")}, "^row 1 of 2: IMAGE: 0 bytes"),
        ({"IMAGE": column(PNG), "HYPOTHESIS": column(b"")}, "^HYPOTHESIS: the text is empty"),
        ({"IMAGE": column(PNG), "HYPOTHESIS": column(b"a"), "PREMISE": column(b" ")}, "^PREMISE: the text is empty"),
        ({"IMAGE": column(PNG), "HYPOTHESIS": column(b"a\xc3(")}, "^HYPOTHESIS: byte 1"),
    ],
)
def test_bad_requests_name_the_field(preprocessor: Preprocessor, fields: dict, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        preprocessor.entailment_batch(fields)


def test_image_whose_last_bytes_are_zero_is_whole(preprocessor: Preprocessor) -> None:
    data = encoded(noise(8, 8), "BMP") + b"\x00" * 8
    assert preprocessor.entailment(data, b"a bird").pixel_values.shape == (64, 64, 3)


def test_long_text_is_cut_to_the_checkpoint_s_length(preprocessor: Preprocessor) -> None:
    ids = preprocessor.entailment(PNG, b"bird " * 5000, b"dog " * 5000).input_ids
    assert len(ids) == preprocessor.settings.max_tokens + 2


def test_text_longer_than_the_position_table_is_refused(
    built: Path, preprocessor: Preprocessor, tmp_path: Path
) -> None:
    export = Path(shutil.copytree(built / "onnx" / PREPROCESS_DIRECTORY, tmp_path / "preprocess"))
    settings = preprocessor.settings.model_copy(update={"max_tokens": 2000, "max_words": 2000, "max_positions": 1024})
    (export / SETTINGS_FILE).write_text(settings.model_dump_json())
    long_tables = Preprocessor(export)
    assert len(long_tables.entailment(PNG, b"bird " * 1010).input_ids) <= 1024
    with pytest.raises(RequestError, match=r"HYPOTHESIS: the text makes 1109 tokens.*position table holds 1024"):
        long_tables.entailment(PNG, b"bird " * 1100)
