"""Batches in the plan's order, from any step, read and decoded by any number of workers."""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from cfaug.core.errors import UserError
from cfaug.core.pixels import ImageTransform, decode_image, stack_pixels
from cfaug.core.processes import obey_parent
from cfaug.data.index import Index
from cfaug.data.mixture.hard_negatives import PairNegatives, SetCaptions
from cfaug.data.mixture.order import epoch_order, rank_share
from cfaug.data.mixture.records import COUNTERFACTUAL, REAL, Mixture
from cfaug.data.mixture.settings import DataSettings

KEEP_BYTES = 256 * 1024 * 1024
"""Maximum size, in bytes, of the decoded pixels that a run keeps: a small data set is decoded once,
not every epoch."""
READERS = 16
"""Threads of a worker that read from an object store: a request takes longer than to decode."""
Indexes = tuple[Index | None, Index | None]
Batch = dict[str, Any]


@dataclass(frozen=True)
class RankBatch:
    """This process's part of a global batch.

    Attributes:
        rows: (source, row) of this process's examples, int64 (n, 2).
        whole: (source, row) of all examples of the batch, rank by rank, int64 (global_size, 2).
        world: the number of processes that share the batch.
    """

    rows: np.ndarray
    whole: np.ndarray
    rank: int = 0
    world: int = 1


class Examples(Dataset[Batch]):
    """A data set that turns rows into a batch of decoded, cropped images, not normalised.

    Args:
        rows: the total number of examples, which decides whether pixels are kept.
        captions: captions of the counterfactual source's images; ``None`` leaves them unchanged.
        neutral: whether batches have the neutral prompts of counterfactual sets.
        classes: the possible labels of rows; ``None`` for batches without labels.
        pairs: the parts of counterfactuals that are wrong answers for the rows of their originals.
    """

    def __init__(
        self,
        indexes: Indexes,
        transform: ImageTransform,
        rows: int,
        kept: KeptPixels | None = None,
        captions: SetCaptions | None = None,
        neutral: bool = False,
        classes: Sequence[str] | None = None,
        pairs: PairNegatives | None = None,
    ) -> None:
        self.indexes = indexes
        self.transform = transform
        if kept is None and rows * 3 * transform.size**2 <= KEEP_BYTES:
            kept = KeptPixels(KEEP_BYTES)
        self.kept = kept
        self.captions = captions
        self.neutral = neutral and captions is not None
        self.classes = classes
        self.pairs = pairs
        self._open()

    def _open(self) -> None:
        self._slabs = None if self.kept is None else self.kept.slabs(self.indexes, self.transform)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_slabs"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()

    def __getitems__(self, batch: RankBatch) -> Batch | UserError:
        """Return ``pixels`` uint8 (n, 3, size, size), ``texts``, and facts about all ranks.

        The latter are the ``global_size`` and, int64 (global_size,) in the whole batch's order,
        ``images`` and ``sets``: a code of each row's image and the number of its set, equal only
        for the same one (such as a photo in both sources, or in several sets); and ``negatives``,
        wrong captions without an image, with ``negative_owners``, int64, the place of the row that
        each belongs to. They are computed from the plan, without communication. If counterfactuals'
        images are wrong answers there are also ``negative_pixels`` uint8 (m, 3, size, size), this
        process's share of the batch's, and the ``negative_image_owners`` of all of them. With
        neutral prompts there are also ``neutral_texts``, each once, and ``neutrals``, the number of
        each row's prompt, -1 without one. With classes there is also ``labels``, int64 (n,), the
        class number of each row.

        An image that cannot be read or decoded gives the UserError that names it, returned and not
        raised: torch would carry it over from a worker as the text of a traceback.
        """
        try:
            return self._batch(batch)
        except UserError as error:
            return error

    def _batch(self, batch: RankBatch) -> Batch:
        # Pixels, from an object store several at a time.
        def decode(place: list[int]) -> np.ndarray:
            source, row = place
            index = self.indexes[source]
            assert index is not None
            return self._pixels(index, source, row)

        places = batch.rows.tolist()
        if any(index is not None and index.is_stored for index in self.indexes):
            with ThreadPoolExecutor(READERS) as pool:
                pixels = list(pool.map(decode, places))
        else:
            pixels = [decode(place) for place in places]
        # Captions and classes.
        texts, labels = list[str](), list[int]()
        for source, row in places:
            index = self.indexes[source]
            assert index is not None
            if source == COUNTERFACTUAL and self.captions is not None:
                texts.append(self.captions.text(row))
            else:
                texts.append(index.text(row))
            if self.classes is not None:
                labels.append(self.classes.index(str(index.label(row))))
        # Of all ranks' rows: codes of images, from 0; sets, by even numbers those of the real
        # source; the sources' own negatives, and the row that owns each.
        whole = batch.whole
        images, sets = np.empty(len(whole), np.int64), np.empty(len(whole), np.int64)
        negatives, owners = list[str](), list[int]()
        for source, index in enumerate(self.indexes):
            if index is None:
                continue
            mine = whole[:, 0] == source
            images[mine] = index.content_codes(whole[mine, 1]) >> np.uint64(1)
            sets[mine] = 2 * index.sets[whole[mine, 1]] + source
            if index.has_negatives:
                for position in np.flatnonzero(mine).tolist():
                    wrong = index.negatives(int(whole[position, 1]))
                    negatives += wrong
                    owners += [position] * len(wrong)
        of_sets = np.flatnonzero(whole[:, 0] == COUNTERFACTUAL)
        if self.pairs is not None and self.pairs.kind == "text":
            negatives += map(self.pairs.text, whole[of_sets, 1].tolist())
            owners += of_sets.tolist()
        content: Batch = {
            "pixels": torch.from_numpy(stack_pixels(pixels, self.transform.size)),
            "texts": texts,
            "global_size": len(whole),
            "images": torch.from_numpy(images),
            "sets": torch.from_numpy(sets),
            "negatives": negatives,
            "negative_owners": torch.tensor(owners, dtype=torch.int64),
        }
        # This process's share of the counterfactuals' images, and the owners of all.
        if self.pairs is not None and self.pairs.kind == "image":
            share = whole[rank_share(of_sets, batch.rank, batch.world), 1].tolist()
            edited = map(self.pairs.row, share)
            shown = [self._pixels(self.pairs.index, COUNTERFACTUAL, row) for row in edited]
            content |= {
                "negative_pixels": torch.from_numpy(stack_pixels(shown, self.transform.size)),
                "negative_image_owners": torch.from_numpy(of_sets),
            }
        if self.neutral:
            assert self.captions is not None
            numbers = np.full(len(whole), -1)
            known: dict[str, int] = {}
            for position in of_sets.tolist():
                text = self.captions.neutral(int(whole[position, 1]))
                if text is not None:
                    numbers[position] = known.setdefault(text, len(known))
            content |= {"neutral_texts": list(known), "neutrals": torch.from_numpy(numbers)}
        if self.classes is not None:
            content["labels"] = torch.tensor(labels, dtype=torch.int64)
        return content

    def _pixels(self, index: Index, source: int, row: int) -> np.ndarray:
        image = int(index.images[row])
        kept = None if self._slabs is None else self._slabs[source].get(image)
        if kept is not None:
            return kept
        decoded = self.transform(decode_image(index.read_image(row), index.image_name(row)))
        if self._slabs is not None:
            self._slabs[source].put(image, decoded)
        return decoded


