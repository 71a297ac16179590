"""Pictures for tests, encoded."""

import io
from typing import Any

import numpy as np
from PIL import Image


def noise(width: int = 90, height: int = 60, seed: int = 0, mode: str = "RGB") -> Image.Image:
    """A picture of random pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(pixels).convert(mode)


def encoded(image: Image.Image, file_format: str = "PNG", **options: Any) -> bytes:
    """The bytes of a file that holds `image`."""
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()
