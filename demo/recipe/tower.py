"""Training the image tower: it learns, cell by cell of its grid, which shape stands there.

The head that reads the answers off is thrown away; the tower and its projection stay.

Legend: B batch, G side of the grid, P = G * G cells, D width of the model, K outputs of the head.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from demo.recipe.pool import progress
from demo.recipe.scenes import COLOURS, SHAPES, SIZES, Scene
from ofa_triton.ofa.model import Encoder

BATCH = 16
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 0.01
WARM_UP = 0.1

_CLASSES = (tuple(SHAPES), tuple(COLOURS), tuple(SIZES))
_OUTPUTS = (1, *(len(names) for names in _CLASSES), 2)
_PRESENCE_WEIGHT = 5.0


def normalised(pixels: NDArray[np.uint8]) -> Tensor:
    """Pixels UINT8 [B, size, size, 3] to FP32 [B, 3, size, size] between -1 and 1."""
    return (torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2).float() / 127.5 - 1).contiguous()


def cell_targets(scene: Scene, grid: int) -> NDArray[np.int64]:
    """INT64 [G, G, 4]: whether a shape has its centre in the cell, then its shape, colour and size by index."""
    targets = np.zeros((grid, grid, 4), np.int64)
    for thing in scene.objects:
        column, row = int(thing.centre[0] / scene.width * grid), int(thing.centre[1] / scene.height * grid)
        named = zip(_CLASSES, (thing.shape, thing.colour, thing.size), strict=True)
        targets[row, column] = (1, *(names.index(name) for names, name in named))
    return targets


def train_tower(encoder: Encoder, pixels: NDArray[np.uint8], scenes: Sequence[Scene], epochs: int) -> None:
    """Train `encoder`'s tower, projection and image norm in place on pictures UINT8 [scenes, size, size, 3]."""
    grid = encoder.config.grid_side(pixels.shape[1])
    targets = torch.from_numpy(np.stack([cell_targets(scene, grid) for scene in scenes]))
    head = nn.Linear(encoder.config.d_model, sum(_OUTPUTS))
    trained = nn.ModuleList([encoder.embed_images, encoder.image_proj, encoder.patch_layernorm_embedding, head])
    optimiser = torch.optim.AdamW(trained.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    steps = len(pixels) // BATCH * epochs
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, steps, pct_start=WARM_UP)
    order = np.concatenate([np.random.default_rng(epoch).permutation(len(pixels)) for epoch in range(epochs)])
    trained.train()
    for step in progress(range(steps), steps, "training the tower"):
        rows = order[step * BATCH : (step + 1) * BATCH]
        image, target = normalised(pixels[rows]), targets[torch.from_numpy(rows)]
        if step % 2:
            image, target = image.flip(3), target.flip(2)
        embeds, _ = encoder.embed_pixels(image)
        loss, report = _loss(head(embeds), target.flatten(1, 2))
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trained.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"tower step {step}: loss {loss.item():.3f}; {report}", flush=True)
    trained.eval()


def image_embeddings(encoder: Encoder, pixels: NDArray[np.uint8], batch: int = 16) -> Tensor:
    """What the encoder reads of each picture: FP16 [scenes, P, D]."""
    starts = range(0, len(pixels), batch)
    with torch.inference_mode():
        parts = [
            encoder.embed_pixels(normalised(pixels[start : start + batch]))[0].half()
            for start in progress(starts, len(starts), "looking at scenes, batches")
        ]
    return torch.cat(parts).clone()


def _loss(outputs: Tensor, targets: Tensor) -> tuple[Tensor, str]:
    """Loss of head outputs [B, P, K] against [B, P, 4], and how good they are in words."""
    presence, *attributes, position = outputs.split(_OUTPUTS, -1)
    present = targets[..., 0] == 1
    loss = _PRESENCE_WEIGHT * binary_cross_entropy_with_logits(presence[..., 0], present.float())
    right = []
    for index, scores in enumerate(attributes, 1):
        if present.any():
            loss = loss + cross_entropy(scores[present], targets[..., index][present])
            right.append((scores[present].argmax(-1) == targets[..., index][present]).float().mean().item())
    side = round(outputs.shape[1] ** 0.5)
    axis = torch.linspace(-1, 1, side)
    where = torch.stack([axis.repeat_interleave(side), axis.repeat(side)], -1)
    distance = mse_loss(position, where.expand_as(position))
    found = (presence[..., 0] > 0) == present
    report = (
        f"cells {found.float().mean():.4f}, pictures {found.all(1).float().mean():.2f}, "
        f"shape, colour, size {[round(value, 3) for value in right]}, position error {distance.item() ** 0.5:.3f}"
    )
    return loss + distance, report
