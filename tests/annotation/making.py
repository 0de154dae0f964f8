"""Pairs to ask people about, and their answers."""

from __future__ import annotations

import json
from pathlib import Path

from cfaug.annotation.answers import read_answers
from cfaug.annotation.forms import Field, Form
from cfaug.annotation.question import AnnotationQuestion
from cfaug.annotation.records import Answer
from cfaug.core.types import CounterfactualSet, Edit, Member
from tests.files_of_settings import read_settings
from tests.report.example import picture

ROOT = Path(__file__).parents[2]


def question(name: str) -> AnnotationQuestion:
    """Return a question of ``conf/annotate/question``."""
    node = read_settings(f"annotate/question/{name}")
    assert node.pop("_target_") == "cfaug.annotation.question.AnnotationQuestion"
    return AnnotationQuestion(**node)


WHICH, WHY = question("which_caption"), question("error_category")
EDITS = Form(
    title="How good is the edit?",
    text="Please judge the second picture.",
    per_kind=10,
    leave_out=["reconstruction"],
    fields={
        "realism": Field("Image Realism (1-5)", "Realism", "scale"),
        "edit_success": Field("Edit Success (1-5)", "Edit success", "scale"),
        "fidelity": Field("Image Fidelity (1-5)", "Image fidelity", "scale"),
        "label_consistent": Field("Label Consistency (%)", "Label consistency", "check"),
        "ethical_issues": Field("Ethical issues (%)", "Ethical considerations", "check"),
        "ethical_details": Field("Details of ethical issues", "If so: which?", "text"),
    },
)
"""Questions about an edited image beside its photo."""

HOSTILE = "a man</script><script>document.title='owned'</script><img src=//x.example/y.png> &amp;"
WORDS = (("man", "kid"), ("cat", "dog"), ("woman", "girl"))


def pairs(count: int = 6) -> list[CounterfactualSet]:
    sets = []
    for n in range(count):
        before, after = WORDS[n % len(WORDS)]
        texts = (f"A {before} in room {n}", f"A {after} in room {n}.")
        if n == 0:
            texts = (HOSTILE, HOSTILE.replace("man", "kid"))
        sets.append(
            CounterfactualSet(
                key=f"pair-{n:04d}",
                group=f"g{n}",
                members=tuple(
                    Member(text, str(i), "s", Edit("noun", before, after) if i else None)
                    for i, text in enumerate(texts)
                ),
                images={"0": picture("ball", "red"), "1": picture("cube", "blue")},
            )
        )
    return sets


def answered(*labels: str | tuple[str, ...]) -> list[Answer]:
    """Return answers to the first images; several for one by different people."""
    return [
        Answer(i, str(who), label)
        for i, given_ in enumerate(labels)
        for who, label in enumerate((given_,) if isinstance(given_, str) else given_, 1)
    ]


def write_answers(file: Path, lines: list[dict | str]) -> str:
    text = "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines)
    file.write_text(text)
    return str(file)


def line(**change) -> dict:
    return {"key": "pair-0001", "member": 1, "annotator": "1", "label": "both"} | change


def read(file, items, asked=WHICH):
    return read_answers([file], items, field=asked.field, choices=asked.labels)
