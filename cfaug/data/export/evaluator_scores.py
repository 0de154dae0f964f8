"""Scores of counterfactual questions and pairs for other evaluators; it imports nothing of cfaug.

``export.lmms_eval`` copies this file into its task, as ``utils.py``. ``export.vlmevalkit`` copies
it beside its table: ``python FILE.py RESULT.tsv`` (or ``.xlsx``) prints the scores of the result
file, with a row for each question, that VLMEvalKit writes.

Of questions (CFMM): acc_b, acc_c and acc_plus count right basic questions, right counterfactual
ones, and counterfactual ones that are right like the basic one of their group; strict counts
groups with every answer right. Of pairs (NaturalBench): q_acc counts questions that are right for
both images, i_acc images for which both questions are right, g_acc groups with all four right.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Result = Mapping[str, Any]
"""A question's group, kind, numbers of question and image in the group, and whether it is right."""

# Written answers, read as ``benchmark.protocol=write`` of cfaug reads them.

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
LEAD = re.compile(
    r"^(?:(?:so|therefore|thus)[, ]+)?(?:the )?(?:right |correct |final )?answer(?: is)?[: ]\s*"
)
END_OF_CLAUSE = re.compile(r"[,;:!?\n]|\.(?!\d)")
EDGES = " \t\n\r\"'`*_.,;:!?()[]"


def parse_answer(text: str, options: Sequence[str]) -> int | None:
    """Return the number of the option that an answer, or its first clause, is; else ``None``.

    >>> parse_answer("The answer is two.", ["2", "3"])
    0
    """
    plain = [_plain(option) for option in options]
    answer = LEAD.sub("", text.strip().casefold())
    for part in (answer, END_OF_CLAUSE.split(answer.strip(EDGES), maxsplit=1)[0]):
        positions = [
            position for position, option in enumerate(plain) if option and option == _plain(part)
        ]
        if positions:
            return positions[0] if len(positions) == 1 else None
    return None


def _plain(text: str) -> str:
    words = re.sub(r"\s+", " ", text.casefold()).strip(EDGES).split(" ")
    if len(words) > 1 and words[0] in ("a", "an", "the"):
        words = words[1:]
    return " ".join(str(NUMBERS.index(word)) if word in NUMBERS else word for word in words)


# Scores, which lmms-eval calls aggregations: fractions.


def acc_b(results: Sequence[Result]) -> float:
    """Return the share of right basic questions."""
    return _share(result["question_right"] for result in results if result["kind"] == "basic")


def acc_c(results: Sequence[Result]) -> float:
    """Return the share of right counterfactual questions."""
    return _share(
        result["question_right"] for result in results if result["kind"] == "counterfactual"
    )


def acc_plus(results: Sequence[Result]) -> float:
    """Return the share of pairs of a basic and a counterfactual question that are both right."""
    basic = {
        result["group"]: result["question_right"] for result in results if result["kind"] == "basic"
    }
    return _share(
        result["question_right"] and basic[result["group"]]
        for result in results
        if result["kind"] == "counterfactual" and result["group"] in basic
    )


def strict(results: Sequence[Result]) -> float:
    """Return the share of groups with every answer right."""
    return _whole(results, lambda result: result["group"])


def acc(results: Sequence[Result]) -> float:
    """Return the share of right answers."""
    return _share(result["question_right"] for result in results)


def q_acc(results: Sequence[Result]) -> float:
    """Return the share of questions that are right for both images."""
    return _whole(results, lambda result: (result["group"], result["question_number"]))


def i_acc(results: Sequence[Result]) -> float:
    """Return the share of images for which both questions are right."""
    return _whole(results, lambda result: (result["group"], result["image_number"]))


g_acc = strict


def _share(right: Iterable[Any]) -> float:
    values = [bool(value) for value in right]
    return sum(values) / len(values) if values else float("nan")


def _whole(results: Sequence[Result], key: Any) -> float:
    whole: dict[Any, bool] = {}
    for result in results:
        whole[key(result)] = whole.get(key(result), True) and bool(result["question_right"])
    return _share(whole.values())


QUESTIONS = {"acc_b": acc_b, "acc_c": acc_c, "acc_plus": acc_plus, "strict": strict}
PAIRS = {"acc": acc, "q_acc": q_acc, "i_acc": i_acc, "g_acc": g_acc}
OTHER = {"basic": "acc_c", "counterfactual": "acc_b"}
"""The score that a question does not count for, by its kind."""
COLUMNS = ("group", "kind", "question_number", "image_number")


# What lmms-eval calls for each question.


def doc_to_visual(doc: Mapping[str, Any]) -> list[Any]:
    """Return the image."""
    return [doc["image"].convert("RGB")]


def doc_to_text(doc: Mapping[str, Any], lmms_eval_specific_kwargs: Any = None) -> str:
    """Return the prompt, that of ``benchmark.protocol=write``."""
    return f"{doc['question']}\nAnswer with one of these: {', '.join(json.loads(doc['options']))}."


def process_results(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, Result]:
    """Return the question's result for each score that it counts for."""
    chosen = parse_answer(str(results[0]), json.loads(doc["options"]))
    result = {name: doc[name] for name in COLUMNS}
    result["question_right"] = int(chosen == doc["answer_number"])
    scores = PAIRS if doc["kind"] == "pair" else QUESTIONS
    return {name: result for name in scores if name != OTHER.get(doc["kind"])}


# What VLMEvalKit's result is given to.


def main(file: str) -> None:
    """Print the scores, in per cent, of a result of VLMEvalKit."""
    import pandas

    table = pandas.read_excel(file) if file.endswith(".xlsx") else pandas.read_csv(file, sep="\t")
    results = [row | {"question_right": row["hit"] > 0} for row in table.to_dict("records")]
    scores = PAIRS if results[0]["kind"] == "pair" else QUESTIONS
    for name, score in scores.items():
        print(f"{name} {100 * score(results):.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
