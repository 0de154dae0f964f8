"""Matching gaps of counterfactual pairs: how much less sure a model is of them than of random ones.

COCO-Counterfactuals, section 4.2.2, Figure 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cfaug.bench.cached_model import CachedMatcher
from cfaug.bench.embed import check_outputs, decoded
from cfaug.bench.feature_cache import batch_keys, image_keys, recalled, text_keys
from cfaug.bench.identity import fingerprint
from cfaug.data.planning.caption_matching import normalise
from cfaug.errors import UserError
from cfaug.metrics.matching import SCORES, gaps
from cfaug.progress import watch
from cfaug.rng import derive
from cfaug.types import Outcome

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.planning.leakage import Leaks
    from cfaug.protocols import Matcher

Asked = tuple[str, "Index", np.ndarray, list[str]]
"""A score's name, and whose images at which rows are scored with which texts."""


@dataclass(frozen=True)
class PairScores:
    """What a model said of every pair.

    Attributes:
        pairs: the key of each pair's first member.
        anchors: the key of its caption's photograph, ``None`` where there is none.
        random: the key of the random pair it was held against, or ``None``.
        kind: what the scores are: "cosine x scale", "probability" or "logit".
        scores: by the names of ``cfaug.metrics.matching.SCORES``, float64 (pairs,), ``nan`` where
            there is no anchor.
    """

    pairs: list[str]
    anchors: list[str | None]
    random: list[str | None]
    kind: str
    scores: dict[str, np.ndarray]

    def rows(self) -> list[dict[str, Any]]:
        """Return a JSON object a pair: its keys, scores and gaps, ``None`` where there is none."""
        columns = {**self.scores, **found_gaps(self)}
        values = {
            name: [None if np.isnan(value) else float(value) for value in column]
            for name, column in columns.items()
        }
        return [
            {
                "pair": pair, "anchor": self.anchors[i], "random": self.random[i],
                **{name: column[i] for name, column in values.items()},
            }
            for i, pair in enumerate(self.pairs)
        ]  # fmt: skip


class Matching:
    """Scores every counterfactual pair, and a random pair of photographs for the same anchor.

    Args:
        name: the benchmark's, as tables show it.
        pairs: sets of two members, the original (C_o, I_o^s) first.
        real: the captions' photographs (C_o, I_o); ``None`` leaves the random gaps out. A row is
            found by its caption within the pair's group, or by a caption that comes once.
        seed: of the random pairs, keyed by pair.
        rows: which rows of ``pairs``, of whole sets; ``None`` is all.
        batch_size: pairs scored at once.
        leaks: the images among them that the run was trained on, where that was looked for.

    Raises:
        UserError: if a set does not have two members, or no caption is among the photographs'.
    """

    needs: Literal["matcher"] = "matcher"

    def __init__(
        self,
        name: str,
        pairs: Index,
        real: Index | None,
        *,
        seed: int = 0,
        rows: np.ndarray | None = None,
        batch_size: int = 64,
        leaks: Leaks | None = None,
    ) -> None:
        self.name = name
        self.leaks = leaks
        self._pairs, self._real = pairs, real
        self._rows = rows
        self._batch_size, self._seed = batch_size, seed
        chosen = np.arange(len(pairs)) if rows is None else rows
        sets = np.asarray(pairs.sets)[chosen]
        _, counts = np.unique(sets, return_counts=True)
        if not len(counts) or (counts != 2).any():
            raise UserError(f"{name}: every set must have two members; {pairs.source} has others")
        members = chosen[np.argsort(sets, kind="stable")].reshape(-1, 2)
        self._first, self._second = members[:, 0], members[:, 1]
        self._anchored = np.zeros(len(members), bool)
        if real is not None:
            self._anchor = _anchors(pairs, self._first, real)
            self._anchored = self._anchor >= 0
            if not self._anchored.any():
                raise UserError(
                    f"{name}: none of the {len(members)} captions of {pairs.source} is a caption "
                    f"of {real.source}; benchmark.real should be the photographs they were edited "
                    "from"
                )
            self._random = _random_rows(pairs, self._first, real, self._anchor, seed)

    @property
    def data_hash(self) -> str:
        """What was asked about, as a hash."""
        real = "" if self._real is None else self._real.hash
        asked = [] if self._rows is None else [self._rows]
        return fingerprint(self._pairs.hash, real, self._seed, *asked)

    def score(self, matcher: Matcher | CachedMatcher) -> PairScores:
        """Ask for every score the gaps need: six a pair with a photograph, else three."""
        found = {}
        kinds = {"r": self._anchored, "c": np.ones(len(self._first), bool)}
        for asked in self._asked():
            name = asked[0]
            among = kinds["r" if name in SCORES["r"] else "c"]
            values = np.full(len(self._first), np.nan)
            values[among] = _match(matcher, asked, self._batch_size)
            found[name] = values
        return PairScores(
            pairs=[self._pairs.key(int(row)) for row in self._first],
            anchors=self._keys("_anchor"),
            random=self._keys("_random"),
            kind=matcher.kind,
            scores=found,
        )

    def run(self, matcher: Matcher | CachedMatcher) -> list[Outcome]:
        """Return the share of pairs with each gap above zero: ``IR_r``, ``TR_r``, ``IR_c``, ..."""
        return self.outcomes(self.score(matcher))

    def outcomes(self, found: PairScores) -> list[Outcome]:
        """Return the rows of results for scores that were found."""
        rows = []
        for name, gap in found_gaps(found).items():
            known = gap[np.isfinite(gap)]
            rows.append(Outcome(self.name, name, float((known > 0).mean()), len(known)))
        return rows

    def _keys(self, column: str) -> list[str | None]:
        if self._real is None:
            return [None] * len(self._first)
        rows = getattr(self, column)
        return [
            self._real.key(int(row)) if there else None
            for row, there in zip(rows, self._anchored, strict=True)
        ]

    def _asked(self) -> list[Asked]:
        pairs, first, second = self._pairs, self._first, self._second
        original, edited = _texts(pairs, first), _texts(pairs, second)
        asked: list[Asked] = []
        if self._real is not None:
            real, here = self._real, self._anchored
            anchor, random = self._anchor[here], self._random[here]
            said = _texts(real, random)
            asked += zip(
                SCORES["r"],
                [real] * 3,
                [random, anchor, random],
                [said, said, _texts(real, anchor)],
                strict=True,
            )
        asked += zip(
            SCORES["c"],
            [pairs] * 3,
            [second, first, second],
            [edited, edited, original],
            strict=True,
        )
        return asked


