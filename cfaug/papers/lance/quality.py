"""How natural are edited images and their captions? LANCE, Figure 4.

``benchmark=image_quality`` compares sets of images in a model's features (FID, KID), and
``benchmark=caption_perplexity`` scores captions by a language model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from cfaug.core.errors import UserError, say
from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.core.progress import watch
from cfaug.core.protocols import FeatureExtractor, LanguageModel
from cfaug.core.rng import generator
from cfaug.core.types import ORIGINAL, RECONSTRUCTION, Evaluation, Outcome
from cfaug.core.validation import Positive, Seed
from cfaug.evaluation.cached_model import image_keys
from cfaug.evaluation.inference import Pixels, check_outputs, compute_distinct
from cfaug.evaluation.stress.stress import JoinedBenchmark
from cfaug.evaluation.stress.stress_items import JOINED_ITEMS
from cfaug.evaluation.stress.stress_sets import JoinedSets
from cfaug.stats.image_metrics import frechet_distance, kernel_distance


@dataclass
class ImageQuality(JoinedBenchmark):
    """FID and KID of reconstructions and edits against the photos that were edited.

    ``fid_halves``, the FID between two random halves of the photos, shows the bias of the estimate:
    it is above zero although nothing was changed.

    Args:
        data: shards of photos with their edits; the edits are the set ``edited``.
        name: the name in tables, ending in "_quality"; ``None`` takes the folder's name.
        without_leaks: whether to leave out photos that the run was trained on, with everything made
            from them.
        random: shards of edits of random words (LANCE-R), the set ``random``; ``None`` omits it.
        control: the kind of edit that changes nothing: photos that are only inverted and redrawn.
        seed: the seed of the random halves.
    """

    seed: Seed = 0

    kind: ClassVar[str] = "quality"
    item_schema: ClassVar[ItemSchema] = ItemSchema("an image", JOINED_ITEMS)
    needs: ClassVar[type] = FeatureExtractor

    def use(self, *sets: JoinedSets) -> Self:
        self._sets = sets
        return self

    def identifying_settings(self) -> list[Any]:
        return [self.seed]

    def run(self, model: FeatureExtractor) -> Evaluation:
        """Return ``fid`` and ``kid`` of every set, ``fid_halves`` of the photos.

        Photos without an edit, and their reconstructions, are left out.
        """
        items = self._items()
        features = np.concatenate(
            [_extract(model, joined, shown, self.batch_size) for joined, shown in self._shown()]
        )
        sets, photos = np.asarray(items["set"]), np.asarray(items["photos"])
        by_set = {
            str(name): features[(sets == name) & (photos == "edited")]
            for name in dict.fromkeys(sets.tolist())
        }
        original = by_set.pop(ORIGINAL)
        dim = features.shape[1]
        small = [f"{n} ({len(some)})" for n, some in {**by_set, ORIGINAL: original}.items()
                 if len(some) <= dim]  # fmt: skip
        if small:
            say(
                f"{self.name}: fewer images than the {dim} features in {', '.join(small)}: FID is "
                "far above its value for many images; compare it with fid_halves, and use KID, "
                "which is unbiased"
            )
        order = generator(self.seed, "halves").permutation(len(original))
        comparisons = [("fid_halves", ORIGINAL, original[order[::2]], original[order[1::2]])]
        for name, values in by_set.items():
            comparisons += [(metric, name, values, original) for metric in ("fid", "kid")]
        outcomes = []
        for metric, name, first, second in comparisons:
            if min(len(first), len(second)) < 2:
                say(f"{self.name}: {metric} of {name} is left out: there are {len(first)} images")
                continue
            measure = kernel_distance if metric == "kid" else frechet_distance
            value, by = measure(first, second), {"set": name}
            outcomes.append(
                Outcome(str(self.name), metric, value, len(first), "lower", "distance", by)
            )
        if not outcomes:
            raise UserError(
                f"{self.data}: FID and KID compare sets of two or more images, and there is "
                f"{len(original)} photo with an edit: name shards of more photos"
            )
        return Evaluation(outcomes, items)


def _extract(model: FeatureExtractor, sets: JoinedSets, shown: np.ndarray, size: int) -> np.ndarray:
    """Return the features of the rows that are items, float32 (items, dim)."""
    rows = sets.rows[shown]

    def compute(places: list[int]) -> Iterator[np.ndarray]:
        import torch

        pixels = Pixels(sets.index, rows[places])
        batches = pixels.batches(model.transform, size)
        for batch in watch(batches, "extracting features", len(places), "images", len):
            with torch.inference_mode():
                features = model.extract(torch.from_numpy(batch)).float().cpu().numpy()
            check_outputs(model, features)
            yield features

    return compute_distinct(image_keys(sets.index, rows), compute)


@dataclass
class CaptionPerplexity(JoinedBenchmark):
    """Perplexity of the photos' captions and of the edited ones under a language model.

    Args:
        data: shards of photos with their edits; the edits are the set ``edited``.
        name: the name in tables, ending in "_perplexity"; ``None`` takes the folder's name.
        without_leaks: whether to leave out photos that the run was trained on, with everything made
            from them.
        random: shards of edits of random words (LANCE-R), the set ``random``; ``None`` omits it.
        more: {name: shards} of further sets, such as the oracle's edits.
        control: the kind of edit that changes nothing: photos that are only inverted and redrawn.
    """

    batch_size: Positive = field(default=256, init=False)

    kind: ClassVar[str] = "perplexity"
    item_schema: ClassVar[ItemSchema] = ItemSchema(
        "the caption of an image", (*JOINED_ITEMS, ItemColumn("perplexity", "per token"))
    )
    needs: ClassVar[type] = LanguageModel

    def use(self, *sets: JoinedSets) -> Self:
        self._sets = sets
        return self

    def run(self, model: LanguageModel) -> Evaluation:
        """Return ``perplexity``, the mean over captions, of every set and kind of edit.

        The captions of photos without an edit count only for ``original`` and ``reconstruction``.
        """
        items = self._items()
        texts = list(dict.fromkeys(items["text"]))
        known = dict(zip(texts, model.perplexity(texts).tolist(), strict=True))
        values = np.array([known[text] for text in items["text"]])
        outcomes = []
        sets, kinds = np.asarray(items["set"]), np.asarray(items["kind"])
        for name in dict.fromkeys(sets.tolist()):
            parts: list[dict[str, str]] = [{"set": name}]
            if name not in (ORIGINAL, RECONSTRUCTION):
                parts += [{"set": name, "kind": kind} for kind in np.unique(kinds[sets == name])]
            else:
                parts.append({"set": name, "photos": "edited"})
            for by in parts:
                chosen = np.all([np.asarray(items[k]) == v for k, v in by.items()], axis=0)
                if chosen.any():
                    mean, n = float(values[chosen].mean()), int(chosen.sum())
                    outcomes.append(
                        Outcome(str(self.name), "perplexity", mean, n, "lower", "per token", by)
                    )
        return Evaluation(outcomes, {**items, "perplexity": values})
