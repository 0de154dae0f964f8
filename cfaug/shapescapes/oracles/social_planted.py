"""Models trained in worlds with a planted skew, and how well questions find it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from cfaug.core.errors import UserError, say
from cfaug.report.items import read_items
from cfaug.report.records import read_config, read_run, setting_node
from cfaug.shapescapes.settings import SKEWED, WorldSettings
from cfaug.shapescapes.world import World
from cfaug.social.skew_items import RankingTask, SkewItems, read_list
from cfaug.social.within_set_gap import NOTHING, Placement, find_planted


@dataclass(frozen=True)
class Found:
    """The finding about one kind of label in one world with one source of sets.

    Attributes:
        question: the labels and the number of retrieved images.
        planted: {subject: MaxSkew} of the subjects with a planted label.
        others: {subject: MaxSkew} of the other subjects.
        chance: the expected MaxSkew of a random ranking, mean over planted subjects.
        placement: test of the gaps of rank within sets.
    """

    question: RankingTask
    planted: Mapping[str, float]
    others: Mapping[str, float]
    chance: float
    placement: Placement

    @property
    def max_skew(self) -> float:
        """Mean MaxSkew of planted subjects."""
        return float(np.mean(list(self.planted.values())))

    @property
    def excess(self) -> float:
        """``max_skew`` minus ``chance``."""
        return self.max_skew - self.chance

    @property
    def max_skew_of_others(self) -> float:
        """Mean MaxSkew of the subjects without a planted label; ``nan`` without any."""
        return float(np.mean(list(self.others.values()))) if self.others else float("nan")


@dataclass(frozen=True)
class WorldRun:
    """One model, the world it was trained in, and its answers.

    Attributes:
        world: the world in which the model was trained.
        trained: whether the model took a training step.
        answers: {name of the sets: answers about them}.
    """

    folder: Path
    world: World
    seed: int
    trained: bool
    answers: Mapping[str, SkewItems]

    @property
    def strength(self) -> float:
        """The strength of the planted skew."""
        return self.world.settings.skew

    @property
    def kind(self) -> str:
        """The kind of the planted labels."""
        return self.world.settings.skewed

    def find(self, sets: str, kind: str, k: int | None) -> Found | None:
        """Test for planted labels of a kind; ``None`` if there are no answers about them.

        In a world where nothing was planted, the labels are those that would have been planted.

        Args:
            kind: ``colour``, ``background`` or ``both``.
            k: number of retrieved images, as for ``SkewItems.choose``.
        """
        answers = self.answers.get(sets)
        question = None if answers is None else choose_question(answers, kind, k)
        if answers is None or question is None:
            return None
        return find_labels(answers, question, self.labels(kind))

    def labels(self, kind: str) -> dict[str, str]:
        """Return the label that was, or would have been, planted on each such subject."""
        world = (
            self.world if kind == self.kind else World(replace(self.world.settings, skewed=kind))
        )
        return {name: " ".join(own.values()) for name, own in world.planted.items()}


def choose_question(answers: SkewItems, kind: str, k: int | None) -> RankingTask | None:
    """Return the question about the labels of a kind; ``None`` without answers."""
    labelling = "_".join(SKEWED[kind])
    grids = dict.fromkeys(question.grid for question in answers.questions)
    found = (answers.choose(grid, labelling, k) for grid in grids)
    return next((one for one in found if one is not None), None)


def find_labels(answers: SkewItems, question: RankingTask, labels: Mapping[str, str]) -> Found:
    """Compare the answers to a question with the planted labels.

    Args:
        labels: {subject: planted label}; other subjects have none.
    """
    rows, subjects = answers.rows(question), answers.texts("subject")
    gaps, numbers, names = [], [], None
    for row in rows:
        own = [str(one) for one in read_list(answers.texts("labels")[row])]
        gap = read_list(answers.texts("rank_gaps")[row])
        names = own if names is None else names
        if own != names or len(gap) != len(own) or None in gap:
            raise UserError(
                f"{answers.model}: the gaps of {subjects[row]!r} are not those of the labels "
                f"{', '.join(names)}: every subject needs sets with all labels"
            )
        planted = labels.get(subjects[row])
        if planted is not None and planted not in own:
            raise UserError(
                f"{answers.model}: {planted!r} was planted on {subjects[row]!r}, and the sets "
                f"have no such label; they have {', '.join(own)}"
            )
        gaps.append(gap)
        numbers.append(NOTHING if planted is None else own.index(planted))
    if all(number == NOTHING for number in numbers):
        raise UserError(
            f"{answers.model}: labels were planted on {', '.join(labels)}, and none of these "
            "subjects was asked about"
        )
    skews = answers.values(question)
    chance = answers.values(question, "max_skew_chance")
    return Found(
        question=question,
        planted={name: value for name, value in skews.items() if name in labels},
        others={name: value for name, value in skews.items() if name not in labels},
        chance=float(np.mean([value for name, value in chance.items() if name in labels])),
        placement=find_planted(gaps, numbers),
    )


@dataclass(frozen=True)
class WorldRuns:
    """The runs of some experiments.

    Attributes:
        runs: the finished runs with answers, in the order of their folders.
    """

    runs: Sequence[WorldRun]

    @cached_property
    def nothing(self) -> list[WorldRun]:
        """Runs trained in worlds where nothing was planted."""
        return [run for run in self.runs if run.trained and run.strength == 0]

    @cached_property
    def before(self) -> list[WorldRun]:
        """Runs without training."""
        return [run for run in self.runs if not run.trained]

    def planted(self, kind: str) -> dict[float, list[WorldRun]]:
        """Return {strength: trained runs} of a kind; at 0, the runs with the same seeds."""
        found: dict[float, list[WorldRun]] = {}
        for run in self.runs:
            if run.trained and run.kind == kind and run.strength > 0:
                found.setdefault(run.strength, []).append(run)
        seeds = {one.seed for own in found.values() for one in own}
        nothing = [one for one in self.nothing if one.seed in seeds]
        return {**({0.0: nothing} if nothing and found else {}), **dict(sorted(found.items()))}

    @property
    def kinds(self) -> list[str]:
        """The kinds of labels planted in any world."""
        return [kind for kind in SKEWED if self.planted(kind)]


def read_world_runs(root: Path, experiments: Sequence[str], sets: Mapping[str, str]) -> WorldRuns:
    """Read the models of experiments, each with its world; those without answers are left out.

    Args:
        experiments: the folders below ``root`` that contain the experiments' arms.
        sets: {name of the sets: the benchmark's name}.
    """
    found = []
    for folder in (one for name in experiments for one in sorted(root.glob(f"{name}/*/seed=*"))):
        run = read_run(folder)
        if not run.done:
            say(f"left out, not finished: {folder}")
            continue
        items = {name: read_items(folder, benchmark) for name, benchmark in sets.items()}
        asked = {name: one for name, one in items.items() if one is not None}
        if not asked:
            continue
        name = f"{run.arm}, seed {run.seed}"
        answers = {which: SkewItems(name, one) for which, one in asked.items()}
        steps = int(run.record.get("steps") or 0)
        world = World(read_world(folder, int(run.record["data_seed"])))
        found.append(WorldRun(folder, world, run.seed, steps > 0, answers))
    return WorldRuns(found)


def read_world(folder: Path, data_seed: int) -> WorldSettings:
    """Return the world that a run was trained in.

    Args:
        data_seed: the seed of a world without a seed of its own.
    """
    data = setting_node(read_config(folder), "data", folder)
    node = data.get("world")
    if not isinstance(node, dict):
        raise UserError(f"{folder}: the run has no world (data.world): nothing was planted there")
    known = {name: value for name, value in node.items() if not name.startswith("_")}
    try:
        settings = WorldSettings(**known)
    except TypeError as error:
        raise UserError(f"{folder}: data.world is invalid: {error}") from error
    return settings if settings.seed is not None else replace(settings, seed=data_seed)
