"""The run under test and its model, as a benchmark sees them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.worlds import is_world

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.mixture.leakage import Leaks
    from cfaug.data.mixture.near_duplicates import NearRule
    from cfaug.data.questions import QuestionImage
    from cfaug.data.sources.row import Reader
    from cfaug.evaluation.edit_masks import EditOracle


# The run under test, as a suite sees it: how to open data, and which rows were held out.

NAMED = 3
"""Groups that a message names."""


@dataclass(frozen=True)
class EvaluationContext:
    """The run or checkpoint under test.

    Attributes:
        open: a function that opens a folder, or ``shapescapes:PART`` of the run's own world.
        held_out: a function that returns an index and the rows of it that the experiment held out
            as its test set; ``None`` if it held out nothing.
        labels: a function that returns the file of human labels for a path, or for
            ``shapescapes:PART``, the answers of the world's oracle about a part of pairs.
        training: a function that returns (index, rows) of every source the run was trained on;
            empty for a checkpoint.
        trained_on: the sources whose rows the run may have trained on; empty for a checkpoint.
        counterfactual_holdout: the share of counterfactual sets that the run kept out of training.
        validation: a function that returns an index and the rows of it that the run validated on;
            ``None`` if it validated on nothing.
        withheld: a function that returns the groups, uint64 ascending, whose counterfactual sets
            the run's experiment kept out of every arm; ``None`` if it kept out none.
        read: a function that opens a folder with a given reader, if the folder does not show which
            reader it needs.
        has_hypotheses: whether the run learnt from labelled hypotheses.
        questions: a function that opens a set of questions about images.
        has_questions: whether the run learnt from questions about images.
        has_labels: whether the run learnt the classes of images.
        trained_questions: a function that returns the images about which the run learnt from
            questions, each with all questions of its set; empty for a checkpoint.
        features: folder of cached features; ``None`` if there is no cache.
        oracle: a function that returns the truth about edits of photos of the embedded world.
        near: the rule about near-duplicates of training images; ``None`` if they are not looked
            for.
    """

    open: Callable[[str], Index]
    has_world: bool
    held_out: Callable[[], tuple[Index, np.ndarray] | None]
    labels: Callable[[str], Path] = Path
    training: Callable[[], Sequence[tuple[Index, np.ndarray]]] = tuple
    trained_on: Collection[str] = field(default_factory=frozenset)
    counterfactual_holdout: float = 0.0
    validation: Callable[[], tuple[Index, np.ndarray]] | None = None
    withheld: Callable[[], np.ndarray | None] = lambda: None
    read: Callable[[Reader, str], Index] | None = None
    has_hypotheses: bool = False
    questions: Callable[[str], Sequence[QuestionImage]] | None = None
    has_questions: bool = False
    has_labels: bool = False
    trained_questions: Callable[[], Sequence[QuestionImage]] = tuple
    features: Path | None = None
    oracle: Callable[[], EditOracle] | None = None
    near: NearRule | None = None

    def withheld_rows(self, source: str, share: float) -> np.ndarray:
        """Return the rows of ``source`` that belong to the withheld share of its sets."""
        from cfaug.data.mixture.leakage import withhold
        from cfaug.data.mixture.mixture import holds_counterfactuals

        trained_on = self._trained_on(source)
        if not trained_on and not holds_counterfactuals(self.open(source)):
            raise UserError(
                f"benchmark.counterfactual_holdout={share} asks about counterfactual sets that a "
                f"run kept out of training, and {source} has none, only single images: leave it out"
            )
        if self.counterfactual_holdout != share and trained_on:
            raise UserError(
                f"the run trained on {source} with "
                f"data.counterfactual_holdout={self.counterfactual_holdout}, so the "
                f"{share:.0%} of its sets in this test may be among its training data; train with "
                f"data.counterfactual_holdout={share}"
            )
        return withhold(self.open(source), share).rows

    def unseen_rows(self, source: str) -> np.ndarray:
        """Return the rows of ``source`` whose group the run's experiment kept out of its sets.

        ``source`` may be another folder than the run trained on: groups are compared by name. All
        rows of such a group count, whether or not its sets were used, so every arm of the
        experiment is tested on the same rows.
        """
        from cfaug.data.mixture.records import is_among

        withheld = self.withheld()
        if withheld is None:
            raise UserError(
                "no subject was held out (data.counterfactual_holdout=0): train with "
                "data.counterfactual_holdout=0.3, which keeps the sets of some subjects out of "
                "every arm, or ask about all with benchmark.subjects=all"
            )
        groups = np.asarray(self.open(source).groups)
        rows = np.flatnonzero(is_among(groups, withheld))
        if not len(rows):
            raise UserError(
                f"{source} shows none of the subjects that the run's sets leave out: name the sets "
                "that it was trained on, or others of the same subjects"
            )
        index = self.open(source)
        leaked = rows[is_among(np.asarray(index.groups)[rows], self.trained_groups())]
        if len(leaked):
            names = sorted({index.group_name(int(row)) for row in leaked})
            more = ", ..." if len(names) > NAMED else ""
            raise UserError(
                f"{source}: the run was trained on {len(names)} of the subjects it should not have "
                f"seen ({', '.join(names[:NAMED])}{more}): take them out of data.real, or name "
                "other sets"
            )
        return rows

    def trained_groups(self) -> np.ndarray:
        """Return the groups the run was trained on, uint64 ascending; empty for a checkpoint."""
        groups = [np.asarray(index.groups)[rows] for index, rows in self._trained_rows]
        return np.unique(np.concatenate([np.empty(0, np.uint64), *groups]))

    def _trained_on(self, source: str) -> bool:
        """Return whether the run trained on a source, under this or another path."""
        if source in self.trained_on or is_world(source):
            return source in self.trained_on
        content = self.open(source).hash
        folders = (name for name in self.trained_on if not is_world(name))
        return any(self.open(name).hash == content for name in folders)

    @cached_property
    def _trained_rows(self) -> Sequence[tuple[Index, np.ndarray]]:
        return self.training()

    def leaks(self, source: str, rows: np.ndarray | None = None) -> Leaks | None:
        """Return the rows of ``source`` whose image or COCO photo was trained on.

        ``None`` for a checkpoint, whose training is unknown, and on the world, whose tests are
        drawn separately from its training scenes, unless near-duplicates are looked for.

        Args:
            source: the folder or world of the test.
            rows: the rows of it to check; ``None`` for all.
        """
        trained = () if is_world(source) and self.near is None else self._trained_rows
        if not trained:
            return None
        from cfaug.data.mixture.leakage import find_leaks

        return find_leaks(trained, self.open(source), rows)

    def apart_from_training(
        self,
        source: str,
        rows: np.ndarray | None = None,
        *,
        without_leaks: bool,
        whole_sets: bool = False,
    ) -> tuple[np.ndarray | None, Leaks | None]:
        """Return the rows of ``source`` to test on, and the leaks among them.

        Near-duplicates are left out, reported or refused by ``near``, all others by the benchmark.

        Args:
            source: the folder or world of the test.
            rows: the rows of it to use; ``None`` for all, returned as it is if none is left out.
            without_leaks: whether to leave out images that were trained on, or whose COCO photo.
            whole_sets: whether to leave out whole sets, as tests of pairs do, rather than single
                images.

        Raises:
            UserError: if near-duplicates are refused, or nothing is left.
        """
        leaks = self.leaks(source, rows)
        if leaks is None:
            return rows, None
        index = self.open(source)
        every = np.arange(len(index)) if rows is None else rows
        left_out = np.isin(every, leaks.rows) & without_leaks
        why = str(leaks)
        if self.near is not None:
            from cfaug.data.mixture.near_duplicates import find_near_duplicates

            near = find_near_duplicates([(index, every)], self._trained_rows, self.near, "test")
            leaks = replace(leaks, near=near)
            if near.pairs and self.near.action == "refuse":
                raise UserError(
                    f"{source}: {near}, such as {near.pairs[0]}: data.near_duplicates=leave_out "
                    "leaves them out, report lists them with pictures"
                )
            if near.pairs and self.near.action == "leave_out":
                images = np.asarray(index.images)
                left_out |= np.isin(images[every], images[near.rows(index)])
                why = str(near)
        if not left_out.any():
            return rows, leaks
        if whole_sets:
            sets = np.asarray(index.sets)[every]
            left_out = np.isin(sets, sets[left_out])
        if left_out.all():
            setting = "without_leaks=true" if without_leaks else "data.near_duplicates=leave_out"
            raise UserError(f"{source}: {why}; {setting} leaves nothing to ask about")
        kept = every[~left_out]
        remaining = self.leaks(source, kept)
        return kept, None if remaining is None else replace(remaining, near=leaks.near)

    def edited_rows(self, source: str, pairs: str) -> np.ndarray:
        """Return the rows of ``source`` that are the originals of ``pairs``."""
        from cfaug.data.mixture.pool import match_edited_rows

        return np.flatnonzero(match_edited_rows(self.open(source), self.open(pairs)).rows)

    def validated_rows(self, source: str, labels: str) -> np.ndarray:
        """Return the rows of ``source`` whose image most annotators matched to its own caption."""
        from cfaug.data.mixture.pool import read_labels

        return np.flatnonzero(read_labels(self.labels(labels)).find_validated(self.open(source)))
