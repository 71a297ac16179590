"""Training the encoder and decoder on all tasks at once, over pictures that the tower has already looked at.

Legend: B batch, P patches, T source tokens, N decoder tokens, D width, V vocabulary, R scored decoder positions.
"""

import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from demo.recipe.examples import (
    IGNORED,
    Example,
    caption_example,
    collate,
    question_example,
    statement_example,
    written_tokens,
)
from demo.recipe.grounding import Mentions, shown_cells, states_of_cells
from demo.recipe.nouns import caption
from demo.recipe.pool import progress
from demo.recipe.questions import question
from demo.recipe.scenes import Scene
from demo.recipe.statements import LABELS, statement, statement_after_premise
from ofa_triton.ofa.model import OFAModel, encoder_mask
from ofa_triton.preprocessing.tokenizer import OFATokenizer

LEARNING_RATE = 1.5e-3
LAST_LEARNING_RATE = 2e-5
WEIGHT_DECAY = 0.01
WARM_UP = 0.06
BATCHES = {"statement": 32, "premise": 16, "question": 26, "caption": 14}
"""Examples of each task in a step; twice as many while only few patches are shown."""
FEW_PATCHES = 12

FEW_PATCHES_SHARE = 0.68
"""Share of the steps, from the first on, that show few patches."""

_NEGATIVES = 2000
_LOOKED_AT = 1500
_TOKEN_DEVIATION = 0.05
_TRAINED_PREFIXES = ("encoder.embed_images.", "encoder.image_proj.", "encoder.patch_layernorm_embedding.")

Maker = Callable[[Scene, random.Random], Example | None]


def initialise(model: OFAModel) -> None:
    """Small token embeddings, and image positions that tell rows and columns from the start."""
    encoder, decoder = model.encoder, model.decoder
    with torch.no_grad():
        encoder.embed_tokens.weight.normal_(0, _TOKEN_DEVIATION)
        encoder.type_embedding.weight.zero_()
        width, bucket = model.config.d_model, model.config.image_bucket_size
        cell = torch.arange(bucket**2)
        image = torch.cat([_waves(cell // bucket, width // 2), _waves(cell % bucket, width // 2)], 1)
        encoder.embed_image_positions.weight[1:] = image
        encoder.embed_image_positions.weight[0].zero_()
        for side in (encoder, decoder):
            side.embed_positions.weight.copy_(_waves(torch.arange(len(side.embed_positions.weight)), width))


def makers(tokenizer: OFATokenizer) -> dict[str, Maker]:
    """For each task, how an example is drawn for a scene; None where the scene has nothing to ask."""

    def stated(scene: Scene, rng: random.Random) -> Example | None:
        made = statement(scene, rng, rng.choice(LABELS))
        return statement_example(tokenizer, made) if made else None

    def premised(scene: Scene, rng: random.Random) -> Example | None:
        made = statement_after_premise(scene, rng, rng.choice(LABELS))
        return statement_example(tokenizer, made) if made else None

    def asked(scene: Scene, rng: random.Random) -> Example | None:
        made = question(scene, rng)
        return question_example(tokenizer, made, repeat=rng.random() < 0.5) if made else None

    def captioned(scene: Scene, rng: random.Random) -> Example | None:
        return caption_example(tokenizer, caption(scene))

    return {"statement": stated, "premise": premised, "question": asked, "caption": captioned}


def train_joint(
    model: OFAModel, tokenizer: OFATokenizer, embeddings: Tensor, scenes: Sequence[Scene], steps: int, seed: int
) -> None:
    """Train all but the image tower in place, on image embeddings FP16 [scenes, P, D]."""
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    making = makers(tokenizer)
    words = _Words(model, _seen_tokens(making, scenes, tokenizer))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(_TRAINED_PREFIXES))
    heads = Mentions(model.config.d_model)
    trained = [parameter for parameter in (*model.parameters(), *heads.parameters()) if parameter.requires_grad]
    matrices = [p for p in trained if p.dim() == 2 and p is not words.small.weight]
    others = [p for p in trained if all(p is not matrix for matrix in matrices)]
    optimiser = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}],
        LEARNING_RATE,
        betas=(0.9, 0.98),
        fused=True,
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser,
        LEARNING_RATE,
        steps,
        pct_start=WARM_UP,
        cycle_momentum=False,
        final_div_factor=LEARNING_RATE / 25 / LAST_LEARNING_RATE,
    )
    running = dict.fromkeys((*BATCHES, "mention"), 0.0)
    loss_of = _SampledLoss(words, written_tokens(tokenizer), generator)
    grid = round(embeddings.shape[1] ** 0.5)
    for step in progress(range(steps), steps, "training encoder and decoder"):
        total, few = 0.0, step < steps * FEW_PATCHES_SHARE
        for task, count in BATCHES.items():
            rows, examples = _draw(making[task], scenes, count * (2 if few else 1), rng)
            seen = [scenes[row] for row in rows]
            cells = shown_cells(seen, grid, FEW_PATCHES if few else grid**2, rng)
            source, decoder, target = collate(examples, tokenizer)
            embeds = embeddings[torch.tensor(rows)[:, None], cells].float()
            source, decoder = words.ids(source), words.ids(decoder)
            if few:
                states, hidden = states_of_cells(model, embeds, cells, grid, source, decoder)
            else:
                states, hidden = states_of(model, embeds, source, decoder)
            loss, right = loss_of(hidden, target)
            helped, counted = heads.loss(states, cells, grid, seen, examples)
            (loss + helped).backward()
            total += loss.item()
            _follow(running, task, right, step)
            if task == "statement":
                _follow(running, "mention", counted, step)
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
        if step % 100 == 0 or step == steps - 1:
            shares = ", ".join(f"{task} {share:.3f}" for task, share in running.items())
            print(f"step {step}: loss {total:.3f}; tokens right: {shares}", flush=True)
    words.put_back()
    model.eval()


