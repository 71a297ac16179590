"""Text cleaning, letter for letter as OFA was trained on (ModelScope, preprocessors/ofa/base.py)."""

import re

from ofa_triton.errors import RequestError

MAX_TEXT_BYTES = 1 << 16
"""A text longer than this is refused unread: only its first words would count, and one endless word costs seconds."""

_LEADING = ",.!?*#:;~"
_BLANKS = re.compile(r"\s{2,}")


def pre_caption(text: str, max_words: int) -> str:
    """Clean a statement or caption and keep its first `max_words` words."""
    return _clean(
        text.lower().lstrip(_LEADING).replace("-", " ").replace("/", " ").replace("<person>", "person"), max_words
    )


def pre_question(text: str, max_words: int) -> str:
    """Clean a question and keep its first `max_words` words."""
    return _clean(text.lower().lstrip(_LEADING).replace("-", " ").replace("/", " "), max_words)


def _clean(text: str, max_words: int) -> str:
    text = _BLANKS.sub(" ", text).rstrip("\n").strip(" ")
    return " ".join(text.split(" ")[:max_words])


def text_from_bytes(field: str, value: bytes) -> str:
    """Decode one element of a BYTES tensor.

    Raises:
        RequestError: not UTF-8, or longer than ``MAX_TEXT_BYTES``.
    """
    if len(value) > MAX_TEXT_BYTES:
        raise RequestError(f"{field}: {len(value)} bytes; at most {MAX_TEXT_BYTES} are accepted. Send a shorter text.")
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{field}: byte {error.start} (0x{value[error.start]:02x}) is not UTF-8. Send the text UTF-8 encoded."
        ) from error


def require_text(field: str, given: str, cleaned: str) -> str:
    """Return `cleaned`.

    Raises:
        RequestError: nothing is left to read after cleaning.
    """
    if cleaned.strip():
        return cleaned
    found = "is empty" if not given.strip() else f"holds nothing but punctuation and blanks ({given[:40]!r})"
    raise RequestError(f"{field}: the text {found}. Send at least one word.")
