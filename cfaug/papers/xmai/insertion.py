"""Retrieval by texts that a method changed, benchmark=insertion, and its page.

XMAI (Ramshetty et al., 2023), section 4.1 and Tables 1, 3 to 6. Each text, before and after, ranks
the photos by its cosine to them.

Where it is known which texts are still as true of their photo, ``label_kept`` reports outcomes for
these alone. If such a text says more than the original, a drop is the model's fault (section 4.1,
the axiom for retrieval); a text that says less may fit other photos as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge

from cfaug.core.errors import UserError, say
from cfaug.core.item_schema import ItemSchema
from cfaug.core.protocols import DualEncoder
from cfaug.core.rng import generator
from cfaug.core.types import ITEM, Edit, Evaluation, Member
from cfaug.core.validation import Positive, Seed
from cfaug.evaluation.benchmark import WritesModelPage
from cfaug.evaluation.cached_model import image_keys
from cfaug.evaluation.inference import Pixels, compute_distinct, embed_images, embed_texts
from cfaug.evaluation.text_pairs.text_pair_benchmark import Metric, TextPairBenchmark
from cfaug.evaluation.text_pairs.text_pair_items import (
    INSERTION_ITEMS,
    InsertionItems,
    PairedTest,
    compare_changes,
    compare_methods,
)
from cfaug.evaluation.text_pairs.text_pairs import TextPairs
from cfaug.papers.xmai.text_overlap import OVERLAP, WORDNET, overlap_columns
from cfaug.report.gallery import ModelPage, mark_changes
from cfaug.report.items import Items
from cfaug.report.page import DASH, p_text, short
from cfaug.stats.ranking import text_standing

if TYPE_CHECKING:
    from cfaug.editing.protocols import SentenceEmbedder
    from cfaug.evaluation.cached_model import CachedEncoder
    from cfaug.report.gallery import ImageSource


PREFIX = "This is "
"""Prefix of every text given to CLIP in the authors' notebook."""
FEWEST = 2
"""The fewest photos that can be ranked."""
METRICS: Mapping[str, Metric] = {
    "mrr_original": Metric(),
    "mrr": Metric(),
    "mrr_drop": Metric("lower"),
    "mrr_original_batches": Metric(),
    "mrr_batches": Metric(),
    "mrr_drop_batches": Metric("lower"),
    "similarity_text": Metric(unit="cosine"),
    "similarity_image_original": Metric(unit="cosine"),
    "similarity_image": Metric(unit="cosine"),
    **OVERLAP,
}


