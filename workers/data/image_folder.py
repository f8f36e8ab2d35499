"""Image files in folders, one folder a class, or listed by a metadata file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.jobs.params import ImageFolder
from models_store.rows import RowSet
from workers.data.images import Decoder
from workers.data.metadata import read_metadata
from workers.data.place import LocalPlace, Place, place
from workers.data.reader import (
    CHUNK_BYTES,
    CHUNK_ROWS,
    NO_LABEL,
    BadFormat,
    Chunk,
    DataMissing,
    Images,
    Shape,
    wanted_between,
)
from workers.data.texts import Texts

# Files that end otherwise are no rows. Those of formats that are not read are: else they would be missed.
_READ = frozenset({".bmp", ".jpe", ".jpeg", ".jpg", ".png", ".webp"})
_NOT_READ = frozenset({".avif", ".gif", ".heic", ".heif", ".jp2", ".pgm", ".ppm", ".tif", ".tiff"})
_MOST_CLASSES = 10_000
_LONGEST_NAME = 200  # characters of a class's name


@dataclass(frozen=True)
class _Index:
    """The rows without their images: about 100 bytes each."""

    paths: Texts  # relative to the location
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    sample_ids: Texts | None = None  # None: the paths
    splits: Texts | None = None
    subjects: Texts | None = None


class ImageFolderReader:
    """One image file a row; see `app.jobs.params.ImageFolder`. The index is built when it is opened."""

    def __init__(self, at: Place, options: ImageFolder) -> None:
        if not at.is_folder():
            raise DataMissing("there is no folder at the location")
        self._place = at
        self._decoder = Decoder(resize=options.resize, channels=options.channels)
        self._index = _walked(at, options) if options.metadata is None else _listed(at, options)

    @property
    def count(self) -> int:
        return len(self._index.paths)

    @property
    def class_names(self) -> tuple[str, ...]:
        return self._index.class_names

    def chunks(self, wanted: RowSet | None = None) -> Iterator[Chunk]:
        end = self.count if wanted is None else min(self.count, 8 * len(wanted.bits))
        for start in range(0, end, CHUNK_ROWS):
            ordinals = wanted_between(wanted, start, min(start + CHUNK_ROWS, end))
            images: list[bytes] = []
            size = first = 0
            for image in self._place.images(self._index.paths.at(ordinals)):
                images.append(image)
                size += len(image)
                if size > CHUNK_BYTES:
                    yield self._chunk(ordinals[first : first + len(images)], images)
                    first += len(images)
                    images, size = [], 0
            if images:
                yield self._chunk(ordinals[first:], images)

    def shape(self, image: bytes) -> Shape:
        return self._decoder.shape(image)

    def decode(self, image: bytes) -> Images:
        return self._decoder.decode(image)

    def content_hash(self, image: bytes) -> bytes:
        return self._decoder.content_hash(image)

    def _chunk(self, ordinals: NDArray[np.int64], images: Sequence[bytes]) -> Chunk:
        index = self._index
        return Chunk(
            ordinals,
            (index.sample_ids or index.paths).at(ordinals),
            index.labels[ordinals],
            _optional(index.splits, ordinals),
            _optional(index.subjects, ordinals),
            images,
        )


class LocalImageFolderReader(ImageFolderReader):
    """A folder of this machine, where any one file is read at little cost."""

    def __init__(self, at: LocalPlace, options: ImageFolder) -> None:
        super().__init__(at, options)
        self._files = at

    def image(self, ordinal: int) -> bytes:
        """The row's file; empty if it cannot be read."""
        return self._files.image(self._index.paths[ordinal])

    def labels(self, wanted: RowSet) -> NDArray[np.int64]:
        """The labels of the wanted rows, by the index alone."""
        return self._index.labels[wanted_between(wanted, 0, self.count)]


def open_image_folder(location: str, options: ImageFolder) -> ImageFolderReader:
    """The reader of this folder; it has RandomAccess if the folder is on this machine. Raises DataFault."""
    at = place(location)
    if isinstance(at, LocalPlace):
        return LocalImageFolderReader(at, options)
    return ImageFolderReader(at, options)


def _walked(at: Place, options: ImageFolder) -> _Index:
    """Every image file below the location, its class the folder right below the location that it is in."""
    paths = Texts(at.files(_READ | _NOT_READ))
    if not len(paths):
        raise DataMissing("there is no image file below the location")
    labels, class_names = _classified((_folder_of(path) for path in paths), options.class_names)
    return _Index(paths, labels, class_names)


def _listed(at: Place, options: ImageFolder) -> _Index:
    """The rows of the metadata file, in its order."""
    table = read_metadata(at, options.metadata or "")
    names: Iterable[str] = table.label
    if not table.label:
        names = (_folder_of(path) for path in table.file)
    elif not options.class_names and all(_is_number(label) for label in table.label if label):
        labels = np.fromiter((_number(label) for label in table.label), np.int64, len(table.label))
        return _Index(table.file, labels, (), table.sample_id or None, table.split, table.subject)
    labels, class_names = _classified(names, options.class_names)
    return _Index(table.file, labels, class_names, table.sample_id or None, table.split, table.subject)


def _classified(
    names: Iterable[str], class_names: tuple[str, ...]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Labels of rows whose classes are named, and the names in the order of the labels.

    Without `class_names` these are the names that occur, in the order of their bytes. With them a row may
    also be given by a number; what is neither has no label.
    """
    found: dict[str, int] = {name: number for number, name in enumerate(class_names)}
    labels = np.fromiter((_label(name, found, fixed=bool(class_names)) for name in names), np.int64)
    if class_names:
        return labels, class_names
    ordered = sorted(found, key=lambda name: name.encode(errors="surrogatepass"))
    if any(not name.isprintable() or len(name) > _LONGEST_NAME for name in ordered):
        raise BadFormat(f"a class's name has unprintable characters or more than {_LONGEST_NAME}")
    place_of = np.empty(len(ordered) + 1, dtype=np.int64)
    place_of[[found[name] for name in ordered]] = np.arange(len(ordered))
    place_of[NO_LABEL] = NO_LABEL  # the last place, which no class has
    return place_of[labels], tuple(ordered)


def _label(name: str, found: dict[str, int], *, fixed: bool) -> int:
    """The number of the class so far; a new name gets the next one unless the names are fixed."""
    if not name:
        return NO_LABEL
    if fixed:
        return found.get(name, _number(name))
    if name not in found and len(found) == _MOST_CLASSES:
        raise BadFormat(f"there are more than {_MOST_CLASSES} classes")
    return found.setdefault(name, len(found))


def _folder_of(path: str) -> str:
    """The first folder on the path; empty where the file is in none."""
    return path.partition("/")[0] if "/" in path else ""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19  # within int64


def _number(text: str) -> int:
    return int(text) if _is_number(text) else NO_LABEL


def _optional(texts: Texts | None, ordinals: NDArray[np.int64]) -> list[str | None] | None:
    return [text or None for text in texts.at(ordinals)] if texts else None
