"""OFA's English tokenizer: the byte-level BPE of BART, with its image-code and coordinate tokens."""

import re
from pathlib import Path
from typing import NamedTuple

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from ofa_triton.errors import CheckpointError

IMAGE_CODES = 8192
COORDINATE_BINS = 1000
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
TOKENIZER_FILES = ("vocab.json", "merges.txt")

# The mask swallows the blanks before it. The library's blanks lack four of Python's, U+001C to U+001F, by which the
# reference strips: as plain ones they go too, and no character changes its place.
_BLANKS_BEFORE_MASK = re.compile(r"\s+(?=<mask>)")


class Encoded(NamedTuple):
    """Token ids, and for each the end of the characters it covers."""

    ids: list[int]
    ends: list[int]


class OFATokenizer:
    """Text to token ids and back, equal to ModelScope's ``OFATokenizer``."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.bos, self.pad, self.eos, self.unk = range(len(SPECIAL_TOKENS))

    @property
    def size(self) -> int:
        """Number of tokens, added ones included."""
        return int(self._tokenizer.get_vocab_size())

    def encode(self, text: str) -> Encoded:
        """Tokens of `text` alone, without beginning or end of sentence."""
        text = _BLANKS_BEFORE_MASK.sub(lambda blanks: " " * len(blanks[0]), text)
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return Encoded(encoding.ids, [end for _, end in encoding.offsets])

    def decode(self, ids: list[int]) -> str:
        """Text of `ids`, special tokens left out; coordinate tokens stay."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))


def tokenizer_from_directory(path: Path) -> OFATokenizer:
    """Read ``vocab.json`` and ``merges.txt`` of a checkpoint.

    Raises:
        CheckpointError: a file is missing, damaged, or its special tokens are not OFA's.
    """
    vocabulary, merges = (path / name for name in TOKENIZER_FILES)
    for file in (vocabulary, merges):
        if not file.is_file():
            raise CheckpointError(f"{file}: missing. An English OFA checkpoint holds {' and '.join(TOKENIZER_FILES)}.")
    try:
        model = models.BPE.from_file(str(vocabulary), str(merges))
    except Exception as error:  # the library raises a bare Exception
        raise CheckpointError(f"{path}: {' and '.join(TOKENIZER_FILES)} cannot be read: {error}.") from error
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    found = [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS]
    if found != list(range(len(SPECIAL_TOKENS))):
        raise CheckpointError(
            f"{vocabulary}: {SPECIAL_TOKENS} have the ids {found}; OFA's are 0, 1, 2, 3. "
            f"Give the vocabulary that came with the checkpoint."
        )
    mask = AddedToken("<mask>", lstrip=True, special=True)
    tokenizer.add_special_tokens([*(AddedToken(token, special=True) for token in SPECIAL_TOKENS), mask])
    codes = [f"<code_{index}>" for index in range(IMAGE_CODES)]
    bins = [f"<bin_{index}>" for index in range(COORDINATE_BINS)]
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in codes + bins])
    return OFATokenizer(tokenizer)