@dataclass(frozen=True, eq=False)
class TrainingBatches:
    """The batches of every step from ``start_step`` to ``total_steps``, epoch by epoch."""

    mixture: Mixture
    settings: DataSettings
    _: KW_ONLY
    seed: int
    data_seed: int
    start_step: int
    total_steps: int
    rank: int = 0
    world: int = 1

    @property
    def steps_per_epoch(self) -> int:
        """Number of global batches of one epoch, with the partial one unless ``drop_last``."""
        return self.settings.steps_per_epoch(len(self.mixture.train))

    def __len__(self) -> int:
        return max(0, self.total_steps - self.start_step)

    def __iter__(self) -> Iterator[RankBatch]:
        settings, order, known = self.settings, np.empty(0, np.int64), -1
        train = self.mixture.train
        for step in range(self.start_step, self.total_steps):
            epoch, number = divmod(step, self.steps_per_epoch)
            if epoch != known:
                known = epoch
                order = epoch_order(
                    self.mixture,
                    seed=self.seed,
                    data_seed=self.data_seed,
                    epoch=epoch,
                    batch_size=settings.batch_size,
                    stratify=settings.stratify,
                    pairs_in_batch=settings.whole_sets,
                    window=settings.window(),
                )
                train = self.mixture.rows_in(epoch, self.data_seed)
            batch = order[number * settings.batch_size : (number + 1) * settings.batch_size]
            mine = rank_share(batch, self.rank, self.world)
            yield RankBatch(train[mine], train[batch], self.rank, self.world)


class ValidationBatches:
    """The batches of the validation split, in the plan's order, the last batch partial."""

    def __init__(self, mixture: Mixture, batch_size: int, *, rank: int = 0, world: int = 1) -> None:
        rows = mixture.validation
        # Rows of both sources, alternating: a batch of only one source would be another task.
        position = np.empty(len(rows))
        for source in (REAL, COUNTERFACTUAL):
            mine = np.flatnonzero(rows[:, 0] == source)
            position[mine] = (np.arange(len(mine)) + 0.5) / max(1, len(mine))
        rows = rows[np.argsort(position, kind="stable")]
        self._batches = [rows[i : i + batch_size] for i in range(0, len(rows), batch_size)]
        self.rank, self.world = rank, world

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[RankBatch]:
        for batch in self._batches:
            mine = rank_share(batch, self.rank, self.world)
            yield RankBatch(mine, batch, self.rank, self.world)


