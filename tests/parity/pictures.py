"""Pictures of every kind a caller may send, drawn when they are asked for."""

import io
from typing import Any

import numpy as np
from PIL import Image

ORIENTATION = 0x0112


def scene(width: int, height: int, channels: int = 3, seed: int = 0) -> Image.Image:
    """Smooth colours with noise on top and a bright corner, so that turning, mirroring and filtering all show."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / max(width, height)
    waves = [np.sin(6 * x * (c + 1) + seed) + np.cos(5 * y * (c + 2)) for c in range(channels)]
    pixels = 128 + 40 * np.stack(waves, -1) + rng.normal(0, 20, (height, width, channels))
    pixels[: height // 4, : width // 3] += 60
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8).squeeze())


def encode(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def pictures() -> dict[str, bytes]:
    """Encoded pictures by name."""
    rgb, rgba, grey = scene(90, 60), scene(70, 80, 4), scene(64, 50).convert("L")
    palette = rgb.quantize(32)
    frames = [scene(60, 44, seed=seed) for seed in range(3)]
    deep = Image.fromarray(np.arange(48 * 64, dtype=np.uint16).reshape(48, 64) * 20)
    found = {
        "jpeg": encode(rgb, "JPEG"),
        "jpeg, progressive": encode(rgb, "JPEG", progressive=True, quality=40),
        "jpeg, grey": encode(grey, "JPEG"),
        "jpeg, cmyk": encode(rgb.convert("CMYK"), "JPEG"),
        "png": encode(rgb, "PNG"),
        "png, rgba": encode(rgba, "PNG"),
        "png, palette": encode(palette, "PNG"),
        "png, palette with a transparent colour": encode(palette, "PNG", transparency=3),
        "png, palette with levels of transparency": encode(palette, "PNG", transparency=bytes(range(0, 256, 8))),
        "png, rgb with a transparent colour": encode(rgb, "PNG", transparency=rgb.getpixel((5, 5))),
        "png, grey with alpha": encode(scene(50, 40, 2), "PNG"),
        "png, grey": encode(grey, "PNG"),
        "png, 1 bit": encode(grey.convert("1"), "PNG"),
        "png, 16 bit": encode(deep, "PNG"),
        "gif, animated": encode(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        "gif, transparent": encode(palette, "GIF", transparency=0),
        "webp": encode(rgb, "WEBP"),
        "webp, rgba": encode(rgba, "WEBP", lossless=True),
        "webp, animated": encode(frames[0], "WEBP", save_all=True, append_images=frames[1:]),
        "png, animated": encode(frames[0], "PNG", save_all=True, append_images=frames[1:]),
        "bmp": encode(rgb, "BMP"),
        "ppm": encode(rgb, "PPM"),
        "ico": encode(rgba, "ICO", sizes=[(32, 32)]),
        "tiff": encode(rgb, "TIFF"),
        "tiff, lab": encode(rgb.convert("LAB"), "TIFF"),
        "tiff, float": encode(grey.convert("F"), "TIFF"),
        "tiff, several pages": encode(frames[0], "TIFF", save_all=True, append_images=frames[1:]),
        "mpo": encode(frames[0], "MPO", save_all=True, append_images=frames[1:]),
        "jpeg 2000": encode(rgb, "JPEG2000"),
        "avif": encode(rgb, "AVIF"),
        "1 x 1": encode(scene(1, 1), "PNG"),
        "2 x 3": encode(scene(2, 3), "PNG"),
        "one row": encode(scene(300, 1), "PNG"),
        "one column": encode(scene(1, 300), "PNG"),
        "wide": encode(scene(640, 70), "JPEG"),
        "tall": encode(scene(70, 640), "JPEG"),
        "already the model's size": encode(scene(64, 64), "PNG"),
        "large": encode(scene(2000, 1400), "JPEG"),
    }
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[ORIENTATION] = orientation
        found[f"jpeg, orientation {orientation}"] = encode(rgb, "JPEG", exif=exif)
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    found |= {
        "png, orientation 6": encode(rgba, "PNG", exif=exif),
        "webp, orientation 6": encode(rgb, "WEBP", exif=exif),
        "tiff, orientation 6": encode(rgb, "TIFF", exif=exif),
        "jpeg, orientation 6 and grey": encode(grey, "JPEG", exif=exif),
    }
    return found
