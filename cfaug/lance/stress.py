"""How much worse is a classifier on edits of its test photos? ``benchmark=stress``.

LANCE (Prabhu et al., 2023), section 4. A photo, its reconstruction and its edits are one set of the
shards. The items, one row per image, contain all that pages and insights need:

* ``item``: ``<set>/<key>_<member>``; ``cluster``: the photo;
* ``set``: ``original`` (the photos), ``reconstruction``, ``edited`` (of ``benchmark.data``),
  ``random`` (of ``benchmark.random``) or a name of ``benchmark.more``;
* ``photo``: item of the photo that it was made from; ``photos``: ``edited`` if its shards have an
  edit of that photo (the paper's 576 photos), else ``unedited``, also for photos with edits only in
  ``benchmark.random`` and ``more``;
* ``kind``: kind of the edit: ``original``, ``reconstruction``, ``subject``, ``background``, ...;
* ``class``: the label; ``class_name``: the model's name of it, in words; ``class_number``: its
  index in the logits;
* ``before``, ``after``: words of the edit; ``text_before``, ``text``: captions of the photo and of
  the image;
* ``acc1``, ``acc5``: hits, 0 or 1 (a share where classes tie); ``rank``: 1 + the number of classes
  above its own;
* ``p``: probability of its class; ``p_photo``, ``p_reconstruction``: the same for its photo and for
  that photo's reconstruction; ``delta_p``: |p_photo - p|; ``p_drop``: p_photo - p;
* ``photo_acc1``, ``photo_acc5``: hits of its photo; ``paired_drop1``, ``paired_drop5``: those minus
  its own hits; ``net_drop1``, ``net_drop5``: hits of the photo's reconstruction minus its own;
* ``top1`` to ``top5``, ``top1_p`` to ``top5_p``: the most probable classes, as many as there are;
* ``source``: the folder, as it was given; ``key``, ``member``: set and number of the image there;
  ``image``: digest of its bytes; ``prompt``, ``f``: from the edit's ``extra``, where it has them;
* ``edit_group``, ``edit_centre``: where edits were clustered by their texts, the number of each
  edit's cluster, -1 for other images, and whether it is the edit that names the cluster.

Columns that do not apply are null: ``p_photo`` and those computed from it for a photo itself,
``net_drop1`` for a reconstruction as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from cfaug.core.files import read_lines
from cfaug.core.protocols import Classifier
from cfaug.core.read_with import GIVEN, MODEL, ReadWith
from cfaug.core.types import Evaluation
from cfaug.data.sources.class_names import (
    class_words,
    imagenet_names,
    make_distinct,
    prompt_names,
)
from cfaug.evaluation.classes import prompt_templates
from cfaug.evaluation.classification import PAPER_TEMPLATE, Classes
from cfaug.evaluation.classifier_outputs import classify_images
from cfaug.evaluation.embed import Pixels
from cfaug.evaluation.feature_cache import image_keys
from cfaug.lance.class_mapping import match_classes
from cfaug.lance.classifier_answers import Answers, judge
from cfaug.lance.edited_photos import JoinedBenchmark
from cfaug.lance.stress_columns import concatenate_columns, item_columns, item_names
from cfaug.lance.stress_outcomes import Part, outcomes
from cfaug.lance.stress_sets import JoinedSets

if TYPE_CHECKING:
    from cfaug.evaluation.cached_model import CachedClassifier
    from cfaug.evaluation.zero_shot import ZeroShotClassifier
    from cfaug.lance.edit_clusters import EditClusters

Compat = Literal["released"]

RELEASED_TOP = 5
"""Classes among which LANCE's released code looks for the truth; its probability is 0 elsewhere."""

IMAGENET = "imagenet"
"""Value of ``benchmark.classes`` for ImageNet's 1,000 classes, by CLIP's names."""


