import pytest

from ofa_triton.errors import RequestError
from ofa_triton.preprocessing.text import pre_caption, pre_question, require_text, text_from_bytes


@pytest.mark.parametrize(
    ("given", "cleaned"),
    [
        ("Two BIRDS.", "two birds."),
        (",.!?*#:;~hello", "hello"),
        ("  ,.Hello", ",.hello"),  # a leading blank protects leading punctuation, as in the reference
        ("well-known/odd", "well known odd"),
        ("a <person> runs", "a person runs"),
        ("a \t\n b", "a b"),
        ("a\tb", "a\tb"),
        ("end\n\n", "end"),
        ("one two three four", "one two three"),
    ],
)
def test_pre_caption(given: str, cleaned: str) -> None:
    assert pre_caption(given, 3) == cleaned


def test_pre_question_keeps_the_person_tag() -> None:
    assert pre_question("Who is <person>?", 10) == "who is <person>?"


def test_an_endless_text_is_refused_unread() -> None:
    with pytest.raises(RequestError, match="HYPOTHESIS: 65537 bytes; at most 65536"):
        text_from_bytes("HYPOTHESIS", b"a" * 65537)


def test_text_from_bytes_names_field_and_byte() -> None:
    with pytest.raises(RequestError, match=r"PREMISE: byte 2 \(0xff\) is not UTF-8"):
        text_from_bytes("PREMISE", b"ab\xff")


@pytest.mark.parametrize(("given", "found"), [("", "is empty"), (" \n", "is empty"), ("?!", "holds nothing but")])
def test_require_text_refuses_nothing(given: str, found: str) -> None:
    with pytest.raises(RequestError, match=f"HYPOTHESIS: the text {found}"):
        require_text("HYPOTHESIS", given, pre_caption(given, 9))