class Loader(DataLoader[Batch]):
    """A loader that raises its workers' errors in the process that iterates."""

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]  # iterated, never advanced by hand
        for batch in super().__iter__():
            if isinstance(batch, UserError):
                # A new error: one whose traceback refers to itself is freed by the cycle collector,
                # which closes torch's queues before its workers are told to exit (10 s).
                raise UserError(str(batch))
            yield batch

    def close(self) -> None:
        """End the workers, and the thread that pins memory, with which a process cannot end."""
        iterator, self._iterator = self._iterator, None
        if iterator is not None:
            iterator._shutdown_workers()  # type: ignore[attr-defined]  # as Lightning does


def make_loader(examples: Examples, batches: Iterable[RankBatch], workers: int) -> Loader:
    """Return a loader of batches, in their order, without any use of global random state.

    Args:
        batches: the rows of each batch, in order, iterated in this process.
        workers: number of processes that read; 0 reads in this one.
    """
    return Loader(
        examples,
        batch_sampler=batches,  # type: ignore[arg-type]  # of rows of two sources, not of numbers
        num_workers=workers,
        collate_fn=_as_is,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator(),
        prefetch_factor=4 if workers else None,
        persistent_workers=workers > 0,  # they keep their decoded pixels
        worker_init_fn=obey_parent,
    )


def _as_is(batch: Any) -> Any:
    return batch


# A memory cache of decoded pixels, for the epochs of a run, its workers, and later runs.

TAG = np.dtype([("image", np.int64), ("check", np.uint32)])
Key = tuple[str, ImageTransform]
"""The origin of decoded pixels: the hash of an index, and the image transform."""


class Slab:
    """Pixels of one source at one size, in memory shared with forked processes.

    An image's place is its number modulo the number of places; the first image stored there stays.
    Reads are verified by a checksum, so that a process that reads while another writes finds no
    image rather than half of one.

    Args:
        size: the side of an image in pixels.
    """

    def __init__(self, places: int, size: int) -> None:
        self.places, self.size = places, size
        if places:
            pixels = mmap.mmap(-1, places * 3 * size**2)
            tags = mmap.mmap(-1, places * TAG.itemsize)
            self._pixels = np.frombuffer(pixels, np.uint8).reshape(places, size, size, 3)
            # New memory is zero, so images are numbered from 1 here.
            self._tags = np.frombuffer(tags, TAG)

    @property
    def nbytes(self) -> int:
        """Size in bytes when full; a page is allocated at its first write."""
        return self.places * place_bytes(self.size)

    def get(self, image: int) -> np.ndarray | None:
        """Return an image, uint8 (3, size, size), read-only; ``None`` if it is not cached."""
        if not self.places:
            return None
        slot = image % self.places
        tag = self._tags[slot]
        if tag["image"] != image + 1:
            return None
        pixels: np.ndarray = self._pixels[slot]
        if zlib.crc32(pixels.data) != tag["check"]:
            return None
        pixels.flags.writeable = False
        return pixels.transpose(2, 0, 1)

    def put(self, image: int, pixels: np.ndarray) -> None:
        """Keep an image if its place is free."""
        if not self.places or self._tags[image % self.places]["image"]:
            return
        slot = image % self.places
        self._pixels[slot] = pixels.transpose(1, 2, 0)
        self._tags[slot] = (image + 1, zlib.crc32(self._pixels[slot].data))


def place_bytes(size: int) -> int:
    """Return the size in bytes of an image with a side of ``size`` pixels, with its tag."""
    return 3 * size**2 + TAG.itemsize


class KeptPixels:
    """Slabs by content, within a limit; slabs of earlier runs are dropped for those of this one.

    A copy in a process that was not forked starts empty.

    Args:
        limit: maximum size of all slabs together, in bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._slabs: dict[Key, Slab] = {}

    def __getstate__(self) -> Mapping[str, Any]:
        return {"limit": self.limit, "_slabs": {}}

    def slabs(
        self, indexes: tuple[Index | None, Index | None], transform: ImageTransform
    ) -> tuple[Slab, Slab]:
        """Return a slab for each source; empty without a source, and smaller if memory is short."""
        wanted = {
            (index.hash, transform): int(index.images.max()) + 1
            for index in indexes
            if index is not None
        }
        missing = {key: images for key, images in wanted.items() if key not in self._slabs}
        each = place_bytes(transform.size)
        for key in [key for key in self._slabs if key not in wanted]:  # the oldest first
            if self._free >= sum(missing.values()) * each:
                break
            del self._slabs[key]
        for key, images in missing.items():
            self._slabs[key] = Slab(min(images, max(0, self._free // each)), transform.size)
        first, second = (
            Slab(0, transform.size) if index is None else self._slabs[index.hash, transform]
            for index in indexes
        )
        return first, second

    @property
    def _free(self) -> int:
        return self.limit - sum(slab.nbytes for slab in self._slabs.values())
