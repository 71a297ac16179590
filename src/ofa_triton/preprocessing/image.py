"""From the bytes of a picture to the pixels the image tower reads."""

import base64
import binascii
import io
import re
import warnings

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from ofa_triton.errors import RequestError

FORMATS = ("AVIF", "BMP", "GIF", "ICO", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""What is decoded. Formats that call other programs or hold no pixels stay closed."""

MAX_PIXELS = 89_478_485
"""Pixels of a decoded picture, unless the configuration says otherwise: Pillow's own threshold for a bomb."""

_BASE64 = re.compile(rb"[A-Za-z0-9+/]+={0,2}")
_DATA_PREFIX = b"data:"
_QUOTED_BYTES = 16


def decode_image(data: bytes, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode a picture, upright and in RGB, as ModelScope's ``load_image`` does; an animation gives its first frame.

    Args:
        data: the file itself, or its base64 text with or without a ``data:`` prefix, blanks and padding.
        max_pixels: width times height above which nothing is decoded.

    Raises:
        RequestError: empty, not a picture, cut short, or larger than `max_pixels`.
    """
    if not data:
        raise RequestError(f"IMAGE: 0 bytes. Send the bytes of a picture ({_formats()}) or their base64 text.")
    try:
        image = _open(data)
        size = f"{image.width} x {image.height} pixels"
    except Image.DecompressionBombError as error:  # Pillow's own limit, twice MAX_PIXELS
        size, image = str(error), None
    if image is None or image.width * image.height > max_pixels:
        raise RequestError(
            f"IMAGE: {size}; at most {max_pixels} pixels are accepted. Send a smaller picture, or raise max_pixels "
            f"in the preprocess stage's config.pbtxt."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd metadata
            return ImageOps.exif_transpose(image).convert("RGB")
    except Exception as error:  # whatever a decoder raises on hostile bytes is the caller's error
        raise RequestError(
            f"IMAGE: the {image.format} file is damaged or cut short ({str(error) or type(error).__name__}). "
            f"Send the whole file."
        ) from error


def resize_image(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """Pixels UINT8 [size, size, 3] by Pillow's antialiased bicubic filter. As in training, the aspect is not kept."""
    return np.asarray(image.resize((size, size), Image.Resampling.BICUBIC))


def _open(data: bytes) -> Image.Image:
    try:
        return _identify(data)
    except UnidentifiedImageError:
        text = _base64_text(data)
    except Image.DecompressionBombError:
        raise
    except Exception as error:
        raise _damaged("bytes that begin as a picture and cannot be read as one", data, error) from error
    try:
        if text:
            return _identify(base64.b64decode(text + b"=" * (-len(text) % 4), validate=True))
    except (UnidentifiedImageError, binascii.Error):
        pass
    except Image.DecompressionBombError:
        raise
    except Exception as error:
        raise _damaged("bytes of base64 text that begin as a picture and cannot be read as one", data, error) from error
    kind = "is base64 text, but not of a picture" if text else "is not a picture, or is cut off in its first bytes"
    raise RequestError(
        f"IMAGE: what was sent {kind} ({len(data)} bytes, beginning {data[:_QUOTED_BYTES]!r}). "
        f"Send the bytes of a picture ({_formats()}) or their base64 text."
    )


def _damaged(what: str, data: bytes, error: Exception) -> RequestError:
    return RequestError(f"IMAGE: {len(data)} {what} ({str(error) or type(error).__name__}). Send the whole file.")


def _identify(data: bytes) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the limit on pixels is checked by the caller
        return Image.open(io.BytesIO(data), formats=FORMATS)


def _base64_text(data: bytes) -> bytes:
    """The base64 text in `data`, without prefix, blanks and padding; nothing if it is none. Linear in its length."""
    text = data.strip()
    if text.startswith(_DATA_PREFIX):
        text = text.partition(b",")[2]
    text = text.translate(bytes.maketrans(b"-_", b"+/"), b" \t\r\n\v\f")
    return text.rstrip(b"=") if _BASE64.fullmatch(text) else b""


def _formats() -> str:
    return ", ".join(FORMATS)
