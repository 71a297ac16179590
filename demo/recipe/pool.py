"""Painted scenes kept in memory, and the plain progress lines of the recipe."""

import multiprocessing
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from demo.recipe.scenes import paint, sample_scene
from ofa_triton.preprocessing.image import resize_image

Item = TypeVar("Item")

PROCESSES = 2
_CHUNK = 32
_SECONDS_BETWEEN_LINES = 15.0


def pixels_of(seed: int, size: int, *, crowded: bool = False) -> NDArray[np.uint8]:
    """The scene of a seed as the model sees it: UINT8 [size, size, 3]."""
    return resize_image(paint(sample_scene(seed, crowded=crowded)), size)


def paint_pool(seeds: Iterable[int], size: int, *, crowded: bool = False) -> NDArray[np.uint8]:
    """Pictures of many seeds, in their order, painted in two processes: UINT8 [scenes, size, size, 3]."""
    seeds = list(seeds)
    pool = np.empty((len(seeds), size, size, 3), np.uint8)
    with multiprocessing.get_context("fork").Pool(PROCESSES) as workers:
        pictures = workers.imap(partial(pixels_of, size=size, crowded=crowded), seeds, _CHUNK)
        for index, picture in enumerate(progress(pictures, len(seeds), "painting scenes")):
            pool[index] = picture
    return pool


def progress(items: Iterable[Item], total: int, title: str) -> Iterator[Item]:
    """Pass `items` on, and print a line with the share done and the time left every few seconds."""
    start = last = time.monotonic()
    for index, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - last > _SECONDS_BETWEEN_LINES or index == total:
            left = (now - start) / index * (total - index)
            print(f"{title}: {index}/{total}, {now - start:.0f} s, {left:.0f} s left", file=sys.stderr, flush=True)
            last = now
