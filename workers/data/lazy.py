"""Rows that are more than memory holds: labels in memory, images read and decoded batch by batch.

A batch is the same bits as if its rows were in memory. While a network computes on one batch, threads prepare
the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models_store.blobs import BlobStore
from models_store.rows import RowSet
from workers.data.batches import Change, Rows, RowSource
from workers.data.loading import decoded, load
from workers.data.manifest import Manifest, open_manifest
from workers.data.poison import poisoned
from workers.data.reader import DataMissing, RandomAccess, Reader, Shape, wanted_between
from workers.data.registry import open_reader
from workers.data.spool import spool
from workers.monitor import Monitor
from workers.spec import DataSpec, Environment, Poison

Ordinals = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Loader:
    """Brings rows of one data set to where networks want them.

    Attributes:
        memory_bytes: A set of rows whose pixels take more than this is read batch by batch; that changes no
            bit of what is computed.
        threads: How many decode at once.
        poison: Which rows are read poisoned, and how.
    """

    reader: Reader
    image_shape: Shape
    manifest: Manifest | None
    device: torch.device
    memory_bytes: int
    threads: int
    monitor: Monitor
    poison: Poison | None = None

    @classmethod
    def of(
        cls,
        data: DataSpec,
        environment: Environment,
        store: BlobStore,
        *,
        device: torch.device,
        monitor: Monitor,
    ) -> Loader:
        """For the rows of `data`, under its environment. Raises DataFault."""
        return cls(
            reader=open_reader(data.reader, data.location, data.options),
            image_shape=data.image_shape,
            manifest=open_manifest(store, data.manifest) if data.manifest is not None else None,
            device=device,
            memory_bytes=environment.rows_in_memory_bytes,
            threads=environment.threads,
            monitor=monitor,
            poison=data.poison,
        )

    def __call__(self, wanted: RowSet) -> RowSource:
        """The wanted rows, in the order of their ordinals.

        Raises:
            DataChanged: rows hold other images than when they were registered; of rows that are read batch
                by batch this may only be found when they are taken.
            DataFault: a row is missing, does not decode, or has another shape.
            Cancelled: from the monitor.
        """
        rows = self._clean(wanted)
        if self.poison is None or not len(wanted & self.poison.rows):
            return rows
        ordinals, among = (
            wanted_between(chosen, 0, self.reader.count) for chosen in (wanted, wanted & self.poison.rows)
        )
        return poisoned(rows, torch.from_numpy(np.isin(ordinals, among)), self.poison.parameters)

    def _clean(self, wanted: RowSet) -> RowSource:
        if len(wanted) * int(np.prod(self.image_shape)) <= self.memory_bytes:
            images, labels = load(self.reader, wanted, self.image_shape, self.manifest)
            return Rows.of(images, labels, self.device)
        ordinals = wanted_between(wanted, 0, self.reader.count)
        stored, labels = self._stored(wanted, ordinals)

        def pixels(place: int) -> NDArray[np.uint8]:
            return decoded(self.reader, int(ordinals[place]), stored(place), self.image_shape)

        return LazyRows(pixels, labels, self.image_shape, device=self.device, threads=self.threads)

    def _stored(self, wanted: RowSet, ordinals: Ordinals) -> tuple[Callable[[int], bytes], Ordinals]:
        """A function that gives the stored image of a place, its hash compared, and the labels."""
        reader, manifest = self.reader, self.manifest
        if not isinstance(reader, RandomAccess):
            copy, labels = spool(reader, wanted, manifest, self.monitor)
            return copy.image, labels
        if len(ordinals) != len(wanted):
            missing = len(wanted) - len(ordinals)
            raise DataMissing(f"{missing} of {len(wanted)} wanted rows are not in the data set")

        def image(place: int) -> bytes:
            content = reader.image(int(ordinals[place]))
            if manifest is not None:
                manifest.check(ordinals[place : place + 1], [self.reader.content_hash(content)])
            return content

        return image, reader.labels(wanted)


class LazyRows:
    """A RowSource whose images are decoded when they are taken."""

    def __init__(
        self,
        pixels: Callable[[int], NDArray[np.uint8]],
        labels: NDArray[np.int64],
        image_shape: Shape,
        *,
        device: torch.device,
        threads: int,
    ) -> None:
        """`pixels` gives the image at a place, uint8 [H, W, C], and is called by several threads at once."""
        self.labels = torch.from_numpy(labels)
        self.device = device
        self.index_device = self.labels.device
        self._pixels = pixels
        self._image_shape = image_shape
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")
        self._ahead: _Fetch | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, places: Tensor | slice, change: Change | None = None) -> Rows:
        """The rows at these places: at once if they were expected."""
        chosen = torch.arange(len(self))[places] if isinstance(places, slice) else places
        fetch, self._ahead = self._ahead, None
        if fetch is None or not torch.equal(fetch.places, chosen):
            fetch = self._begin(chosen)
        # Queued behind what the device still computes; the host goes on.
        pixels = fetch.finished().permute(0, 3, 1, 2).to(self.device, non_blocking=True)
        images = pixels.contiguous(memory_format=torch.channels_last)
        labels = self.labels[chosen].to(self.device, non_blocking=True)
        return Rows(images if change is None else change(images), labels)

    def expect(self, places: Tensor) -> None:
        """Begin to read and decode these rows."""
        if self._ahead is None:
            self._ahead = self._begin(places)

    def in_order(self, batch_size: int, places: Tensor | None = None) -> Iterator[Rows]:
        """All rows once, or those at `places`, as they stand; each batch is prepared ahead."""
        parts = torch.split(torch.arange(len(self)) if places is None else places, batch_size)
        for number, part in enumerate(parts):
            if not len(part):
                return
            batch = self.take(part)
            if number + 1 < len(parts):
                self.expect(parts[number + 1])
            yield batch

    def _begin(self, places: Tensor) -> _Fetch:
        images = torch.empty(
            (len(places), *self._image_shape), dtype=torch.uint8, pin_memory=self.device.type == "cuda"
        )
        view, chosen = images.numpy(), places.numpy()
        cuts = np.array_split(np.arange(len(chosen)), min(self._threads, max(1, len(chosen))))
        parts = [self._pool.submit(self._fill, view, chosen, cut) for cut in cuts]
        return _Fetch(places, images, parts)

    def _fill(self, images: NDArray[np.uint8], places: Ordinals, cut: Ordinals) -> None:
        for number in cut:
            images[number] = self._pixels(int(places[number]))


@dataclass(frozen=True)
class _Fetch:
    """A batch that is being read: the threads' parts of it, in the order of its rows."""

    places: Tensor
    images: Tensor  # uint8 [n, H, W, C]
    parts: list[Future[None]]

    def finished(self) -> Tensor:
        """The images, once they are there. Raises DataFault: of the first row that could not be read."""
        for part in self.parts:
            part.result()
        return self.images
