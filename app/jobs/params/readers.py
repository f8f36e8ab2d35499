"""Readers of data sets, by name, with their options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

from app.jobs.params.types import STRICT
from app.text import Text

Fit = Annotated[int, Field(ge=1, le=1024)]
Split = Literal["train", "validation", "holdout", "test"]

ColumnName = Annotated[Text, Field(min_length=1, max_length=200)]


def _differ(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("must be different names")
    return names


ClassNames = Annotated[
    tuple[Annotated[Text, Field(min_length=1, max_length=200)], ...],
    Field(max_length=10_000),
    AfterValidator(_differ),
]


def _stays_inside(path: str) -> str:
    """A relative path without `..`: joined to a folder, it names something in that folder."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or "\\" in path or "\0" in path:
        raise ValueError("must be a path relative to the location, without '..'")
    return path


RelativePath = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_stays_inside)]


@dataclass(frozen=True, kw_only=True)
class SklearnDigits:
    """The 1,797 handwritten 8x8 digits that come with scikit-learn (Alpaydin & Kaynak 1998).

    The images and labels are real; the data set names no people, so its rows are dealt out to 60 invented
    subjects, `contributor-00` to `contributor-59`. The first `mislabelled_subjects` of them handed in wrong
    labels: a mistaken contribution, which a network can only memorise. A third of their rows trains; a
    third is held out, so that an audit has never-trained rows of the same people; a third validates, so that
    a method can judge itself. `seed` decides who gets which row.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    mislabelled_subjects: Annotated[int, Field(ge=0, le=20)] = 7
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0


@dataclass(frozen=True, kw_only=True)
class Npz:
    """One .npz file: arrays `x` (uint8 [N, H, W] or [N, H, W, C]), `y`, optional `ids`, `subjects`, `split`.

    Without `ids` a row's position is its sample ID. Without `class_names` there are max(label) + 1 classes.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    class_names: ClassNames = ()


@dataclass(frozen=True, kw_only=True)
class ParquetFile:
    """One file of a data set: its path inside the location, its rows' split, how many of them to take."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    path: RelativePath
    split: Split | None = None
    limit: Annotated[int, Field(ge=1)] | None = None


@dataclass(frozen=True, kw_only=True)
class Parquet:
    """Parquet files in the Hugging Face image layout: an image column of struct{bytes, path} or of bytes.

    The location is one file or a folder, whose *.parquet files are read in the order of their names unless
    `files` lists them. A split of `files` holds for all rows of that file; `split_column` is read elsewhere.
    `resize` and `channels` are those of an image folder.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    id_column: ColumnName = "sample_id"
    image_column: ColumnName = "image"
    label_column: ColumnName = "label"
    subject_column: ColumnName | None = None
    split_column: ColumnName | None = None
    resize: Fit | None = None
    channels: Literal[1, 3] | None = None
    files: Annotated[tuple[ParquetFile, ...], Field(max_length=10_000)] = ()
    class_names: ClassNames = ()


@dataclass(frozen=True, kw_only=True)
class ImageFolder:
    """Image files in folders: one folder a class, or a metadata file that names files and what they are.

    Without `metadata` every image file in a folder below the location is a row, its class the first folder,
    its sample ID the path relative to the location; files in the order of their paths. `metadata` is a .csv,
    .jsonl or .parquet file below the location with a column `file` (a path relative to the location) and
    optionally `sample_id`, `subject`, `split`, `label`; its rows are the data set's, in their order. Labels
    are numbers if all are, else names; with `class_names` either. Without labels the folders are the classes.
    `resize`: the middle square of each image is scaled to so many pixels a side.
    `channels`: convert every image to grey (1) or colour (3); else all must be alike.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    metadata: RelativePath | None = None
    resize: Fit | None = None
    channels: Literal[1, 3] | None = None
    class_names: ClassNames = ()


@dataclass(frozen=True, kw_only=True)
class TorchvisionDataset:
    """A data set of torchvision.datasets, by its name, below the location (torchvision's `root`).

    Its training rows may train, its test rows are the test set. Sample IDs are `train-0`, `train-1`, …,
    `test-0`, …: torchvision gives the rows no names. `download`: fetch it if it is not there, where the
    operator allows that (EXPUNGE_ALLOW_DOWNLOADS).
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: Literal["CIFAR10", "CIFAR100", "SVHN", "FashionMNIST"] = "CIFAR10"
    download: bool = False


ReaderOptions = SklearnDigits | Npz | Parquet | ImageFolder | TorchvisionDataset


@dataclass(frozen=True, kw_only=True)
class ReaderInfo:
    """What a caller may know of a reader before registering a data set with it."""

    options: type[ReaderOptions]
    summary: str
    needs_location: bool


READERS: Mapping[str, ReaderInfo] = {
    "sklearn_digits": ReaderInfo(
        options=SklearnDigits,
        summary="Scikit-learn's handwritten digits, with invented subjects; needs no file.",
        needs_location=False,
    ),
    "npz": ReaderInfo(
        options=Npz,
        summary="One NumPy .npz file of uint8 images and integer labels.",
        needs_location=True,
    ),
    "parquet": ReaderInfo(
        options=Parquet,
        summary="Parquet files of encoded images, as Hugging Face data sets store them.",
        needs_location=True,
    ),
    "image_folder": ReaderInfo(
        options=ImageFolder,
        summary="Image files in one folder a class, or listed by a metadata file.",
        needs_location=True,
    ),
    "torchvision": ReaderInfo(
        options=TorchvisionDataset,
        summary="CIFAR-10, CIFAR-100, SVHN or Fashion-MNIST, as torchvision stores them.",
        needs_location=True,
    ),
}


@dataclass(frozen=True, kw_only=True)
class RoleShares:
    """What part of the rows without a split is kept out of training, by role; the rest trains.

    `test` counts only where the data set brings no test rows of its own.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    holdout: Annotated[float, Field(ge=0, le=0.3)] = 0.1
    validation: Annotated[float, Field(ge=0, le=0.3)] = 0.05
    test: Annotated[float, Field(ge=0, le=0.3)] = 0.2


ROLE_SHARES: TypeAdapter[RoleShares] = TypeAdapter(RoleShares)

_OPTIONS: Mapping[str, TypeAdapter[Any]] = {name: TypeAdapter(info.options) for name, info in READERS.items()}


def reader_options(name: str, given: Mapping[str, Any]) -> ReaderOptions:
    """The options of reader `name`, defaults filled in.

    Raises:
        KeyError: there is no such reader.
        pydantic.ValidationError: naming every fault in `given`.
    """
    options: ReaderOptions = _OPTIONS[name].validate_python(dict(given), strict=False)
    return options


def reader_schema(name: str) -> dict[str, Any]:
    """JSON schema of the options of reader `name`."""
    return _OPTIONS[name].json_schema()