def found_gaps(found: PairScores) -> dict[str, np.ndarray]:
    """Return the gaps of all pairs, float64 (pairs,), ``nan`` where a pair has no photograph.

    Raises:
        UserError: if a score that was asked for is not finite.
    """
    whole = {}
    asked = {"r": np.array([key is not None for key in found.anchors])}
    asked["c"] = np.ones_like(asked["r"])
    for kind, names in SCORES.items():
        if names[0] not in found.scores:
            continue
        there = asked[kind]
        for score in names:
            lost = int((~np.isfinite(found.scores[score][there])).sum())
            if lost:
                raise UserError(
                    f"{score} of {lost} of {int(there.sum())} pairs is NaN or infinite: the model "
                    "has diverged; train it again with a smaller optim.lr"
                )
        for name, gap in gaps({n: found.scores[n][there] for n in names}).items():
            whole[name] = np.full(len(there), np.nan)
            whole[name][there] = gap
    return whole


def _match(matcher: Matcher | CachedMatcher, asked: Asked, size: int) -> np.ndarray:
    """Return what a matcher says of images with texts, float32 (pairs,), known or computed."""
    if not isinstance(matcher, CachedMatcher):
        return np.concatenate(list(_batches(matcher, asked, size)))
    name, index, rows, texts = asked

    def compute(missing: list[int]) -> Iterator[np.ndarray]:
        some = name, index, rows[missing], [texts[at] for at in missing]
        return _batches(matcher.model, some, size)

    keys = batch_keys(image_keys(index, rows), text_keys(texts), size)
    return recalled(matcher.scores, keys, compute)


def _batches(matcher: Matcher, asked: Asked, size: int) -> Iterator[np.ndarray]:
    import torch

    name, index, rows, texts = asked
    batches = decoded(index, rows, matcher.transform, size)
    what = f"matching ({name})"
    for i, pixels in enumerate(watch(batches, what, len(rows), "pairs", len)):
        with torch.inference_mode():
            scores = matcher.match(torch.from_numpy(pixels), texts[i * size : (i + 1) * size])
        found = scores.float().cpu().numpy()
        check_outputs(matcher, found)
        yield found


def _texts(index: Index, rows: np.ndarray) -> list[str]:
    return [index.text(int(row)) for row in rows]


def _anchors(pairs: Index, first: np.ndarray, real: Index) -> np.ndarray:
    """Return the row of ``real`` that each pair's original caption came from, -1 for none."""
    within: dict[tuple[int, str], int] = {}
    anywhere: dict[str, int] = {}
    for row in range(len(real)):
        text = normalise(real.text(row))
        within.setdefault((int(real.groups[row]), text), row)
        anywhere[text] = -1 if text in anywhere else row
    found = []
    for row in first.tolist():
        text = normalise(pairs.text(row))
        found.append(within.get((int(pairs.groups[row]), text), anywhere.get(text, -1)))
    return np.array(found)


def _random_rows(
    pairs: Index, first: np.ndarray, real: Index, anchor: np.ndarray, seed: int
) -> np.ndarray:
    """Draw another photograph's row for each anchored pair, by the pair's key alone."""
    images = np.asarray(real.images)
    if len(np.unique(images)) < 2:
        raise UserError(f"{real.source} has one image; a random pair needs another")
    found = np.full(len(first), -1)
    for i, (row, own) in enumerate(zip(first.tolist(), anchor.tolist(), strict=True)):
        if own < 0:
            continue
        tries = 0
        while found[i] < 0 or images[found[i]] == images[own]:
            found[i] = derive(seed, "matching", pairs.key(row), tries) % len(images)
            tries += 1
    return found
