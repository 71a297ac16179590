"""Pixels to the last bit and token ids, from the bytes and texts a caller sends."""

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from ofa_triton.errors import CheckpointError, RequestError
from ofa_triton.preprocessing.prompts import Prompt
from ofa_triton.preprocessing.request import Preprocessor

from . import product
from .checkpoints import Checkpoints
from .client import Oracle
from .pictures import encode, pictures, scene
from .texts import BLANKS, INVISIBLE, SPECIAL, awkward_texts

LONG = 512
"""Tokens and words that no text here exceeds: what happens beyond is a test of its own."""

PICTURES = pictures()
TEXTS = awkward_texts()
FORMS = pytest.mark.parametrize("premise", [None, "A dog-like <person>  runs, 'fast'."], ids=["one text", "two texts"])


@pytest.fixture(scope="module")
def roomy(checkpoints: Checkpoints) -> Path:
    return checkpoints(settings={"max_src_length": LONG})


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("picture") / "small.png"
    path.write_bytes(PICTURES["2 x 3"])
    return path


@pytest.mark.parametrize("options", [{}, {"patch_image_size": 97, "imagenet_default_mean_and_std": True}], ids=str)
def test_pixels(options: dict, oracle: Oracle, checkpoints: Checkpoints, tmp_path: Path) -> None:
    path = checkpoints(settings=options)
    items = []
    for index, data in enumerate(PICTURES.values()):
        file = tmp_path / str(index)
        file.write_bytes(data)
        items.append({"image": str(file), "text": "two birds"})
    results, arrays = oracle("preprocess", path=str(path), items=items)
    preprocessor = product.preprocessor_from_checkpoint(path)
    differ = []
    for index, (name, data) in enumerate(PICTURES.items()):
        assert "error" not in results[index], f"{name}: the reference cannot read it: {results[index]}"
        # Normalising is one-to-one in fp32, so equal results mean equal pixels.
        ours = product.normalise(path, preprocessor.pixels(data))
        if not np.array_equal(ours, arrays[f"pixels_{index}"]):
            differ.append(name)
    assert not differ


def test_pictures_are_told_apart(roomy: Path) -> None:
    """The comparison above could notice a picture left unturned: all eight orientations give other pixels."""
    preprocessor = product.preprocessor_from_checkpoint(roomy)
    turned = {preprocessor.pixels(PICTURES[f"jpeg, orientation {n}"]).tobytes() for n in range(1, 9)}
    assert len(turned) == 8


@FORMS
def test_awkward_texts(premise: str | None, oracle: Oracle, roomy: Path, picture: Path) -> None:
    _same_ids(oracle, roomy, picture, [(text, premise) for text in TEXTS])


def test_awkward_premises(oracle: Oracle, roomy: Path, picture: Path) -> None:
    _same_ids(oracle, roomy, picture, [("two birds", text) for text in TEXTS])


fragments = st.one_of(
    st.sampled_from([*SPECIAL, *BLANKS, *INVISIBLE, "<", ">", "<bin_", "'s", "-", "/", "<person>", "{}", '"', "  "]),
    st.sampled_from(["two", "birds", "Don't", "3", "..."]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
)
generated = st.lists(st.lists(fragments, min_size=1, max_size=12).map("".join), min_size=30, max_size=60)


@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example, HealthCheck.data_too_large],
)
@given(texts=generated)
def test_generated_texts(texts: list[str], oracle: Oracle, roomy: Path, picture: Path) -> None:
    pairs = [(text, None if index % 2 else texts[index - 1]) for index, text in enumerate(texts)]
    _same_ids(oracle, roomy, picture, pairs)


@pytest.mark.parametrize(
    ("prompt", "premise"),
    [
        (' is it true that " {} "?', None),
        ("{}", None),
        (' given "{}" and {{braces}}, is "{}" so?', "A dog runs."),
    ],
)
def test_own_prompts(prompt: str, premise: str | None, oracle: Oracle, checkpoints: Checkpoints, picture: Path) -> None:
    path = checkpoints(settings={"prompt": prompt, "max_src_length": LONG})
    _same_ids(oracle, path, picture, [(text, premise) for text in TEXTS[:20]])