@dataclass
class Insertion(WritesModelPage, TextPairBenchmark):
    """Reciprocal ranks and similarities of texts before and after, beside the texts' overlap.

    The original texts and the photos are embedded once. Other arguments as for
    ``TextPairBenchmark``; ``answers`` are to ``annotate.question=caption_true``.

    Args:
        prefix: words put before every text that the model is given.
        pairs_per_batch: number of texts and photos that are ranked together in a batch, in addition
            to the ranking among all; 1,000 in the paper (section 4.1).
        sentence_encoder: the model that compares the two texts, all-mpnet-base-v2 in the paper
            (section 4.5); ``None`` uses the model's own embeddings, with the prefix.
        synonyms: the synonyms for METEOR: ``wordnet``, or a folder of WordNet; ``None`` leaves
            METEOR out.
        page: number of texts per method that ``insertion.html`` shows, largest drops first;
            ``None`` writes no page.
    """

    prefix: str = PREFIX
    pairs_per_batch: Annotated[int, Ge(FEWEST)] = 1000
    seed: Seed = 0
    """the seed of what is drawn"""
    sentence_encoder: SentenceEmbedder | None = None
    synonyms: str | None = WORDNET
    page: Positive | None = 60

    kind: ClassVar[str] = "insertion"
    item_schema: ClassVar[ItemSchema] = INSERTION_ITEMS
    needs: ClassVar[type] = DualEncoder
    primary_metrics: ClassVar[tuple[str, ...]] = ("mrr_original", "mrr", "mrr_drop")

    def use(self, *pairs: TextPairs) -> Insertion:
        super().use(*pairs)
        first = self._pairs[0]
        if first.index is None:
            raise UserError(f"{first.source} has no images: ask benchmark=text_overlap about it")
        self._keys = image_keys(first.index, first.rows[:, 0])
        number = {key: at for at, key in enumerate(dict.fromkeys(self._keys))}
        self._photo_of_set = np.array([number[key] for key in self._keys])
        if len(number) < FEWEST:
            raise UserError(
                f"{first.source} shows {len(number)} photo: ranking needs {FEWEST} or more"
            )
        _, rows = np.unique(self._photo_of_set, return_index=True)
        self._photos = Pixels(first.index, first.rows[rows, 0])
        self._batches = make_batches(str(self.name), len(first), self.pairs_per_batch, self.seed)
        return self

    def identifying_settings(self) -> list[Any]:
        compared = None if self.sentence_encoder is None else self.sentence_encoder.describe()
        return [self.prefix, self.pairs_per_batch, self.seed, self.synonyms, compared]

    def run(self, encoder: DualEncoder | CachedEncoder) -> Evaluation:
        """Return the mean reciprocal ranks, drops and similarities of every method."""
        # The original texts, then those of each method.
        kinds = [self._pairs[0].originals, *(pair.changed for pair in self._pairs)]
        texts = [text for kind in kinds for text in kind]
        shape = (len(kinds), len(self._photo_of_set), -1)
        named = [f"{self.prefix}{text}" for text in texts]
        embedded = embed_texts(encoder, named, self.batch_size).reshape(shape)
        gallery = embed_images(encoder, self._photos, self.batch_size)
        compared = embedded
        if self.sentence_encoder is not None:
            encode = self.sentence_encoder.encode
            compared = compute_distinct(
                texts, lambda places: iter([np.asarray(encode([texts[at] for at in places]))])
            ).reshape(shape)
        ranked = embedded, gallery, self._photo_of_set
        try:
            reciprocal, ranks = rank_in_gallery(*ranked)
            batches = rank_in_batches(*ranked, self._batches)
        except ValueError as error:
            raise UserError(f"{self.name}: {error}") from error
        photos = gallery[self._photo_of_set]
        columns = [
            {
                **drop_columns(reciprocal[0], reciprocal[at]),
                **drop_columns(batches[0], batches[at], "_batches"),
                "rank_original": ranks[0],
                "rank": ranks[at],
                "similarity_text": _cosines(compared[at], compared[0]),
                "similarity_image_original": _cosines(embedded[0], photos),
                "similarity_image": _cosines(embedded[at], photos),
                **overlap_columns(pair, self.synonyms),
            }
            for at, pair in enumerate(self._pairs, 1)
        ]
        items = self.pair_columns()
        items["image"] = [key.hex() for key in self._keys] * len(self._pairs)
        items |= {name: np.concatenate([column[name] for column in columns]) for name in columns[0]}
        return Evaluation([*self.means(items, METRICS), *self.spreads(items)], items)

    def model_page(self) -> ModelPage[InsertionItems]:
        return insertion_page(self.page or LIMIT)

    def page_images(self) -> ImageSource:
        """Return the photos by their digests in the items."""
        from cfaug.report.gallery import ImageSource

        index, rows = self._photos.index, self._photos.rows.tolist()
        keys = image_keys(index, self._photos.rows)
        row_of = {key.hex(): row for key, row in zip(keys, rows, strict=True)}
        find = self.reader(row_of.get, index.source)
        return ImageSource(lambda digest: index.read_image(find(digest)))

    def summarise(self, evaluation: Evaluation) -> list[str]:
        """Say in one line per method how much worse photos are found, with the tests."""
        items = Items(str(self.name), "", "", evaluation.items)
        return verdicts(MethodTests(InsertionItems(str(self.name), items)))


def _cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the cosines of corresponding rows of unit vectors, float64 (rows,)."""
    return np.asarray(np.einsum("nd,nd->n", first, second, dtype=np.float64))


def rank_in_gallery(
    texts: np.ndarray, photos: np.ndarray, photo_of_set: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rank every text's photo among all photos, each counted once; embeddings have unit length.

    Args:
        texts: float32 (kinds, sets, dim): the original texts, then those of each method.
        photos: float32 (photos, dim), each photo once.
        photo_of_set: number of each set's photo, int64 (sets,).

    Returns:
        Reciprocal ranks, averaged over ties, and ranks, 1 + the number of photos that score higher;
        float64 (kinds, sets) each.

    Raises:
        ValueError: if an embedding is zero or not finite.
    """
    # One kind after the other: scaling all to unit length at once would need twice the memory.
    each = [text_standing(kind, photos, photo_of_set) for kind in texts]
    reciprocal = np.stack([where.reciprocal_ranks("mean") for where in each])
    return reciprocal, np.stack([where.above + 1.0 for where in each])


def make_batches(name: str, sets: int, size: int, seed: int) -> list[np.ndarray]:
    """Divide the numbers of sets into shuffled batches of nearly equal sizes, about ``size``."""
    if sets < size:
        say(f"{name}: {sets:,} sets are fewer than a batch of {size:,}: one batch holds all")
    order = generator(seed, "insertion batches").permutation(sets)
    return np.array_split(order, max(1, round(sets / size)))