@dataclass
class Stress(JoinedBenchmark):
    """Accuracy on photos, their reconstructions and their edits, paired and as in the paper.

    Args:
        data: shards of photos with their edits; the edits are the set ``edited``.
        name: the name in tables, ending in "_stress"; ``None`` takes the folder's name.
        batch_size: number of images classified at once.
        without_leaks: whether to leave out photos that the run was trained on, with everything made
            from them.
        random: shards of edits of random words (LANCE-R), the set ``random``; ``None`` omits it.
        more: {name: shards} of further sets, such as the oracle's edits.
        control: the kind of edit that changes nothing: photos that are only inverted and redrawn.
        parts: columns by which ``edited`` and the other sets are also reported: ``kind``,
            ``class``.
        restrict: choose only among the labels of the test, not among all classes of the model as
            the paper does.
        compat: ``released`` sets the probability of a class that is not among the five most
            probable to 0, as LANCE's released code does; ``None`` follows the paper.
        classes: the classes a dual encoder chooses among: ``None`` is the labels of the test,
            ``imagenet`` its 1,000 classes, or a file with a line for each class. A classifier uses
            its own classes.
        templates: templates of a dual encoder's prompts, with ``{c}`` for the class name.
        clusters: the clustering of each class's edits by their differences in text, for insights
            into classes; ``None`` groups equal words.
        page: largest number of edits that ``stress.html`` shows.
        apply: words of a command, shown on the page, that applies one intervention to a whole
            class; ``{kind}``, ``{before}``, ``{after}`` and ``{label}`` are filled in.
    """

    parts: Sequence[Part] = ("kind",)
    restrict: bool = False
    compat: Compat | None = None
    classes: str | None = None
    templates: Sequence[str] = (PAPER_TEMPLATE,)
    clusters: EditClusters | None = None
    page: int = 2000
    apply: Sequence[str] = ()

    page_files: ClassVar[tuple[str, ...]] = ("stress.html", "stress.md", "insights.json")
    read_with: ClassVar[ReadWith] = {
        "classes": {MODEL: ("DualEncoder",)},
        "templates": {MODEL: ("DualEncoder",)},
        # A dual encoder chooses among the labels of the test anyway.
        "restrict": [{MODEL: ("Classifier",)}, {"classes": GIVEN}],
    }
    kind: ClassVar[str] = "stress"
    needs: ClassVar[type] = Classifier

    def ask(self, *sets: JoinedSets) -> Stress:
        """Ask about open sources, and return this benchmark.

        Args:
            sets: photos with their edits, one for each folder, the main folder first.
        """
        self._sets = sets
        self._labels = sorted({label for one in sets for label in one.labels})
        self.prompted = self._prompted()
        return self

    def _prompted(self) -> Classes:
        """Return the classes and templates for a dual encoder."""
        templates = prompt_templates(self.templates, Path(str(self.data)))
        if self.classes is None:
            return Classes(self._labels, prompt_names(self._labels), templates)
        if self.classes == IMAGENET:
            return Classes([*imagenet_names()], [*imagenet_names().values()], templates)
        lines = read_lines(Path(self.classes).expanduser())
        return Classes(lines, prompt_names(lines), templates)

    def settings_asked(self) -> list[Any]:
        """Return the settings that change the test, for ``data_hash``."""
        told: list[Any] = [*self.parts, str(self.restrict), str(self.compat)]
        if self.clusters is not None:
            told += self.clusters.identity()
        asked = self.prompted
        return [*told, list(asked.labels), list(asked.names), list(asked.templates)]

    def run(self, model: Classifier | CachedClassifier | ZeroShotClassifier) -> Evaluation:
        """Return the accuracies and drops of every set, and how the images were classified.

        Raises:
            UserError: if a label of the test is not a class of the model.
        """
        numbers = match_classes(self._labels, model.classes, "the model")
        logits, places = self._classify(model)
        classes = list(model.classes)
        if self.restrict:
            logits, classes = logits[:, numbers], [classes[n] for n in numbers]
            numbers = np.arange(len(numbers))
        named = make_distinct([class_words(name) for name in classes])  # not WordNet ids
        number = dict(zip(self._labels, numbers.tolist(), strict=True))
        top = RELEASED_TOP if self.compat == "released" else None
        columns = []
        for (one, shown), at in zip(self._shown(), places, strict=True):
            truth = np.array([number[label] for label in one.labels])
            answers: Answers = judge(logits, at, truth, named, top)
            columns.append(item_columns(one, answers, shown))
        items = concatenate_columns(columns)
        if self.clusters is not None:
            items |= self.clusters.columns(items)
        return Evaluation(outcomes(str(self.name), items, self.parts), items)

    def write_page(self, folder: Path, title: str) -> Path:
        """Show the edits, and test every drop (``stress.md``), in the folder of a run.

        Returns:
            The page.
        """
        from cfaug.lance.stress_drops import write_drops
        from cfaug.lance.stress_page import PageSettings, write_stress_pages
        from cfaug.report.items import read_items

        items = read_items(folder, str(self.name))
        if items is not None:
            write_drops(folder, title, items)
        places = {
            name: (one.index, int(row))
            for one in reversed(self._sets)  # if several have a photo, use that of the main one
            for name, row in zip(item_names(one), one.rows, strict=True)
        }

        def read_image(name: str) -> bytes:
            index, row = places[name]
            return index.read_image(row)

        settings = PageSettings(limit=self.page, command=tuple(self.apply))
        return write_stress_pages(folder, title, str(self.name), read_image, settings)

    def _classify(
        self, model: Classifier | CachedClassifier | ZeroShotClassifier
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the logits of all distinct images, and where each set's images are among them."""
        known: dict[bytes, int] = {}
        blocks, places = [], []
        for one in self._sets:
            keys = image_keys(one.index, one.rows)
            fresh: dict[bytes, int] = {}
            for at, key in enumerate(keys):
                if key not in known:
                    fresh.setdefault(key, at)
            if fresh:
                pixels = Pixels(one.index, one.rows[list(fresh.values())])
                blocks.append(classify_images(model, pixels, self.batch_size))
                known |= {key: number for number, key in enumerate(fresh, len(known))}
            places.append(np.array([known[key] for key in keys]))
        return np.concatenate(blocks), places
