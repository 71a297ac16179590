"""Train the demo checkpoint: `python -m demo.recipe.train --out DIR`. It takes less than an hour on two CPU cores."""

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from demo.recipe.checkpoint import CONFIG, IMAGE_SIZE, save_checkpoint
from demo.recipe.joint import initialise, train_joint
from demo.recipe.pool import paint_pool
from demo.recipe.scenes import TOWER_SEEDS, TRAINING_SEEDS, sample_scene
from demo.recipe.tower import image_embeddings, train_tower
from ofa_triton.ofa.model import OFAModel
from ofa_triton.preprocessing.tokenizer import tokenizer_from_directory

STORED = Path(__file__).parents[1] / "checkpoint"
SEED = 7
THREADS = 2
CROWDED_SCENES = 4000
ORDINARY_SCENES = 1000
"""Pictures that the tower learns from: those with many shapes teach more each."""
TOWER_EPOCHS = 2
POOL_SCENES = 12_000
JOINT_STEPS = 2200


def train(out: Path, vocabulary: Path) -> None:
    """Paint, train the tower, train the rest, and write the checkpoint `out`."""
    start = time.monotonic()
    torch.set_num_threads(THREADS)
    torch.manual_seed(SEED)
    model = OFAModel(CONFIG)
    initialise(model)
    crowded = TOWER_SEEDS[:CROWDED_SCENES]
    ordinary = TOWER_SEEDS[CROWDED_SCENES : CROWDED_SCENES + ORDINARY_SCENES]
    pixels = np.concatenate([paint_pool(crowded, IMAGE_SIZE, crowded=True), paint_pool(ordinary, IMAGE_SIZE)])
    scenes = [*(sample_scene(seed, crowded=True) for seed in crowded), *map(sample_scene, ordinary)]
    train_tower(model.encoder, pixels, scenes, TOWER_EPOCHS)
    print(f"tower trained after {time.monotonic() - start:.0f} s", flush=True)
    seeds = TRAINING_SEEDS[:POOL_SCENES]
    embeddings = image_embeddings(model.encoder, paint_pool(seeds, IMAGE_SIZE))
    scenes = [sample_scene(seed) for seed in seeds]
    tokenizer = tokenizer_from_directory(vocabulary)
    train_joint(model, tokenizer, embeddings, scenes, JOINT_STEPS, SEED)
    save_checkpoint(model, vocabulary, out)
    print(f"{out} written after {time.monotonic() - start:.0f} s")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory of the checkpoint, written when complete")
    parser.add_argument("--vocabulary", type=Path, default=STORED, help="where vocab.json and merges.txt lie")
    arguments = parser.parse_args()
    train(arguments.out, arguments.vocabulary)


if __name__ == "__main__":
    main()