def rank_in_batches(
    texts: np.ndarray, photos: np.ndarray, photo_of_set: np.ndarray, batches: Sequence[np.ndarray]
) -> np.ndarray:
    """Rank every text's photo among those of its batch; other arguments as above.

    Returns:
        Reciprocal ranks, averaged over ties, float64 (kinds, sets); ``nan`` for sets in no batch.

    Raises:
        ValueError: if an embedding is zero or not finite.
    """
    kinds, sets, dim = texts.shape
    ranks = np.full((kinds, sets), np.nan)
    for places in batches:
        shown, inverse = np.unique(photo_of_set[places], return_inverse=True)
        some = texts[:, places].reshape(-1, dim)
        where = text_standing(some, photos[shown], np.tile(inverse.reshape(-1), kinds))
        ranks[:, places] = where.reciprocal_ranks("mean").reshape(kinds, len(places))
    return ranks


def drop_columns(
    original: np.ndarray, changed: np.ndarray, suffix: str = ""
) -> Mapping[str, np.ndarray]:
    """Return reciprocal ranks of the original and the changed texts, and their difference."""
    return {
        f"mrr_original{suffix}": original,
        f"mrr{suffix}": changed,
        f"mrr_drop{suffix}": original - changed,
    }


# ``<benchmark>.html``: texts that a method changed, and the ranks of their photos afterwards.
#
# For each method, the drop with its tests, the overlap of the texts, and the texts whose photo lost
# most ranks, with the photo, both texts and the ranks. Nothing in a text is ever read as markup:
# the script sets text. One file that opens offline.

THUMBNAIL = 192
"""Longest side of a picture: 60 texts of five methods make a page of about 4 MB."""
LIMIT = 60
"""Most texts per method that are shown."""
TESTED = ("method", "texts", "MRR before", "MRR after", "drop [95 %]", "fell / rose", "p (sign)",
          "p (photos)", "Holm")  # fmt: skip
ALIKE = ("method", "text and text", "photo and text before", "photo and text after", "BLEU-4",
         "METEOR", "inserted words", "changed", "with new words")  # fmt: skip
MEASURES = ("similarity_text", "similarity_image_original", "similarity_image", "bleu", "meteor",
            "inserted_words", "changed", "novel")  # fmt: skip
AGAINST = ("method", "against", "texts", "MRR of the first", "of the second",
           "difference [95 %]", "below / above", "p (sign)", "p (photos)", "Holm")  # fmt: skip


@dataclass(frozen=True)
class MethodTests:
    """One model's answers to ``benchmark=insertion`` with their tests, each computed once."""

    answers: InsertionItems

    @cached_property
    def drops(self) -> list[PairedTest]:
        """The drop of each method, among all photos."""
        return compare_changes([self.answers], "mrr_original", "mrr")

    @cached_property
    def kept_drops(self) -> list[PairedTest]:
        """The drop of each method over texts whose right answer is known to be kept."""
        return compare_changes([self.answers], "mrr_original", "mrr", kept_only=True)

    @cached_property
    def batch_drops(self) -> list[PairedTest]:
        """The drop of each method, in batches."""
        return compare_changes([self.answers], "mrr_original_batches", "mrr_batches")

    @cached_property
    def against(self) -> list[PairedTest]:
        """The first method against each other."""
        return compare_methods([self.answers], "mrr", self.answers.methods[0])


def insertion_page(limit: int = LIMIT) -> ModelPage[InsertionItems]:
    """Return the definition of the page, with up to ``limit`` texts per method."""

    def make(answers: Sequence[InsertionItems]) -> _InsertionPageData:
        return _InsertionPageData([MethodTests(answer) for answer in answers], limit)

    return ModelPage("insertion.html", InsertionItems, "texts", make, THUMBNAIL)


def verdicts(tests: MethodTests) -> list[str]:
    """Say in one sentence per method how much worse its texts retrieve their photos."""
    kept = {test.method: test for test in tests.kept_drops}
    lines = []
    for test in tests.drops:
        line = (
            f"{tests.answers.model}, {test.method}: MRR {test.test.before:.3f} → "
            f"{test.test.after:.3f}, {_change(test)} over {test.keys:,} texts "
            f"(p = {p_text(test.p_holm)}, Holm)"
        )
        kept_test, (true, false) = kept.get(test.method), tests.answers.judged(test.method)
        # Nothing is known about a method if the only judged texts are those it left unchanged.
        if true + false:
            line += f"; {false:,} of {true + false:,} judged texts are no longer as true as before"
            if kept_test is not None and kept_test.keys < test.keys:
                line += (
                    f"; over the {kept_test.keys:,} that are known to be, {_change(kept_test)} "
                    f"(p = {p_text(kept_test.p_holm)}, Holm)"
                )
        lines.append(f"{line}.")
    return lines


