"""How much of a text do methods preserve? ``benchmark=text_overlap``, which needs no model.

XMAI (Ramshetty et al., 2023), Tables 1, 2, 4 and 5: BLEU-4, METEOR and inserted words. The items,
one row per method and set:

* ``item``: ``<method>/<set>``; ``cluster``: its photo; ``method``; ``key``: the set's key, by which
  methods are compared; ``source``: the folder or file, as given;
* ``kind``: kind of the edit, null if nothing was changed; ``label``: the class, if there is one;
* ``text_before``, ``text``; ``label_kept``: see ``cfaug.xmai.label_check``;
* ``bleu``, ``meteor``; ``inserted_words``: their number; ``novel``: 1 if there are any (Table 5,
  "r/i"); ``changed``: 1 if the texts differ at all ("any").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.protocols import NoModel
from cfaug.core.read_with import ReadWith
from cfaug.core.types import Evaluation
from cfaug.data.sources.lists import LISTS
from cfaug.editing.synonyms import Synonyms
from cfaug.xmai.text_overlap_metrics import measure_overlap
from cfaug.xmai.text_pair_benchmark import Metric, TextPairBenchmark
from cfaug.xmai.text_pairs import (
    TextPairs,
    holds_edited_captions,
    read_caption_list,
    read_edited_captions,
)

if TYPE_CHECKING:
    from cfaug.evaluation.context import EvaluationContext

WORDNET = "wordnet"
"""Value of ``benchmark.synonyms`` for the WordNet found on this machine."""

OVERLAP: Mapping[str, Metric] = {
    "bleu": Metric(),
    "meteor": Metric(),
    "inserted_words": Metric(unit="words"),
    "novel": Metric(),
    "changed": Metric(),
}


def overlap_columns(pairs: TextPairs, synonyms: str | None) -> dict[str, np.ndarray]:
    """Return the columns about texts of one method, float64 (sets,).

    Args:
        pairs: the method's texts, before and after.
        synonyms: the synonyms for METEOR: ``wordnet``, or a folder of WordNet; ``None`` leaves
            METEOR out.

    Raises:
        UserError: if there is no WordNet.
    """
    known = None
    if synonyms is not None:
        known = Synonyms(None if synonyms == WORDNET else synonyms).single_words
        known("dog")  # so that a folder without WordNet is reported before a text needs a synonym
    return measure_overlap(pairs.originals, pairs.changed, known)


@dataclass
class TextOverlap(TextPairBenchmark):
    """BLEU-4, METEOR and inserted words of texts before and after methods changed them.

    Args:
        data: sets of two texts, captions that were only edited (``stage=captions``), or a list of
            modified captions (csv, tsv, json, jsonl); several, ``{METHOD: FOLDER}`` or a list, are
            compared on the captions that all of them have.
        name: the name in tables, ending in "_text_overlap"; ``None`` takes the folder's name.
        batch_size: unused, as no model is run.
        without_leaks: whether to leave out sets of photos that a run was trained on, if a run is
            given.
        answers: people's answers about the texts, a file or ``{METHOD: FILE}``.
        synonyms: the synonyms for METEOR: ``wordnet``, or a folder of WordNet; ``None`` leaves
            METEOR out.
    """

    synonyms: str | None = WORDNET

    kind: ClassVar[str] = "text_overlap"
    needs: ClassVar[type] = NoModel
    read_with: ClassVar[ReadWith] = {"batch_size": ()}

    def read(self, context: EvaluationContext, method: str, source: str) -> TextPairs:
        """Return the texts of a folder of sets, of edited captions, or of a list."""
        file = Path(source).expanduser()
        listed = file.suffix.lower() in LISTS and file.is_file()
        if not listed and not (file.is_dir() and holds_edited_captions(file)):
            return super().read(context, method, source)
        if self.without_leaks:
            raise UserError(
                f"benchmark.without_leaks=true would have no effect: {source} has texts without "
                "photos; leave it out"
            )
        return read_caption_list(method, file) if listed else read_edited_captions(method, file)

    def settings_asked(self) -> list[Any]:
        """Return the settings that change the metrics, for ``data_hash``."""
        return [self.synonyms]

    def run(self, model: NoModel) -> Evaluation:
        """Return the mean of each measure by method, and the spread of inserted words."""
        items = self.pair_columns()
        found = [overlap_columns(one, self.synonyms) for one in self._pairs]
        items |= {name: np.concatenate([one[name] for one in found]) for name in found[0]}
        return Evaluation([*self.means(items, OVERLAP), *self.spreads(items)], items)
