"""The sentence OFA reads for each task, and its token ids within the length the checkpoint was trained for."""

from collections.abc import Sequence
from string import Formatter

from ofa_triton.errors import CheckpointError, RequestError
from ofa_triton.preprocessing.tokenizer import OFATokenizer

ENTAILMENT = ' does the image describe " {} "?'
ENTAILMENT_WITH_PREMISE = ' can image and text1 " {} " imply text2 " {} "?'


class Prompt:
    """A sentence with a gap (``{}``) for each text of the request."""

    def __init__(self, template: str) -> None:
        try:
            parts = list(Formatter().parse(template))
        except ValueError as error:
            raise CheckpointError(f"prompt {template!r} is not a sentence with {{}} for its texts: {error}.") from error
        if any(name or spec or conversion for _, name, spec, conversion in parts):
            raise CheckpointError(
                f"prompt {template!r} has a numbered, named or formatted gap; only plain {{}} gaps are filled. "
                f"Write {{}} for each text, in order."
            )
        self.template = template
        self.gaps = sum(name is not None for _, name, _, _ in parts)
        self._parts = [(literal, name is not None) for literal, name, _, _ in parts]

    def fill(self, *texts: str) -> tuple[str, list[range]]:
        """The sentence, and where in it each text stands."""
        sentence, spans, rest = "", [], iter(texts)
        for literal, gap in self._parts:
            sentence += literal
            if gap:
                text = next(rest)
                spans.append(range(len(sentence), len(sentence) + len(text)))
                sentence += text
        return sentence, spans


def prompt_ids(tokenizer: OFATokenizer, prompt: Prompt, texts: Sequence[str], max_tokens: int) -> list[int]:
    """Token ids of the filled prompt between beginning and end of sentence: at most ``max_tokens + 2``.

    A sentence that is too long loses tokens at the end of its longest text, so the prompt's own words, the closing
    quote among them, always stay. ModelScope cuts the end of the whole sentence instead (docs/differences.md).

    Raises:
        RequestError: the prompt alone is longer than `max_tokens`.
    """
    sentence, spans = prompt.fill(*texts)
    ids, ends = tokenizer.encode(sentence)
    owners = [next((i for i, span in enumerate(spans) if span.start < end <= span.stop), None) for end in ends]
    lengths = [owners.count(index) for index in range(len(spans))]
    excess = len(ids) - max_tokens
    if excess > sum(lengths):
        raise RequestError(
            f"the prompt {prompt.template!r} alone takes {len(ids) - sum(lengths)} tokens and the checkpoint reads "
            f"{max_tokens}. Raise model.max_src_length in configuration.json."
        )
    kept = list(lengths)
    for _ in range(excess):
        kept[kept.index(max(kept))] -= 1
    result, seen = [tokenizer.bos], [0] * len(spans)
    for token, owner in zip(ids, owners, strict=True):
        if owner is not None:
            seen[owner] += 1
            if seen[owner] > kept[owner]:
                continue
        result.append(token)
    return [*result, tokenizer.eos]