def _change(test: PairedTest) -> str:
    """Return in words how much a mean fell or rose."""
    mean = test.test.mean
    if mean.mean < 0:
        return f"a rise of {_interval(-mean.mean, -mean.high, -mean.low)}"
    return f"a drop of {_interval(mean.mean, mean.low, mean.high)}"


def _interval(mean: float, low: float, high: float) -> str:
    return _plain(mean) + ("" if math.isnan(low) else f" [{_plain(low)}, {_plain(high)}]")


def _plain(value: float) -> str:
    return DASH if math.isnan(value) else f"{round(value, 3) + 0.0:.3f}"  # never -0.000


def _cells(test: PairedTest) -> list[str]:
    paired, mean = test.test, test.test.mean
    return [
        f"{test.keys:,}", _plain(paired.before), _plain(paired.after),
        _interval(mean.mean, mean.low, mean.high), f"{paired.lost:,} / {paired.won:,}",
        p_text(paired.p_sign), p_text(test.p), p_text(test.p_holm),
    ]  # fmt: skip


class _InsertionPageData:
    """Turns answers into data for the script."""

    def __init__(self, tested: Sequence[MethodTests], limit: int) -> None:
        self.tested = tested
        self.first = tested[0].answers
        self.images: dict[str, str] = {}
        # The changed texts of each method whose reciprocal ranks fell most over all models.
        self._rows: list[int] = []
        for method in self.first.methods:
            rows = self.first.rows(method)
            rows = rows[self.first.items.metric("changed")[rows] > 0]
            drops = [tests.answers.items.metric("mrr_drop")[rows] for tests in tested]
            order = np.argsort(-np.mean(drops, axis=0), kind="stable")
            self._rows += rows[order[:limit]].tolist()

    @property
    def verdicts(self) -> list[str]:
        return [line for tests in self.tested for line in verdicts(tests)]

    @property
    def subtitle(self) -> str:
        """How many of the texts are shown."""
        photos = len(set(self.first.texts("image")))
        texts = len(set(self.first.texts("key")))
        return (
            f"{texts:,} texts about {photos:,} photos; {len(self._rows):,} texts shown, those "
            "whose photo fell most"
        )

    def content(self) -> dict[str, Any]:
        """Return everything but the pictures: the script explains its letters."""
        return {
            "models": [tests.answers.model for tests in self.tested],
            "methods": list(self.first.methods),
            "photos": len(set(self.first.texts("image"))),
            "tables": [list(self._tables(tests)) for tests in self.tested],
            "texts": [self._text(row) for row in self._rows],
        }

    def _tables(self, method_tests: MethodTests) -> Iterator[dict[str, Any]]:
        """Yield tables: t title, h headers, r rows of texts."""
        answers = method_tests.answers
        every = {
            "Among all photos": method_tests.drops,
            # For methods with any judged text.
            "Among all photos, texts known to be as true as before": [
                test for test in method_tests.kept_drops if any(answers.judged(test.method))
            ],
            "In batches": method_tests.batch_drops,
        }
        for title, tests in every.items():
            if tests:
                yield {"t": title, "h": list(TESTED),
                       "r": [[test.method, *_cells(test)] for test in tests]}  # fmt: skip
        if len(self.first.methods) > 1:
            rows = [[test.method, test.other, *_cells(test)] for test in method_tests.against]
            yield {"t": "Method against method, among all photos", "h": list(AGAINST), "r": rows}
        rows = []
        for method in self.first.methods:
            means = [
                _plain(float(answers.items.metric(name)[answers.rows(method)].mean()))
                if name in answers.items.columns
                else DASH
                for name in MEASURES
            ]
            rows.append([method, *means])
        yield {"t": "Similarity", "h": list(ALIKE), "r": rows}

    def _text(self, row: int) -> dict[str, Any]:
        """Return a text: i item, m method, l label kept, p picture, t texts in pieces, r answers.

        An answer is a model's ranks before and after, and its reciprocal ranks.
        """
        first = self.first
        method, digest = first.texts("method")[row], first.texts("image")[row]
        members = (
            Member(first.texts("text_before")[row], "0", ""),
            Member(first.texts("text")[row], "0", "", Edit(method, "", "")),
        )
        self.images.setdefault(digest, digest)
        return {
            "i": first.texts(ITEM)[row],
            "m": method,
            "l": first.label_kept[row],
            "p": list(self.images).index(digest),  # equal images share one picture
            "t": [mark_changes(members, 0), mark_changes(members, 1)],
            "r": [
                [short(tests.answers.items.columns[name][row])
                 for name in ("rank_original", "rank", "mrr_original", "mrr")]
                for tests in self.tested
            ],
        }  # fmt: skip
