"""Our own form: JSONL with an image on each line, and its basic and counterfactual questions.

``{"id": "1", "image": "1.jpg", "category": "count", "basic": {"q": "How many dogs are there?",
"options": ["2", "3"], "answer": 0}, "counterfactuals": [{"q": "If one dog left, how many dogs would
there be?", "presupposition": "one dog left", "options": ["1", "2"], "answer": 0, "source": "human",
"verified": true}, ...]}``; optional: ``coco_id`` and ``group``, and any other JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.question_sets import BASIC, COUNTERFACTUAL, NO_OPTION, AskedImage, AskedQuestion
from cfaug.data.sources.question_sets.form import QuestionForm, read_each
from cfaug.data.sources.question_sets.rows import SetRow
from cfaug.data.sources.released import text_field
from cfaug.data.sources.values import clean_key

USED = ("id", "image", "group", "category", "basic", "counterfactuals")
USED_OF_QUESTION = ("q", "options", "answer")


def _read(row: SetRow) -> Iterable[AskedImage]:
    image = row.image("image")
    group = next((n for n in ("group", "coco_id") if row.fields.get(n) not in (None, "")), "image")
    further = row.fields.get("counterfactuals")
    if not isinstance(further, list):
        raise UserError(f"{row.where}: 'counterfactuals' should be a list of questions")
    named = [("basic", BASIC, row.fields.get("basic"))]
    named += [(f"c{i}", COUNTERFACTUAL, one) for i, one in enumerate(further, 1)]
    yield AskedImage(
        key=clean_key(row.text("id")),
        group=row.text(group),
        image=image,
        category=row.text("category"),
        questions=tuple(
            read_question(name, kind, one, f"{row.where}: {name}") for name, kind, one in named
        ),
        extra={name: value for name, value in row.fields.items() if name not in USED},
    )


def read_question(name: str, kind: str, record: object, where: str) -> AskedQuestion:
    """Read a question of the form.

    Args:
        name: the question's id.
        kind: the kind of the question.
        record: the question in JSON, ``{q, options, answer, ...}``.
        where: the place of the question, for messages.

    Raises:
        UserError: if a field is missing or has another type, naming the place.
    """
    if not isinstance(record, Mapping):
        raise UserError(f"{where}: a question should be {{q, options, answer}}, not {record!r:.80}")
    given = record.get("options")
    if not isinstance(given, list):
        raise UserError(f"{where}: 'options' should be a list of texts, not {given!r:.80}")
    options = [
        " ".join(text_field({f"option {i}": one}, f"option {i}", where).split())
        for i, one in enumerate(given)
    ]
    extra = {one: value for one, value in record.items() if one not in USED_OF_QUESTION}
    if "answer" not in record:
        raise UserError(f"{where}: 'answer' is missing: the number of the right option, from 0")
    answer: Any = record["answer"]
    if isinstance(answer, str):
        extra["answer"] = answer
        line = " ".join(answer.split())
        answer = options.index(line) if line in options else NO_OPTION
    if isinstance(answer, bool) or not isinstance(answer, int | None):
        raise UserError(
            f"{where}: 'answer' should be the number of the right option, from 0, not {answer!r}"
        )
    text = " ".join(text_field(dict(record), "q", where).split())
    try:
        return AskedQuestion(name, kind, text, tuple(options), answer, extra)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


OWN = QuestionForm("jsonl of basic and counterfactual questions", USED[:2] + USED[3:],
                   read_each(_read))  # fmt: skip