class _Words:
    """A small table that stands in for the token embeddings while they are trained.

    It holds the tokens that the examples use, some two hundred of 59 thousand; all others keep their first values.
    """

    def __init__(self, model: OFAModel, seen: list[int]) -> None:
        self.model, self.whole, self.seen = model, model.encoder.embed_tokens, torch.tensor(seen)
        self.small_id = torch.full((model.config.vocab_size,), IGNORED)
        self.small_id[self.seen] = torch.arange(len(seen))
        self.unseen = (self.small_id == IGNORED).nonzero()[:, 0]
        self.small = nn.Embedding.from_pretrained(self.whole.weight.detach()[self.seen], freeze=False)
        self._use(self.small)

    def ids(self, tokens: Tensor) -> Tensor:
        """Rows of the small table. Bos, pad and eos are seen and lowest, so they keep their ids."""
        rows = self.small_id[tokens]
        if (rows == IGNORED).any():
            raise ValueError(f"tokens {tokens[rows == IGNORED].tolist()} are in no example that was looked at first")
        return rows

    def put_back(self) -> None:
        """Copy the trained rows into the whole table and give it back to the model."""
        with torch.no_grad():
            self.whole.weight[self.seen] = self.small.weight
        self._use(self.whole)

    def _use(self, table: nn.Embedding) -> None:
        self.model.encoder.embed_tokens = self.model.decoder.embed_tokens = table


class _SampledLoss:
    """Cross-entropy of the scored positions over the tokens in use and a sample of all the others.

    The sample's logits are raised by log(others / sample), so the sum over it estimates the sum over all others.
    """

    def __init__(self, words: _Words, written: list[int], generator: torch.Generator) -> None:
        self.words, self.generator = words, generator
        words.ids(torch.tensor(written))
        self.raised = torch.zeros(len(words.seen) + _NEGATIVES)
        self.raised[len(words.seen) :] = torch.tensor(len(words.unseen) / _NEGATIVES).log()

    def __call__(self, states: Tensor, target: Tensor) -> tuple[Tensor, float]:
        """Loss of decoder states [B, N, D], and the share of scored tokens that come out best."""
        scored = target != IGNORED
        words = self.words
        hidden = states[scored]
        sample = words.unseen[torch.randint(len(words.unseen), (_NEGATIVES,), generator=self.generator)]
        rows = torch.cat([words.small.weight, words.whole.weight.detach()[sample]])
        logits = hidden @ rows.T + self.raised
        wanted = words.ids(target[scored])
        return cross_entropy(logits, wanted), (logits.argmax(-1) == wanted).float().mean().item()


def states_of(model: OFAModel, embeds: Tensor, source: Tensor, decoder: Tensor) -> tuple[Tensor, Tensor]:
    """Encoder states [B, P + T, D] and decoder states [B, N, D].

    For embeddings [B, P, D] of a square grid, source [B, T] and decoder ids [B, N].
    """
    side = round(embeds.shape[1] ** 0.5)
    states = model.encoder.encode(embeds, source, (side, side))
    mask = encoder_mask(source, embeds.shape[1], model.config.pad_token_id)
    positions = model.encoder.positions((side, side), source.shape[1])
    return states, model.decoder.decode(decoder, states, positions, mask)


def _follow(running: dict[str, float], name: str, value: float, step: int) -> None:
    """Move a running mean towards a new value."""
    running[name] += (value - running[name]) * max(0.02, 1 / (step + 1))


def _seen_tokens(making: dict[str, Maker], scenes: Sequence[Scene], tokenizer: OFATokenizer) -> list[int]:
    rng, seen = random.Random(0), {tokenizer.bos, tokenizer.pad, tokenizer.eos, *written_tokens(tokenizer)}
    for make in making.values():
        for example in _draw(make, scenes, _LOOKED_AT, rng)[1]:
            seen.update(example.source)
    return sorted(seen)


def _draw(make: Maker, scenes: Sequence[Scene], count: int, rng: random.Random) -> tuple[list[int], list[Example]]:
    rows: list[int] = []
    examples: list[Example] = []
    while len(rows) < count:
        row = rng.randrange(len(scenes))
        example = make(scenes[row], rng)
        if example:
            rows.append(row)
            examples.append(example)
    return rows, examples


def _waves(positions: Tensor, width: int) -> Tensor:
    """Sines and cosines of positions [N] at geometric wavelengths of 6 to some 1000 steps: [N, width]."""
    wavelengths = torch.logspace(torch.tensor(6.0).log10(), 3, width // 2)
    angles = positions[:, None] * (2 * torch.pi / wavelengths)
    return torch.cat([angles.sin(), angles.cos()], 1)
