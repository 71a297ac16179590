"""Two helps for learning to look, used in training only and thrown away after it.

*Few patches*: at first only the patches with a shape and a few others are shown, so that what matters is not one part
in sixty-four. *Mentions*: at the last token of every noun phrase, small heads read off which patches hold a shape
that the phrase is true of, and how many there are.

Legend: B batch, P patches shown, T source tokens, L = P + T, N decoder tokens, D width.
"""

import random
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, pad

from demo.recipe.examples import Example
from demo.recipe.nouns import NUMBERS
from demo.recipe.scenes import Scene
from ofa_triton.ofa.layers import query_scale, split_heads
from ofa_triton.ofa.model import OFAModel, encoder_mask
from ofa_triton.ofa.positions import image_buckets

_POINTING_WEIGHT = 4.0


def cells_of(scene: Scene, grid: int) -> list[int]:
    """Index of the grid cell that each shape's centre lies in."""
    return [
        int(thing.centre[1] / scene.height * grid) * grid + int(thing.centre[0] / scene.width * grid)
        for thing in scene.objects
    ]


def shown_cells(scenes: Sequence[Scene], grid: int, count: int, rng: random.Random) -> Tensor:
    """The cells with a shape and random others, `count` for each scene: INT64 [B, count]."""
    rows = []
    for scene in scenes:
        filled = list(dict.fromkeys(cells_of(scene, grid)))
        others = rng.sample(range(grid**2), count)
        rows.append(sorted((filled + [cell for cell in others if cell not in filled])[:count]))
    return torch.tensor(rows)


def states_of_cells(
    model: OFAModel, embeds: Tensor, cells: Tensor, grid: int, source: Tensor, decoder: Tensor
) -> tuple[Tensor, Tensor]:
    """Encoder states [B, L, D] and decoder states [B, N, D] when only the patches `cells` [B, P] exist.

    Equal to the model's own with all cells in their order.
    """
    encoder, writer, config = model.encoder, model.decoder, model.config
    length, shown = source.shape[1], cells.shape[1]
    text = torch.arange(grid**2, grid**2 + length).expand(len(cells), -1)
    index = torch.cat([cells, text], 1)
    positions = encoder.positions((grid, grid), length)
    mask = encoder_mask(source, shown, config.pad_token_id)
    scale = query_scale(config.d_model, config.encoder_attention_heads, config.attn_scale_factor)
    queries = split_heads((encoder.pos_q_linear(positions) * scale)[index], config.encoder_attention_heads)
    keys = split_heads(encoder.pos_k_linear(positions)[index], config.encoder_attention_heads)
    bias = queries @ keys.transpose(-1, -2) + mask
    pairs = _buckets(grid, config.image_bucket_size)[cells[:, :, None], cells[:, None, :]]
    x = torch.cat([embeds, encoder.embed_text(source)], 1)
    for number, layer in enumerate(encoder.layers):
        image = encoder.image_rel_pos_table_list[number](pairs).permute(0, 3, 1, 2)
        words = encoder.relative_bias(number, (1, 1), length)[:, 1:, 1:]
        x = layer(x, bias + pad(image, (0, length, 0, length)) + pad(words, (shown, 0, shown, 0)))
    states = encoder.layer_norm(x)

    written = decoder.shape[1]
    queries = split_heads(writer.cross_pos_q_linear(writer.positions(written)) * scale, config.decoder_attention_heads)
    keys = split_heads(writer.cross_pos_k_linear(positions)[index], config.decoder_attention_heads)
    cross = queries @ keys.transpose(-1, -2) + mask
    own = writer.self_bias(written)
    y = writer.embed(decoder)
    for number, layer in enumerate(writer.layers):
        y = layer(y, states, own + writer.relative_bias(number, written), cross)
    return states, writer.layer_norm(y)


class Mentions(nn.Module):
    """Heads that read off what each noun phrase of the source is true of."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.phrase, self.patch = nn.Linear(width, width), nn.Linear(width, width)
        self.offset = nn.Parameter(torch.tensor(-2.0))
        self.count = nn.Linear(width, len(NUMBERS))

    def loss(
        self, states: Tensor, cells: Tensor, grid: int, scenes: Sequence[Scene], examples: Sequence[Example]
    ) -> tuple[Tensor, float]:
        """Loss over all mentions in encoder states [B, L, D], and the share of counts that are right."""
        shown = cells.shape[1]
        rows, tokens, targets, counts = [], [], [], []
        for row, (scene, example) in enumerate(zip(scenes, examples, strict=True)):
            where = cells_of(scene, grid)
            for token, phrase in example.mentions:
                hit = {cell for cell, thing in zip(where, scene.objects, strict=True) if phrase.matches(thing)}
                rows.append(row)
                tokens.append(shown + token)
                targets.append([float(cell in hit) for cell in cells[row].tolist()])
                counts.append(phrase.count(scene))
        if not rows:
            return states.new_zeros(()), 1.0
        said = states[rows, tokens]
        patches = self.patch(states[:, :shown])[rows]
        scores = (patches @ self.phrase(said)[:, :, None])[..., 0] / said.shape[1] ** 0.5 + self.offset
        pointing = binary_cross_entropy_with_logits(scores, torch.tensor(targets))
        numbers, wanted = self.count(said), torch.tensor(counts)
        right = (numbers.argmax(-1) == wanted).float().mean().item()
        return _POINTING_WEIGHT * pointing + cross_entropy(numbers, wanted), right


@lru_cache
def _buckets(grid: int, bucket_size: int) -> Tensor:
    return image_buckets(grid, grid, bucket_size)
