"""The paper's questions about edits, for ``tests/run/test_unread_properties.py``."""

from __future__ import annotations

from tests.run.annotated_steps import ASSIGNED, Step

STEPS = {
    "export of a form": Step(
        "edits", ("export", "annotate/question=lance"), {**ASSIGNED, "question.per_kind": 1}
    ),
}
