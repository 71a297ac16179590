import json
import shutil
from pathlib import Path

import pytest

from ofa_triton.errors import CheckpointError
from ofa_triton.preprocessing.prompts import ENTAILMENT, Prompt, prompt_ids
from ofa_triton.preprocessing.tokenizer import OFATokenizer, tokenizer_from_directory
from tests.checkpoints import VOCABULARY


@pytest.fixture(scope="module")
def tokenizer() -> OFATokenizer:
    return tokenizer_from_directory(VOCABULARY)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        (" yes", [4420]),
        (" no", [117]),
        (" maybe", [2085]),
        (" what does the image describe?", [99, 473, 5, 2274, 6190, 116]),
        ("<bin_5> <bin_7>", [58462, 1437, 58464]),
        ("</s>", [2]),
    ],
)
def test_known_ids(tokenizer: OFATokenizer, text: str, ids: list[int]) -> None:
    assert tokenizer.encode(text).ids == ids


def test_size(tokenizer: OFATokenizer) -> None:
    assert tokenizer.size == 59457


def test_decode_undoes_encode(tokenizer: OFATokenizer) -> None:
    text = " naïve 🙂 中文 <bin_5> done"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"vocab\.json: missing"):
        tokenizer_from_directory(tmp_path)


def test_damaged_vocabulary_is_named(tmp_path: Path) -> None:
    shutil.copy2(VOCABULARY / "merges.txt", tmp_path)
    (tmp_path / "vocab.json").write_text('{"<s>": 0')
    with pytest.raises(CheckpointError, match="cannot be read"):
        tokenizer_from_directory(tmp_path)


def test_foreign_vocabulary_is_refused(tmp_path: Path) -> None:
    vocabulary = json.loads((VOCABULARY / "vocab.json").read_text())
    vocabulary["<s>"], vocabulary["</s>"] = vocabulary["</s>"], vocabulary["<s>"]
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    shutil.copy2(VOCABULARY / "merges.txt", tmp_path)
    with pytest.raises(CheckpointError, match="have the ids"):
        tokenizer_from_directory(tmp_path)


def test_prompt_ids(tokenizer: OFATokenizer) -> None:
    ids = prompt_ids(tokenizer, Prompt(ENTAILMENT), ["there are two birds."], 80)
    assert ids == [0, 473, 5, 2274, 6190, 22, 89, 32, 80, 7723, 4, 22, 116, 2]


@pytest.mark.parametrize("words", [1, 20, 30, 31, 32, 200])
def test_truncation_keeps_the_closing_quote(tokenizer: OFATokenizer, words: int) -> None:
    ids = prompt_ids(tokenizer, Prompt(ENTAILMENT), [" ".join(["bird"] * words)], 40)
    assert len(ids) <= 42
    assert ids[:6] == [0, 473, 5, 2274, 6190, 22]
    assert ids[-3:] == [22, 116, 2]
    assert len(set(ids[6:-3])) == 1


def test_truncation_shortens_the_longest_text(tokenizer: OFATokenizer) -> None:
    prompt = Prompt(' can image and text1 " {} " imply text2 " {} "?')
    ids = prompt_ids(tokenizer, prompt, [" ".join(["bird"] * 100), "two cats"], 40)
    sentence = tokenizer.decode(ids)
    assert len(ids) == 42
    assert sentence.endswith('imply text2 " two cats "?')
    assert sentence.startswith(' can image and text1 " bird bird')


def test_texts_may_hold_braces(tokenizer: OFATokenizer) -> None:
    sentence, spans = Prompt(' is it " {} "?').fill("a {} b")
    assert sentence == ' is it " a {} b "?'
    assert [sentence[span.start : span.stop] for span in spans] == ["a {} b"]


def test_broken_template_is_refused() -> None:
    with pytest.raises(CheckpointError, match="not a sentence"):
        Prompt("what {")
