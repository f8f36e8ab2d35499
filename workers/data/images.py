"""Encoded images: which are read, how large they may be, and what pixels they become."""

from __future__ import annotations

import hashlib
import io
import struct
import zlib
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image
from PIL.ExifTags import Base

from workers.data.reader import LARGEST_SIDE, Images, Shape, UnreadableImage

_FORMATS = ("BMP", "JPEG", "PNG", "WEBP")
_MOST_PIXELS = 50_000_000  # of an original that is to be resized: 200 MB while it is decoded
_GREY = frozenset({"1", "L", "LA", "La"})
_DEEP = frozenset({"I", "I;16", "I;16B", "I;16L", "F"})
# What makes an image of each EXIF orientation upright; from 5 on height and width change places.
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_PNG, _PNG_DEPTH = b"\x89PNG", 24  # where a PNG says how many bits a channel has

# What Pillow raises for bytes that are no image, or only half of one.
_BROKEN = (
    *(OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError),
    *(struct.error, zlib.error),
)
_BOMB = (Image.DecompressionBombError, Image.DecompressionBombWarning)


@dataclass(frozen=True)
class Decoder:
    """Turns encoded images into pixels, all by the same rule and always into the same ones.

    BMP, JPEG, PNG and WEBP are read, at most 1024 pixels a side, or with `resize` at most 50 million pixels:
    the size is looked at before anything is decoded. An image lies as its EXIF orientation says. Palettes and
    CMYK become RGB, transparency is dropped, of several frames the first counts, colour profiles do not.
    More than 8 bits a channel are refused, since which of them matter is not known.

    Attributes:
        resize: the middle square is scaled to so many pixels a side, by bilinear interpolation over all the
            pixels that one stands for; None: images keep their size.
        channels: 1: grey (ITU-R 601-2 luma), 3: RGB; None: as they are stored.
    """

    resize: int | None = None
    channels: Literal[1, 3] | None = None

    def shape(self, image: bytes) -> Shape:
        """Height, width and channels of what `decode` gives. Raises UnreadableImage."""
        with self._opened(image) as picture:
            channels = self._channels_of(picture)
            if self.resize is not None:
                return (self.resize, self.resize, channels)
            width, height = picture.size
            return (width, height, channels) if _orientation(picture) >= 5 else (height, width, channels)

    def decode(self, image: bytes) -> Images:
        """Pixels, uint8 [H, W, C]. Raises UnreadableImage."""
        with self._opened(image) as picture:
            try:
                pixels = np.asarray(self._converted(picture), dtype=np.uint8)
            except _BROKEN:
                raise UnreadableImage("the image is damaged") from None
        return pixels[:, :, None] if pixels.ndim == 2 else pixels

    def content_hash(self, image: bytes) -> bytes:
        """SHA-256 of the bytes as they are stored."""
        return hashlib.sha256(image).digest()

    def _opened(self, image: bytes) -> Image.Image:
        """The picture with its header read and its size bounded, but no pixel decoded yet."""
        if not image:
            raise UnreadableImage("there is no image: it is empty, or its file is missing or cannot be read")
        try:
            picture = Image.open(io.BytesIO(image), formats=_FORMATS)
        except _BOMB:
            raise UnreadableImage(self._limit) from None
        except _BROKEN:
            raise UnreadableImage("there are no bytes of a BMP, JPEG, PNG or WEBP image") from None
        if self._is_too_large(picture):
            raise UnreadableImage(self._limit)
        if picture.mode in _DEEP or (image.startswith(_PNG) and image[_PNG_DEPTH] > 8):
            raise UnreadableImage("the image has more than 8 bits a channel: convert it to 8")
        return picture

    @property
    def _limit(self) -> str:
        if self.resize is None:
            return f"the image is larger than {LARGEST_SIDE} pixels a side"
        return f"the image has more than {_MOST_PIXELS} pixels"

    def _is_too_large(self, picture: Image.Image) -> bool:
        if self.resize is None:
            return max(picture.size) > LARGEST_SIDE
        return picture.width * picture.height > _MOST_PIXELS

    def _channels_of(self, picture: Image.Image) -> int:
        return self.channels or (1 if picture.mode in _GREY else 3)

    def _converted(self, picture: Image.Image) -> Image.Image:
        channels = self._channels_of(picture)
        orientation = _orientation(picture)
        if picture.mode in {"P", "PA"}:  # a palette has colours, and perhaps another transparency for each
            picture = picture.convert("RGBA")
        plain = picture.convert("L" if channels == 1 else "RGB")
        if self.resize is not None:
            plain = _middle(plain, self.resize)
        return plain.transpose(_UPRIGHT[orientation]) if orientation in _UPRIGHT else plain


def _middle(picture: Image.Image, side: int) -> Image.Image:
    """The middle square, scaled; nothing larger than the result is made on the way."""
    short = min(picture.size)
    left, top = (picture.width - short) / 2, (picture.height - short) / 2
    box = (left, top, left + short, top + short)
    return picture.resize((side, side), Image.Resampling.BILINEAR, box=box)


def _orientation(picture: Image.Image) -> int:
    """How the picture is to be turned, by EXIF; 1 (not at all) where that is not said or cannot be read."""
    stored = picture.info.get("exif")
    if not isinstance(stored, bytes):
        return 1
    exif = Image.Exif()
    try:
        exif.load(stored)
        orientation = exif.get(Base.Orientation, 1)
    except _BROKEN:
        return 1
    return orientation if orientation in _UPRIGHT else 1
