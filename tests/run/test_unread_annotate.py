"""A typed setting of ``cfaug annotate`` changes what is written, or is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cfaug.core.errors import UserError
from cfaug.planning.build import build
from cfaug.run.annotation_steps import AnnotationSource
from cfaug.run.arguments import flatten
from cfaug.run.unread import find_unread_words
from tests.contributed import contributed
from tests.run.annotated_steps import ASKED, ASSIGNED, PAIRS, READ, Step
from tests.run.conftest import compose, refuse_as_unread
from tests.run.conftest import refusal as refusal_of
from tests.run.evaluated_sources import Sources

ELSEWHERE = {
    "annotate.out": "the place of what is written",
    "annotate.question.title": "names the question in messages and headings",
    "annotate.category_question": "only with sorted errors, or on the page of taxonomy",
    "annotate.categories": "files of sorted errors, of which there are none here",
    "annotate.question.options": "wordings of answers, whose labels every step reads",
    "annotate.question.field": "the name of an answer in all files of a survey",
    "annotate.question.pictures": "the pictures of the page, and whether the sets are whole",
    "annotate.question.show_caption": "the page, and whether equal images are asked about once",
    "annotate.question.leave_out": "kinds of edits, one of which the source has to hold",
    "annotate.question.reference": "printed beside people's answers to such a question",
    "annotate.question.fields": "the title in tables, the text on the page",
    "annotate.question.attention": "the checks that answers here are not about",
    "annotate.analyses.altered_subjects.wordnet_senses": "WordNet, which this machine may lack",
    "annotate.question.strata": "of grids alone",
    "annotate.question.illustrated": "unanimous answers, of which there are none here",
}
"""Settings that place, name, or matter to other sources than these."""


STEPS = contributed("annotated", "STEPS") | {
    "export": Step(PAIRS, ("export",), {**ASSIGNED, **ASKED}),
    "export without overlap": Step(
        PAIRS, ("export", "annotate.assignment.overlap_fraction=0"), {**ASSIGNED, **ASKED}
    ),
    "export of a form about captions": Step(
        "texts", ("export", "annotate/question=quality", "annotate.question.per_kind=2",
                  "annotate.assignment.overlap_fraction=0.5"),
        {**ASSIGNED, "assignment.sample": 1, "assignment.overlap_fraction": 0.1,
         "question.per_kind": 1, "question.examples": 1},
    ),
    "read": Step(PAIRS, ("read", *READ), {**ASKED, "analyses.altered_subjects.at_least": 1}),
    "read with a screening": Step(
        PAIRS, ("read", *READ, "annotate.screening=known.jsonl", "annotate.screening_minimum=0.5"),
        {**ASKED, "screening": "others.jsonl", "screening_minimum": 0.7,
         "analyses.altered_subjects.at_least": 1},
    ),
    "taxonomy": Step(PAIRS, ("taxonomy", READ[0], "annotate.sample=5"), {**ASKED, "side": 24}),
    "simulate": Step(
        PAIRS, ("simulate", "annotate.mistakes=0.5", "annotate.sorted_errors=1"),
        {**ASSIGNED, **ASKED, "mistakes": 0.9},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    return Sources(tmp_path_factory.mktemp("sources"))


def lay_answers(source: AnnotationSource) -> None:
    """Write answers, known answers and the oracle's for the pairs of a source."""
    members = [source.index.key(row).rpartition("_")[::2] for row in range(len(source.index))]
    labels = ("original", "counterfactual")

    def write(file: str, people: tuple[str, ...], turn: int, count: int) -> None:
        lines = [
            {"key": key, "member": int(member), "annotator": who,
             "label": labels[(int(member) + (at % (int(who) + 2) == turn)) % 2]}
            for who in people
            for at, (key, member) in enumerate(members[:count])
        ]  # fmt: skip
        Path(file).write_text("".join(json.dumps(line) + "\n" for line in lines))

    write("answers.jsonl", ("1", "2"), 0, len(members))
    write("known.jsonl", ("1",), 3, 4)
    write("others.jsonl", ("1",), 2, 5)
    write("oracle.jsonl", ("1",), 3, len(members))


