"""Which settings of ``annotate=...`` each of its steps reads, for ``cfaug.run.unread``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cfaug.run.binding import locate

Config = Mapping[str, Any]

STEPS = {
    "cfaug.run.annotate.Export": "export",
    "cfaug.run.annotate.Taxonomy": "taxonomy",
    "cfaug.run.annotate.ReadAnswers": "read",
    "cfaug.run.simulate_annotators.Simulate": "simulate",
}
"""{class of a step: its name in ``conf/annotate``}."""


def _step(config: Config) -> str:
    """Return the name of a job's step; "" for one of somebody's own."""
    return STEPS.get(str((config.get("annotate") or {}).get("_target_")), "")


def _in(*steps: str) -> tuple[str, Callable[[Config], bool]]:
    """Return where settings are read that only these steps read, and the test of that."""

    def reads(config: Config) -> bool:
        return _step(config) in ("", *steps)

    return "by " + ", or ".join(f"annotate={one}" for one in steps), reads


def _not_about(*kinds: str) -> Callable[[Config], bool]:
    """Return a test whether people are asked by none of some classes of ``cfaug.annotation``."""

    def reads(config: Config) -> bool:
        question = (config.get("annotate") or {}).get("question") or {}
        kind = locate(question["_target_"]) if "_target_" in question else object
        return not any(issubclass(kind, locate(f"cfaug.annotation.{one}")) for one in kinds)

    return reads


def _of_question(*names: str) -> tuple[str, ...]:
    return tuple(f"annotate.question.{name}" for name in names)


ANNOTATED = (
    (
        ("annotate.category_question", "annotate.categories", "annotate.screening",
         "annotate.screening_minimum", "annotate.analyses"),
        "with a question (annotate/question=which_caption, ...), not with a form",
        _not_about("form.Form"),
    ),
    (
        ("annotate.category_question", "annotate.sorted_errors", "annotate.causes"),
        "with a question about images, not with one about captions",
        lambda config: _step(config) != "simulate"
        or _not_about("caption_form.CaptionForm", "preference.Preference")(config),
    ),
    (_of_question("text"), *_in("export", "read")),
    (_of_question("strata.each", "examples", "balanced"), *_in("export")),
    (_of_question("per_kind"), *_in("export", "simulate")),
    (
        _of_question("image_sets", "accepted_as", "groups", "reference", "illustrated"),
        *_in("read"),
    ),
    (_of_question("reported"), *_in("read", "taxonomy")),
    (_of_question("accepted"), *_in("read", "taxonomy", "simulate")),
)  # fmt: skip
"""(settings, where they are read, a test whether they are read), the arguments of a ``Rule``."""
