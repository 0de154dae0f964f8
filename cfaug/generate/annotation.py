"""The stage before editing: annotators describe examples, and their results are cached.

Results are cached by content, so that neither a resumed run nor another run over the same images
runs a model again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.progress import Progress
from cfaug.core.protocols import Annotator
from cfaug.core.types import Example
from cfaug.core.validation import Positive, check
from cfaug.core.weights import sha256_text
from cfaug.generate.annotators import NO_TEXT, Annotation, AnnotationCache
from cfaug.generate.failures import Attempt, Failure, Rejection, attempt, check_json, check_results

SECONDS_AT_RISK = 20.0
"""Longest time until results are written: a killed process loses no more than this."""


@dataclass(frozen=True)
class AnnotationStage:
    """Adds the results of annotators to examples, one annotator after another.

    Annotators get batches of ``batch`` different contents, in the order of the examples and
    whatever the cache holds, so that a resumed run gives the same bytes as an uninterrupted one.

    Args:
        annotators: the annotators in the order in which they see an example; each sees the results
            of those before it.
        cache: the folder in which results are kept; ``None`` keeps them only in memory.
        texts_from: the name of an annotation that is a list of texts, used as the texts of examples
            without any; ``None`` leaves the texts unchanged.
        replace_texts: whether these texts also replace the texts of examples that have some.
    """

    annotators: Sequence[Annotator]
    cache: Path | None = None
    batch: int = 16
    texts_from: str | None = None
    replace_texts: bool = False

    def __post_init__(self) -> None:
        names = [annotator.name for annotator in self.annotators]
        for name in names:
            if names.count(name) > 1:
                raise UserError(f"the annotator {name!r} is duplicated: give each its own name")
        check(self.batch, Positive, "batch")

    @cached_property
    def _caches(self) -> list[AnnotationCache | None]:
        return [
            AnnotationCache(self.cache, annotator.identity()) if annotator.reads else None
            for annotator in self.annotators
        ]

    def annotate(self, examples: Sequence[Example]) -> Attempt[Example]:
        """Annotate the examples of one shard, or of a whole source.

        Returns:
            The annotated examples by their place, and the failed and rejected ones with the reason.
            Failures are not cached: the next run tries again.
        """
        done = dict(enumerate(examples))
        failed: dict[int, Failure] = {}
        for annotator, kept in zip(self.annotators, self._caches, strict=True):
            indices = list(done)
            some = [done[i] for i in indices]
            _refuse_twice(some, annotator.name)
            if kept is None:
                attempted = attempt(some, _checked(annotator), lambda example: example.key)
            else:
                attempted = _ask(some, annotator, kept, self.batch)
            failed |= {indices[row]: failure for row, failure in attempted.lost_by_place().items()}
            done = {}
            for row, annotation in sorted(attempted.done.items()):
                for name in sorted(annotation):
                    _refuse_twice([some[row]], name)
                done[indices[row]] = replace(some[row], extra={**some[row].extra, **annotation})
        if self.texts_from is not None:
            name = self.texts_from
            for place, example in list(done.items()):
                if example.texts and not self.replace_texts:
                    continue
                given = example.extra.get(name)
                if not isinstance(given, Sequence) or isinstance(given, str):
                    raise UserError(
                        f"example {example.key!r} has no texts, and no list of texts named "
                        f"{name!r} from an annotator; it has "
                        f"{', '.join(sorted(example.extra)) or 'no annotations'}"
                    )
                texts = tuple(t for t in given if not isinstance(t, str) or t.strip())
                if texts:
                    done[place] = replace(example, texts=texts)
                else:
                    reason = f"the annotation {name!r} has no text for it"
                    failed[place] = Rejection(example.key, reason, NO_TEXT)
                    del done[place]
        return Attempt(done, failed)

    def identities(self) -> dict[str, str]:
        """Return, for each annotator, a hash of its weights and of the settings that matter."""
        return {
            f"annotator {annotator.name} (identity)": annotator.identity()
            for annotator in self.annotators
        }

    def describe(self) -> dict[str, str]:
        """Return names, revisions and hashes of the weights, for the card."""
        return {
            name: value
            for annotator in self.annotators
            for name, value in annotator.describe().items()
        }


def _checked(annotator: Annotator) -> Callable[[Sequence[Example]], list[Annotation]]:
    """Return a function that runs an annotator and refuses results other than JSON by name."""
    part = f"annotator {annotator.name!r}"

    def annotate(examples: Sequence[Example]) -> list[Annotation]:
        results = check_results(annotator.annotate(examples), examples, part)
        for example, annotation in zip(examples, results, strict=True):
            check_json(annotation, f"{part}: its answer to example {example.key!r}")
        return results

    return annotate


def _refuse_twice(examples: Sequence[Example], name: str) -> None:
    """Refuse an annotator that gives a name which the source already uses."""
    for example in examples:
        if name in example.extra:
            raise UserError(
                f"example {example.key!r} has {name!r} already, from its source: leave the "
                f"annotator out (recipe.annotators.{name}=null), or give it another name"
            )


def _ask(
    examples: Sequence[Example], annotator: Annotator, kept: AnnotationCache, size: int
) -> Attempt[Annotation]:
    """Annotate every unknown content, and save results on the way."""
    of_example = [content_key(example, annotator.reads) for example in examples]
    contents: dict[str, Example] = {}
    for key, example in zip(of_example, examples, strict=True):
        contents.setdefault(key, example)
    lost: dict[str, Failure] = {}
    fresh: dict[str, Annotation] = {}
    written = time.monotonic()
    every = list(contents)
    with Progress(f"annotating: {annotator.name}", len(every), "examples") as progress:
        try:
            for start in range(0, len(every), size):
                keys = every[start : start + size]
                if all(key in kept for key in keys):
                    progress.skip(len(keys))
                    continue
                # The whole batch, even if part of it is known: the last digits depend on it.
                some = [contents[key] for key in keys]
                attempted = attempt(some, _checked(annotator), lambda example: example.key)
                answers = {keys[row]: annotation for row, annotation in attempted.done.items()}
                fresh |= {key: annotation for key, annotation in answers.items() if key not in kept}
                lost |= {keys[row]: failure for row, failure in attempted.lost_by_place().items()}
                if time.monotonic() - written > SECONDS_AT_RISK:
                    kept.add(fresh)
                    fresh, written = {}, time.monotonic()
                progress.advance(len(keys))
        finally:
            kept.add(fresh)
    done = {row: kept[key] for row, key in enumerate(of_example) if key in kept}
    failed = {
        row: replace(lost[key], key=examples[row].key)
        for row, key in enumerate(of_example)
        if key in lost
    }
    return Attempt(done, failed)


def content_key(example: Example, reads: Sequence[str]) -> str:
    """Return the hash of the parts of an example that an annotator reads.

    Args:
        reads: the names of the parts: some of ``key``, ``group``, ``texts``, ``image``, ``label``,
            ``extra``.
    """
    parts: dict[str, Any] = {name: getattr(example, name) for name in reads if name != "image"}
    if "image" in reads:
        parts["image"] = None if example.image is None else example.image.digest
    if "extra" in parts:
        parts["extra"] = dict(parts["extra"])
    return sha256_text(json.dumps(parts, sort_keys=True))