@pytest.mark.parametrize("prompt", ['{1} " {0} "', "{0}", "{name}", "{!r}", "{:>30}", "{"])
def test_prompts_that_are_more_than_gaps_are_refused(prompt: str) -> None:
    """The reference formats them; none is known to exist, and filling them in order would be wrong."""
    with pytest.raises(CheckpointError, match="prompt"):
        Prompt(prompt)


class TestWhereWeDifferOnPurpose:
    """docs/differences.md tells why; here both sides are pinned."""

    @pytest.mark.parametrize(("limit", "words"), [(24, 40), (24, 22), (30, 200)])
    def test_one_long_text_keeps_the_closing_quote(
        self, limit: int, words: int, oracle: Oracle, checkpoints: Checkpoints, picture: Path
    ) -> None:
        path = checkpoints(settings={"max_src_length": limit})
        text = " ".join(["bird"] * words)
        source = _reference(oracle, path, picture, [(text, None)])[0]["source"]
        ours = _ours(product.preprocessor_from_checkpoint(path), text, None)
        opening, closing = _ids(path, ' does the image describe "'), _ids(path, ' "?')
        bird = _ids(path, " bird")
        assert source == [0, *opening, *bird * (limit - len(opening)), 2]
        assert ours == [0, *opening, *bird * (limit - len(opening) - len(closing)), *closing, 2]

    def test_two_long_texts_lose_the_longer_ones_end(
        self, oracle: Oracle, checkpoints: Checkpoints, picture: Path
    ) -> None:
        path = checkpoints(settings={"max_src_length": 32})
        premise, hypothesis = " ".join(["dog"] * 30), "two birds"
        source = _reference(oracle, path, picture, [(hypothesis, premise)])[0]["source"]
        ours = _ours(product.preprocessor_from_checkpoint(path), hypothesis, premise)
        opening, middle = _ids(path, ' can image and text1 "'), _ids(path, ' " imply text2 "')
        closing = [*middle, *_ids(path, ' two birds "?')]
        dog = _ids(path, " dog")
        assert source == [0, *opening, *dog * (32 - len(opening)), 2], "the reference drops the hypothesis"
        assert ours == [0, *opening, *dog * (32 - len(opening) - len(closing)), *closing, 2]

    @pytest.mark.parametrize("text", ["", "   ", "...", "?!*#", "\t", "-/-", "\u2028", "\n\n"], ids=ascii)
    def test_text_with_nothing_to_read_is_refused(self, text: str, oracle: Oracle, roomy: Path, picture: Path) -> None:
        results = _reference(oracle, roomy, picture, [(text, None), ("two birds", text)])
        assert all("source" in result for result in results), "the reference answers"
        preprocessor = product.preprocessor_from_checkpoint(roomy)
        with pytest.raises(RequestError, match="HYPOTHESIS"):
            _ours(preprocessor, text, None)
        with pytest.raises(RequestError, match="PREMISE"):
            _ours(preprocessor, "two birds", text)

    def test_own_prompt_serves_the_form_it_has_gaps_for(
        self, oracle: Oracle, checkpoints: Checkpoints, picture: Path
    ) -> None:
        one = checkpoints(settings={"prompt": ' is it true that " {} "?', "max_src_length": LONG})
        (result,) = _reference(oracle, one, picture, [("two birds", "a dog")])
        truth = _ids(one, ' is it true that " a dog "?')
        assert result["source"] == [0, *truth, 2], "the reference asks about the premise and drops the hypothesis"
        ours = _ours(product.preprocessor_from_checkpoint(one), "two birds", "a dog")
        assert ours == [0, *_ids(one, ' can image and text1 " a dog " imply text2 " two birds "?'), 2]

        two = checkpoints(settings={"prompt": ' given " {} ", is " {} " so?', "max_src_length": LONG})
        (result,) = _reference(oracle, two, picture, [("two birds", None)])
        assert result["error"].startswith("IndexError")
        ours = _ours(product.preprocessor_from_checkpoint(two), "two birds", None)
        assert ours == [0, *_ids(two, ' does the image describe " two birds "?'), 2]

    def test_picture_cut_short_is_refused(self, oracle: Oracle, roomy: Path, tmp_path: Path) -> None:
        data = PICTURES["large"][: len(PICTURES["large"]) // 2]
        file = tmp_path / "picture"
        file.write_bytes(data)
        (result,) = _reference(oracle, roomy, file, [("two birds", None)])
        assert "source" in result, "the reference answers from what is left, with grey below"
        with pytest.raises(RequestError, match="damaged or cut short"):
            product.preprocessor_from_checkpoint(roomy).pixels(data)

    @pytest.mark.parametrize("kind", ["TGA", "PCX", "SGI", "DDS", "EPS"])
    def test_rare_formats_are_refused(self, kind: str, oracle: Oracle, roomy: Path, tmp_path: Path) -> None:
        data = encode(scene(20, 30), kind)
        file = tmp_path / "picture"
        file.write_bytes(data)
        (result,) = _reference(oracle, roomy, file, [("two birds", None)])
        assert "source" in result or kind == "EPS", "the reference reads it; EPS only where Ghostscript is installed"
        with pytest.raises(RequestError, match="is not a picture"):
            product.preprocessor_from_checkpoint(roomy).pixels(data)

    def test_too_many_pixels_are_refused(self, oracle: Oracle, roomy: Path, tmp_path: Path) -> None:
        file = tmp_path / "bomb.png"
        file.write_bytes(encode(Image.new("1", (10_000, 9_000)), "PNG"))
        (result,) = _reference(oracle, roomy, file, [("two birds", None)])
        assert "source" in result
        with pytest.raises(RequestError, match="10000 x 9000"):
            product.preprocessor_from_checkpoint(roomy).pixels(file.read_bytes())


@pytest.mark.parametrize("data", [PICTURES["png"][:40], b"hello, this is text.", b""], ids=["head", "text", "empty"])
def test_what_the_reference_cannot_read_is_refused(data: bytes, oracle: Oracle, roomy: Path, tmp_path: Path) -> None:
    file = tmp_path / "picture"
    file.write_bytes(data)
    (result,) = _reference(oracle, roomy, file, [("two birds", None)])
    assert "error" in result
    with pytest.raises(RequestError, match="IMAGE"):
        product.preprocessor_from_checkpoint(roomy).pixels(data)


def test_picture_bytes_are_what_pillow_wrote() -> None:
    """Guards the corpus: a kind that Pillow silently writes as another would be tested twice."""
    modes = {name: Image.open(io.BytesIO(data)).mode for name, data in PICTURES.items()}
    assert {"RGB", "RGBA", "P", "L", "LA", "CMYK", "1", "I;16", "LAB", "F"} <= set(modes.values())


def _same_ids(oracle: Oracle, path: Path, picture: Path, pairs: list[tuple[str, str | None]]) -> None:
    """Ids equal the reference's wherever there is something to read."""
    preprocessor = product.preprocessor_from_checkpoint(path)
    compared = 0
    for (text, premise), result in zip(pairs, _reference(oracle, path, picture, pairs), strict=True):
        try:
            ours = _ours(preprocessor, text, premise)
        except RequestError:
            readable = [_cleaned_is_blank(value) for value in (text, premise) if value is not None]
            assert any(readable), f"{text!r}, {premise!r}: refused, though there is something to read"
            continue
        compared += 1
        assert ours == result["source"], f"hypothesis {text!r}, premise {premise!r}"
        assert ours[:-1] == result["decoder_prompt"]
    assert compared > len(pairs) // 2


def _cleaned_is_blank(text: str) -> bool:
    return not text.lstrip(",.!?*#:;~").replace("-", " ").replace("/", " ").strip()


def _reference(oracle: Oracle, path: Path, picture: Path, pairs: list[tuple[str, str | None]]) -> list[dict]:
    items = [
        {"image": str(picture), "text": text} | ({} if premise is None else {"text2": premise})
        for text, premise in pairs
    ]
    return oracle("preprocess", path=str(path), items=items).result


def _ours(preprocessor: Preprocessor, text: str, premise: str | None) -> list[int]:
    given = None if premise is None else premise.encode()
    return preprocessor.entailment(PICTURES["2 x 3"], text.encode(), given).input_ids


def _ids(path: Path, text: str) -> list[int]:
    return product.preprocessor_from_checkpoint(path).tokenizer.encode(text).ids