def written(node: Mapping[str, Any], source: AnnotationSource, folder: Path) -> dict[str, bytes]:
    """Return what a step writes."""
    folder.mkdir()
    suffix = Path(node["out"]).suffix
    build({**node, "out": str(folder / f"out{suffix}")}).run(source)
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def refusal(node: Mapping[str, Any], source: AnnotationSource, folder: Path) -> str | None:
    """Return why a step with a changed setting is refused; ``None`` if it is not."""
    try:
        written(node, source, folder)
    except UserError as error:
        return str(error)
    return None


def other_value(value: Any) -> Any:
    """Return another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, list):
        return [*value[1:], *value[:1]] if len(value) > 1 else []
    return value + 1 if isinstance(value, int | float) else f"{value}, or so"


def put(node: Any, path: list[str], value: Any) -> Any:
    """Return nested settings with another value at a place."""
    return {**node, path[0]: put(node[path[0]], path[1:], value)} if path else value


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_every_setting_of_a_step_changes_what_is_written_or_is_refused(
    name, sources, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    step = STEPS[name]
    words = [f"annotate={step.words[0]}", *step.words[1:]]
    config = compose("annotate", *words, f"pairs={PAIRS}")
    place = step.source if step.source == PAIRS else sources[step.source]
    index = sources.context.open(place)
    source = AnnotationSource("asked", index, lambda: Path("oracle.jsonl"), sources.context.open)
    lay_answers(source)
    before, dead = written(config["annotate"], source, tmp_path / "before"), []
    for number, (key, value) in enumerate(flatten({"annotate": config["annotate"]}).items()):
        if "_target_" in key or any(key.startswith(prefix) for prefix in ELSEWHERE):
            continue
        short = key.removeprefix("annotate.")
        other = step.others[short] if short in step.others else other_value(value)
        node = put(config["annotate"], short.split("."), other)
        typed = [*words, f"{key}=x"]
        job = {**config, "annotate": node}
        if typed[-1] in dict(find_unread_words("annotate", job, typed, lambda _: {})):
            continue
        if refusal(node, source, tmp_path / str(number)) is None and (
            written(node, source, tmp_path / f"{number}_again") == before
        ):
            dead.append(key)
    assert dead == []


WORLD = ("annotate=simulate", f"pairs={PAIRS}")


def test_a_world_is_read_where_its_pairs_are_asked_about():
    assert compose("annotate", *WORLD, "seed=4", "world.ood_pairs=9")["seed"] == 4
    refuse_as_unread("annotate", (*WORLD, "world.vqa_pairs=9"), "a part of the embedded world")
    folder = ("annotate=export", "pairs=/photos")
    refuse_as_unread("annotate", (*folder, "seed=4"), "a part of the embedded world")
    refuse_as_unread("annotate", (*folder, "annotate.question.reported=[yes]"), "read and taxonomy")


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["annotate=export", "data=folder", "data.counterfactual=F"],
         "cfaug annotate export pairs=F"),
        (["table=wise_ft", "paths.runs=r"], "cfaug table wise_ft paths.runs=r"),
        (["-m", "table=cfmm_2,cfmm_3"], "cfaug table cfmm_2 cfmm_3"),
        (["compare=[A,B]", "compare_columns.by=type"], "cfaug compare A B columns.by=type"),
    ],
)  # fmt: skip
def test_what_evaluate_did_before_is_answered_with_the_command_of_today(script, words, command):
    assert command in refusal_of(script("evaluate"), words).splitlines()


def test_a_command_without_its_first_word_lists_the_choices(script):
    assert "choose from export, read, simulate" in refusal_of(script("annotate"), [])
    assert "wise_ft" in refusal_of(script("table"), [])
    assert "pairs=FOLDER is missing" in refusal_of(script("annotate"), ["export"])
    assert "cfaug annotate takes it" in refusal_of(script("table"), ["wise_ft", "pairs=x"])
