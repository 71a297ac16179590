import base64
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, features

from ofa_triton.errors import RequestError
from ofa_triton.preprocessing.image import FORMATS, decode_image, resize_image
from tests.pictures import encoded, noise

PNG = encoded(noise())


@pytest.mark.parametrize("file_format", FORMATS)
def test_every_accepted_format_is_decoded(file_format: str) -> None:
    if file_format == "AVIF" and not features.check("avif"):
        pytest.fail("this Pillow was built without AVIF, which the documentation promises")
    image = noise(48, 32)
    options = {"sizes": [(48, 32)]} if file_format == "ICO" else {}
    assert decode_image(encoded(image, file_format, **options)).size == (48, 32)


def test_multi_picture_jpeg_of_a_phone_gives_the_first() -> None:
    first, second = (Image.new("L", (40, 30), shade) for shade in (200, 20))
    data = encoded(first, "MPO", save_all=True, append_images=[second])
    assert decode_image(data).getpixel((20, 15)) == (200, 200, 200)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L", "LA", "1", "CMYK", "I;16"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    image = Image.fromarray(np.arange(600, dtype=np.uint16).reshape(20, 30)) if mode == "I;16" else noise(mode=mode)
    assert decode_image(encoded(image, "TIFF")).mode == "RGB"


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    width, height = decode_image(encoded(noise(90, 60), "JPEG", exif=exif)).size
    assert (width, height) == ((90, 60) if orientation < 5 else (60, 90))


@pytest.mark.parametrize("file_format", ["GIF", "WEBP", "PNG"])
def test_animation_gives_its_first_frame(file_format: str) -> None:
    frames = [Image.new("RGB", (20, 10), colour) for colour in ("red", "blue")]
    options = {"lossless": True} if file_format == "WEBP" else {}
    data = encoded(frames[0], file_format, save_all=True, append_images=frames[1:], **options)
    assert decode_image(data).getpixel((3, 3)) == (255, 0, 0)


TEXT = base64.b64encode(PNG)


@pytest.mark.parametrize(
    "data",
    [
        TEXT,
        TEXT.rstrip(b"="),
        b"data:image/png;base64," + TEXT,
        b"data:;base64," + TEXT.rstrip(b"="),
        base64.encodebytes(PNG),
        b"\n " + TEXT + b"\n",
        base64.urlsafe_b64encode(PNG),
        b"data:image/png;charset=utf-8;base64," + TEXT,
    ],
)
def test_base64_text_is_accepted(data: bytes) -> None:
    assert np.array_equal(np.asarray(decode_image(data)), np.asarray(decode_image(PNG)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "IMAGE: 0 bytes"),
        (b"hello world, this is no picture", "IMAGE: what was sent is not a picture"),
        (b"aGVsbG8gd29ybGQ=", "base64 text, but not of a picture"),
        (b"data:image/png;base64,", "is not a picture"),
        (b"\x00" * 100, "is not a picture"),
        (PNG[:40], "cut off in its first bytes"),
        (PNG[: len(PNG) // 2], "the PNG file is damaged or cut short"),
        (base64.b64encode(PNG[: len(PNG) // 2]), "the PNG file is damaged or cut short"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is not a picture"),
        (b"%PDF-1.4\n", "is not a picture"),
    ],
)
def test_bad_bytes_are_named(data: bytes, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        decode_image(data)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "data", [b"\n" * 300_000 + b"!", b"A" + b"\n" * 300_000 + b"!", b"data:" + b"," * 300_000, b" " * 300_000]
)
def test_time_is_linear_in_what_is_sent(data: bytes) -> None:
    with pytest.raises(RequestError, match="is not a picture"):
        decode_image(data)


def test_bomb_is_refused_before_it_is_decoded() -> None:
    data = encoded(Image.new("1", (20_000, 20_000)))
    assert len(data) < 100_000
    with pytest.raises(RequestError, match=r"400000000 pixels.*at most 89478485 pixels are accepted"):
        decode_image(data)


def test_pixel_limit_is_configurable() -> None:
    assert decode_image(PNG, max_pixels=90 * 60).size == (90, 60)
    with pytest.raises(RequestError, match="90 x 60 pixels; at most 5399 pixels"):
        decode_image(PNG, max_pixels=90 * 60 - 1)


def test_resize_ignores_the_aspect() -> None:
    pixels = resize_image(noise(200, 50), 64)
    assert (pixels.shape, pixels.dtype) == ((64, 64, 3), np.uint8)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_mutated_files_are_answered_or_refused_by_name(data: st.DataObject) -> None:
    file_format = data.draw(st.sampled_from([*FORMATS, "MPO"]))
    image = bytearray(encoded(noise(33, 21), file_format))
    for position in data.draw(st.lists(st.integers(0, len(image) - 1), max_size=8)):
        image[position] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(image)))
    try:
        picture = decode_image(bytes(image[:cut]), max_pixels=1_000_000)
    except RequestError as error:
        assert str(error).startswith("IMAGE: ")  # noqa: PT017
    else:
        assert picture.mode == "RGB"


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_arbitrary_bytes_are_refused_by_name(data: bytes) -> None:
    try:
        image = decode_image(data)
    except RequestError as error:
        assert str(error).startswith("IMAGE: ")  # noqa: PT017
    else:
        assert isinstance(image, Image.Image)
        assert Image.open(io.BytesIO(data)).size
