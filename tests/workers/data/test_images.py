"""Encoded images become pixels by one rule, and hostile ones become nothing."""

from __future__ import annotations

import io
import random
import struct
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps
from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Resize

from workers.data.images import Decoder
from workers.data.reader import UnreadableImage

Encode = Callable[..., bytes]


@pytest.fixture
def encode() -> Encode:
    """Store a picture in some format."""

    def encode(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
        buffer = io.BytesIO()
        picture.save(buffer, format=kind, **options)
        return buffer.getvalue()

    return encode


@pytest.fixture
def photo() -> Image.Image:
    """A smooth RGB picture of 48 x 32 pixels with some noise."""
    y, x = np.mgrid[0:32, 0:48]
    noise = np.random.default_rng(0).integers(0, 30, (32, 48, 3))
    return Image.fromarray((np.stack([5 * x, 6 * y, 2 * (x + y)], axis=2) % 200 + noise).astype(np.uint8))


def _png_header(width: int, height: int, *, depth: int = 8, colour: int = 2) -> bytes:
    """A PNG that promises so many pixels, in 60 bytes."""

    def part(name: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        )

    header = part(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + part(b"IDAT", zlib.compress(b"\0" * 64)) + part(b"IEND", b"")


@pytest.mark.parametrize(
    ("kind", "mode", "options"),
    [
        ("PNG", "RGB", {}),
        ("PNG", "L", {}),
        ("BMP", "RGB", {}),
        ("BMP", "L", {}),
        ("WEBP", "RGB", {"lossless": True}),
    ],
)
def test_pixels_are_those_that_were_stored(
    photo: Image.Image, encode: Encode, kind: str, mode: str, options: dict[str, Any]
) -> None:
    """Formats without loss give every pixel back; shape tells the same without decoding."""
    picture = photo.convert(mode)
    image = encode(picture, kind, **options)
    pixels = Decoder().decode(image)
    assert np.array_equal(pixels.squeeze(), np.asarray(picture))
    assert pixels.shape == Decoder().shape(image) == (32, 48, len(picture.getbands()))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L", "LA", "1", "CMYK"])
@pytest.mark.parametrize("channels", [None, 1, 3])
def test_every_kind_of_colour_becomes_grey_or_rgb(
    photo: Image.Image, encode: Encode, mode: str, channels: Any
) -> None:
    """Without `channels` grey stays grey, with or without transparency, and everything else becomes RGB."""
    image = encode(photo.convert(mode), "JPEG" if mode == "CMYK" else "PNG")
    decoder = Decoder(channels=channels)
    expected = channels or (1 if mode in {"L", "LA", "1"} else 3)
    assert decoder.decode(image).shape == decoder.shape(image) == (32, 48, expected)


def test_transparency_is_dropped(photo: Image.Image, encode: Encode) -> None:
    """The colours stored under full transparency count, in true colour and with a palette."""
    clear = photo.copy()
    clear.putalpha(0)
    assert np.array_equal(Decoder().decode(encode(clear)), np.asarray(photo))
    palette = photo.quantize(16)
    image = encode(palette, transparency=bytes(16))
    assert np.array_equal(Decoder().decode(image), np.asarray(palette.convert("RGB")))


def test_resizing_agrees_with_torchvision(photo: Image.Image, encode: Encode) -> None:
    """Middle square and bilinear scaling are torchvision's resize and centre crop, pixel for pixel."""
    reference = Compose([Resize(16, InterpolationMode.BILINEAR), CenterCrop(16)])
    decoder = Decoder(resize=16)
    for picture in (photo, photo.transpose(Image.Transpose.ROTATE_90), photo.convert("L")):
        image = encode(picture)
        expected = np.asarray(reference(picture)).reshape(decoder.shape(image))
        assert np.array_equal(decoder.decode(image), expected)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("resize", [None, 16])
def test_images_are_turned_upright(
    photo: Image.Image, encode: Encode, orientation: int, resize: int | None
) -> None:
    """EXIF's orientation is followed as Pillow follows it, in the shape as well as in the pixels."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = encode(photo, exif=exif)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(image)))
    decoder = Decoder(resize=resize)
    pixels, expected = decoder.decode(image), decoder.decode(encode(upright, exif=b""))
    # Scaling rounds twice, first along the rows: turning before or after it may differ by one grey level.
    assert np.abs(pixels.astype(int) - expected).max() <= (0 if resize is None else 1)
    assert decoder.shape(image) == pixels.shape == expected.shape


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
@pytest.mark.parametrize("exif", [b"", b"Exif\0\0", b"Exif\0\0MM\0*\0\0\0\xff", b"nonsense" * 9])
def test_unreadable_exif_turns_nothing(photo: Image.Image, encode: Encode, exif: bytes) -> None:
    """An image is not refused for what stands beside it."""
    image = encode(photo, exif=exif) if exif else encode(photo)
    assert np.array_equal(Decoder().decode(image), np.asarray(photo))


@pytest.mark.parametrize("size", [(1025, 1), (1, 1025), (30_000, 30_000), (10_000, 10_000)])
def test_a_bomb_is_refused_before_it_is_decoded(size: tuple[int, int]) -> None:
    """A few bytes that promise many pixels are judged by their header."""
    with pytest.raises(UnreadableImage, match="larger than 1024 pixels a side"):
        Decoder().shape(_png_header(*size))
    with pytest.raises(UnreadableImage, match="larger than 1024 pixels a side"):
        Decoder().decode(_png_header(*size))


@pytest.mark.parametrize("size", [(7072, 7072), (50_000_001, 1), (30_000, 30_000)])
def test_a_large_original_is_bounded_too(size: tuple[int, int]) -> None:
    """With `resize` originals may be larger, up to 50 million pixels."""
    with pytest.raises(UnreadableImage, match="more than 50000000 pixels"):
        Decoder(resize=8).decode(_png_header(*size))


def test_a_long_strip_is_not_blown_up(encode: Encode) -> None:
    """Scaling the shorter side of a strip of one pixel's height makes nothing larger than the result."""
    strip = encode(Image.new("L", (200_000, 1), 9))
    assert np.array_equal(Decoder(resize=512).decode(strip), np.full((512, 512, 1), 9))


@pytest.mark.parametrize("colour", [0, 2])
def test_more_than_eight_bits_are_refused(colour: int) -> None:
    """Dropping half of the bits could drop the picture, so the user is asked to choose."""
    with pytest.raises(UnreadableImage, match="8 bits"):
        Decoder().shape(_png_header(4, 4, depth=16, colour=colour))


def test_grey_of_sixteen_bits_is_refused(encode: Encode) -> None:
    """So is a real image, and in decoding as well."""
    deep = Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000)
    with pytest.raises(UnreadableImage, match="8 bits"):
        Decoder().decode(encode(deep))


@pytest.mark.parametrize("image", [b"", b"\x89PNG", b"GIF89a" + b"\0" * 60, b"<svg/>", b"\x80\x04K\x01."])
def test_what_is_no_image_is_unreadable(image: bytes) -> None:
    """Nothing, half a signature, other formats, a pickle."""
    with pytest.raises(UnreadableImage):
        Decoder().shape(image)
    with pytest.raises(UnreadableImage):
        Decoder().decode(image)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "WEBP"])
def test_damage_never_raises_anything_else(
    photo: Image.Image,
    encode: Encode,
    kind: str,
) -> None:
    """Cut or changed bytes give an image or UnreadableImage, whatever the decoder stumbles over."""
    image, draw = encode(photo, kind), random.Random(7)
    for _ in range(300):
        spoilt = bytearray(image[: draw.randrange(1, len(image) + 1)])
        for _ in range(draw.randrange(4)):
            spoilt[draw.randrange(len(spoilt))] = draw.randrange(256)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow remarks on odd files that it reads nevertheless
            for step in (Decoder().shape, Decoder().decode, Decoder(resize=9, channels=1).decode):
                try:
                    step(bytes(spoilt))
                except UnreadableImage:
                    continue


def test_the_hash_is_that_of_the_stored_bytes(photo: Image.Image, encode: Encode) -> None:
    """The same pixels stored otherwise are another content; options change no hash."""
    first, second = encode(photo), encode(photo, "BMP")
    assert Decoder().content_hash(first) == Decoder(resize=8).content_hash(first)
    assert Decoder().content_hash(first) != Decoder().content_hash(second)
