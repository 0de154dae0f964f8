"""The questions benchmark against plain loops, one question at a time."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cfaug.core.answers import Answered, Question
from cfaug.core.errors import UserError, say_once
from cfaug.core.pixels import decode_image
from cfaug.core.protocols import Benchmark
from cfaug.core.types import OptionScore
from cfaug.data.questions import QuestionImage, SourceQuestion
from cfaug.data.sources.question_sets import read_questions
from cfaug.evaluation import cached_model
from cfaug.evaluation.cached_model import CachedAnswerer
from cfaug.evaluation.questions.question_checks import validate
from cfaug.evaluation.questions.vqa import VisualQuestions
from cfaug.models.indistinct import refuse_indistinct
from cfaug.models.vision_language import VisionLanguageModel
from cfaug.report.items import Items, write_items
from tests.data.question_files import (
    hallusion_record,
    naturalbench_row,
    own_record,
    put_image,
    vlms_are_biased,
    write_csv,
    write_own,
)
from tests.evaluation.drawn_questions import Drawn, Picture, Writer, context, image, opened, rows
from tests.models import tiny_vlm

IMAGES = [image(n) for n in range(6)]


def numbers(evaluation, by=None):
    return {o.metric: o.value for o in evaluation.outcomes if dict(o.by) == (by or {})}


def smallest(values):
    best = [place for place, value in enumerate(values) if value == min(values)]
    return best[0] if len(best) == 1 else None


def naive(model, images):
    """Ask one question about one image at a time; count with plain loops."""
    right, choices = {}, {}
    for photo in images:
        picture = None if photo.image is None else decode_image(photo.image.read(), "it")
        for question in photo.questions:
            asked = Question(question.text, question.options)
            [[seen]] = model.answer([picture], [[asked]])
            [[blind]] = model.answer([None], [[asked]])
            nll = [score.nll for score in seen.scores]
            choices[f"{photo.key}/{question.id}"] = {
                "token_mean": smallest([s.nll / s.tokens for s in seen.scores]),
                "sum": smallest(nll),
                "char_norm": smallest([
                    n / len(o) for n, o in zip(nll, question.options, strict=True)
                ]),
                "pmi": smallest([n - s.nll for n, s in zip(nll, blind.scores, strict=True)]),
                "blind": smallest([s.nll / s.tokens for s in blind.scores]),
                "nll": nll,
            }  # fmt: skip
            place = choices[f"{photo.key}/{question.id}"]["token_mean"]
            right[photo.key, question.id] = place == question.answer
    cells = {}
    for category in sorted({photo.category for photo in images}):
        photos = [photo for photo in images if photo.category == category]
        b = [right[photo.key, "basic"] for photo in photos]
        c = [[right[photo.key, f"c{n}"] for n in range(1, 5)] for photo in photos]
        pairs = [x and y for x, every in zip(b, c, strict=True) for y in every]
        cells[category] = {
            "acc_b": sum(b) / len(b),
            "acc_c": sum(map(sum, c)) / (4 * len(c)),
            "acc_plus": sum(pairs) / len(pairs),
            "strict": sum(x and all(y) for x, y in zip(b, c, strict=True)) / len(b),
        }
    return choices, cells


PROMPT = "Question: {question} Answer:"
FAMILIES = {"llava": None, "qwen2_vl": None, "internvl": None, "instructblip": PROMPT,
            "blip_2_t5": PROMPT}  # fmt: skip
"""Of each its prompt."""


def tiny(folder, name):
    saved = tiny_vlm.SAVERS[name](folder / name)
    return VisionLanguageModel.load(saved, prompt=FAMILIES[name])


@pytest.mark.parametrize(
    "kind", ["drawn", *(pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES)]
)
def test_every_number_is_that_of_plain_loops(kind, tmp_path):
    model = Drawn() if kind == "drawn" else tiny(tmp_path, kind)
    images = IMAGES[: 6 if kind == "drawn" else 4]
    choices, cells = naive(model, images)
    benchmark = opened(images, batch_size=7)
    assert isinstance(benchmark, Benchmark)
    evaluation = benchmark.run(model)
    items = rows(evaluation)
    assert list(items) == [f"{photo.key}/{q.id}" for photo in images for q in photo.questions]
    for name, row in items.items():
        said, options = choices[name], json.loads(row["options"])
        for reduction in ("token_mean", "sum", "char_norm", "pmi"):
            chosen = said[reduction]
            assert row[f"chosen_{reduction}"] == (None if chosen is None else options[chosen])
        assert row["chosen"] == row["chosen_token_mean"]
        assert row["flips"] == float(len({said[k] for k in list(said)[:4]}) > 1)
        assert row["blind_chosen"] == options[said["blind"]]
        assert row["right"] == float(row["chosen"] == row["answer"])
        assert json.loads(row["nll"]) == pytest.approx(said["nll"], abs=1e-4)
    for category, cell in cells.items():
        given = numbers(evaluation, {"category": category})
        assert {name: given[name] for name in cell} == pytest.approx(cell)
        assert given["drop"] == pytest.approx(cell["acc_b"] - cell["acc_c"])
    whole = numbers(evaluation)
    for metric in ("acc_b", "acc_c", "acc_plus"):
        assert whole[f"total_{metric}"] == pytest.approx(
            100 * sum(cell[metric] for cell in cells.values())
        )
        assert whole[metric] == pytest.approx(np.nanmean(evaluation.items[metric]))
        assert 0 <= whole[f"blind_{metric}"] <= 1
        assert f"prior_total_{metric}" in whole


def test_the_reduction_that_is_chosen_counts():
    by_name = {
        name: rows(opened(IMAGES, reduction=name).run(Drawn()))
        for name in ("token_mean", "sum", "char_norm", "pmi")
    }
    for name, items in by_name.items():
        for row in items.values():
            assert row["chosen"] == row[f"chosen_{name}"]
    assert len({tuple(r["chosen"] for r in items.values()) for items in by_name.values()}) == 4
    with pytest.raises(UserError, match="pmi needs"):
        VisualQuestions(reduction="pmi", blind=False)


def test_the_blind_model_sees_no_image_and_the_prior_no_question():
    model = Drawn()
    items = rows(opened(IMAGES).run(model))
    other = [replace(photo, image=Picture(b"x" + photo.image.content)) for photo in IMAGES]
    assert {question.text for question in model.questions} == {
        "Answer:", *(q.text for photo in IMAGES for q in photo.questions)
    }  # fmt: skip
    nowhere = [replace(photo, image=None) for photo in other]
    alone = rows(opened(nowhere, blind=False, prior=False).run(Drawn()))
    for name, row in items.items():
        assert alone[name]["chosen"] == row["blind_chosen"]
        assert alone[name]["image"] is None
        assert "blind_right" not in alone[name]
    priors = {row["options"]: row["prior_chosen"] for row in items.values()}
    assert all(row["prior_chosen"] == priors[row["options"]] for row in items.values())


def test_left_out_questions_are_counted_and_their_pairs_do_not_count():
    long = SourceQuestion("c1", "counterfactual", "why " * 50, ("2", "3", "12"), 0)
    basic = SourceQuestion("basic", "basic", "why " * 50, ("2", "3", "12"), 0)
    odd = [
        SourceQuestion("c1", "counterfactual", "What?", ("a",), 0),
        SourceQuestion("c2", "counterfactual", "What?", ("a", "b"), None),
        SourceQuestion("c3", "counterfactual", "What?", ("a", "b"), -1),
        SourceQuestion("c4", "counterfactual", "What?", ("a", "a"), 0),
    ]
    images = [
        *IMAGES[:2],
        image(2, questions=[IMAGES[2].questions[0], long, *IMAGES[2].questions[2:]]),
        image(4, questions=[basic, *IMAGES[4].questions[1:]]),
        image(6, questions=[IMAGES[0].questions[0], *odd]),
    ]
    evaluation = opened(images).run(Drawn(longest=100))
    items = rows(evaluation)
    reasons = {
        name.split("/")[0] + row["left_out"] for name, row in items.items() if row["left_out"]
    }
    assert reasons == {"i2context", "i4context", "i6one_option", "i6no_answer", "i6equal_options"}
    for row in items.values():
        if row["left_out"]:
            assert math.isnan(row["right"])
            assert math.isnan(row["blind_right"])
            assert row["chosen"] is row["blind_chosen"] is None
    assert np.isnan([items[f"i4/c{n}"]["acc_plus"] for n in range(1, 5)]).all()
    assert math.isfinite(items["i4/c1"]["right"])
    assert numbers(evaluation)["questions_left_out"] == 6
    _, *lines = opened(images).summarise(evaluation)
    assert {line for line in lines if line.startswith("left out")} == {
        f"left out: {n} of 25 questions ({reason})"
        for reason, n in (("context", 2), ("one_option", 1), ("no_answer", 2), ("equal_options", 1))
    }
    (acc_c,) = [o for o in evaluation.outcomes if o.metric == "acc_c" and not o.by]
    assert acc_c.n == 4 + 4 + 3
    with pytest.raises(UserError, match=r"every question is left out \(no_answer\)"):
        opened([image(0, questions=[odd[1]])])


def test_a_tie_is_wrong_and_counted():
    class Level(Drawn):
        def answer(self, images, questions):
            by_image = super().answer(images, questions)
            return [
                [
                    replace(answer, scores=(answer.scores[0],) * len(answer.scores))
                    for answer in answers
                ]
                for answers in by_image
            ]

    tied = opened(IMAGES[:2], prior=False).run(Level())
    assert numbers(tied)["ties"] == 1
    assert numbers(tied)["right"] == numbers(tied)["blind_right"] == 0
    assert numbers(tied)["consistency"] == numbers(tied)["phi"] == 0  # undefined, and still there
    assert set(tied.items["chosen"]) == {None}


def test_groups_of_two_questions_about_two_images():
    images = [
        QuestionImage(
            f"g{g}-{i}", f"g{g}", Picture(image(2 * g + i).image.content), "yes_no",
            tuple(
                SourceQuestion(f"q{q}", "question", f"Is {q} in {g}?", ("yes", "no"), (i + q) % 2,
                              {"group": str(g), "question": q, "image": i})
                for q in (0, 1)
            ),
        )
        for g in range(8)
        for i in (0, 1)
    ]  # fmt: skip
    evaluation = opened(images).run(Drawn())
    right = np.array(evaluation.items["right"]).reshape(8, 2, 2)  # groups, images, questions
    given = numbers(evaluation)
    assert given["g_acc"] == np.mean([group.all() for group in right])
    assert given["q_acc"] == np.mean([[group[:, q].all() for q in (0, 1)] for group in right])
    assert given["i_acc"] == np.mean([[group[i].all() for i in (0, 1)] for group in right])
    assert given["right"] == right.mean()
    assert "blind_g_acc" in given
    assert "acc_b" not in given
    pairs = opened(images[:-1]).run(Drawn())
    assert {outcome.n for outcome in pairs.outcomes if outcome.metric == "g_acc"} == {8}


def plain_hallusion_bench(rows):
    """What lmms-eval's ``get_eval_all``, ``get_eval_pair_all`` and ``get_eval_fig`` count."""
    pairs, figures = {}, {}
    for r in rows:
        stem = [r["category"], r["subcategory"], r["set_id"]]
        pairs.setdefault("_".join([*stem, r["question_id"]]), []).append(r["correct"])
        if r["category"] == "VS" and r["figure_id"] == "0":  # no figure
            continue
        figures.setdefault("_".join([*stem, r["figure_id"]]), []).append(r["correct"])
    return {
        "right": sum(r["correct"] for r in rows) / len(rows),
        "q_acc": sum(sum(v) == len(v) for v in pairs.values()) / len(pairs),
        "f_acc": sum(sum(v) == len(v) for v in figures.values()) / len(figures),
    }


def test_the_three_accuracies_of_hallusion_bench(tmp_path):
    records = [
        hallusion_record(figure, q, category=category, set_id=str(n), gt_answer=str((n + q) % 2),
                         filename=f"{category}/{n}_{figure}.png" if figure or category == "VD"
                         else None)
        for category in ("VD", "VS") for n in range(9) for figure in range(3)
        for q in range(2 if figure else 1)
    ]  # fmt: skip
    for record in records:
        if record["filename"]:
            tone = (
                10 * int(record["set_id"])
                + int(record["figure_id"])
                + 99 * (record["category"] == "VD")
            )
            put_image(tmp_path / "hallusion_bench" / record["filename"], tone)
    (tmp_path / "HallusionBench.json").write_text(json.dumps(records))
    images = read_questions(tmp_path)
    evaluation = opened(images).run(Drawn())
    items = rows(evaluation)
    for asked in images:
        for question in asked.questions:
            record = next(
                r for r in records
                if [r[k] for k in ("category", "set_id", "figure_id", "question_id")]
                == [asked.category, *(question.extra[k] for k in ("set_id", "figure_id",
                                                                "question_id"))]
            )  # fmt: skip
            record["correct"] = int(items[f"{asked.key}/{question.id}"]["right"])
    expected = plain_hallusion_bench(records)
    given = numbers(evaluation)
    assert {name: given[name] for name in expected} == pytest.approx(expected)
    assert 0 < expected["q_acc"] < expected["right"]
    for metric in ("q_acc", "f_acc"):
        for prefix in ("", "blind_", "prior_"):
            values = evaluation.items[prefix + metric]
            (outcome,) = [o for o in evaluation.outcomes if o.metric == prefix + metric]
            assert (outcome.value, outcome.n) == (np.nanmean(values), np.isfinite(values).sum())
    assert [o.n for o in evaluation.outcomes if o.metric == "f_acc"] == [9 * 3 + 9 * 2]


def test_pairs_of_mmvp_are_right_together_and_swapped_answers_are_named(tmp_path):
    names = ("Index", "Question", "Options", "Correct Answer")
    listed = [
        dict(zip(names, (str(n), "Open?", "(a) Open (b) Shut", f"({'ba'[n % 2]})"), strict=True))
        for n in (1, 2, 3, 4, 97, 98, 99, 100, 279, 280)
    ]
    write_csv(tmp_path / "Questions.csv", listed)
    for row in listed:
        put_image(tmp_path / "MMVP Images" / f"{row['Index']}.jpg", int(row["Index"]))
    benchmark = opened(read_questions(tmp_path))
    evaluation = benchmark.run(Drawn(3))
    right = np.array(evaluation.items["right"]).reshape(5, 2)
    assert numbers(evaluation)["g_acc"] == np.mean(right.all(axis=1))
    (said,) = [
        line for line in benchmark.summarise(evaluation)[1:] if line.startswith("disputed answers")
    ]
    assert said.count("lmms-eval says") == 4
    assert "row 99: (a); lmms-eval says (b)" in said
    (problem,) = [p for p in validate(benchmark._images) if p.what == "answer disputed"]
    assert (problem.count, problem.fatal) == (4, False)
    for row in listed[-4:]:  # as lmms-lab-eval/MMVP has them
        row["Correct Answer"] = "(b)" if row["Correct Answer"] == "(a)" else "(a)"
    write_csv(tmp_path / "Questions.csv", listed)
    assert not [p for p in validate(read_questions(tmp_path)) if p.what == "answer disputed"]


def cached(model, folder):
    return CachedAnswerer(lambda: model, "w", "s", folder, 2**30)


class StopError(Exception):
    """The machine went off."""


def test_an_interrupted_evaluation_resumes_with_identical_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(cached_model, "KEPT_SECONDS", -1.0)

    class Dying(Drawn):
        left = 3

        def answer(self, images, questions):
            self.left -= 1
            if self.left < 0:
                raise StopError
            return super().answer(images, questions)

    def keep(evaluation, name):
        return write_items(tmp_path / name, Items("q", "w", "d", evaluation.items)).read_bytes()

    benchmark = opened(IMAGES, batch_size=10)
    whole = Drawn()
    expected = benchmark.run(whole)
    with pytest.raises(StopError):
        benchmark.run(cached(Dying(), tmp_path / "cache"))
    rest = Drawn()
    resumed = benchmark.run(cached(rest, tmp_path / "cache"))
    assert rest.batches == whole.batches[3:]
    assert resumed.outcomes == expected.outcomes
    assert keep(resumed, "resumed") == keep(expected, "whole")
    again = Drawn()
    assert keep(benchmark.run(cached(again, tmp_path / "cache")), "again") == keep(expected, "x")
    assert again.batches == []
    assert keep(benchmark.run(cached(Drawn(1), tmp_path / "cache")), "other") == keep(expected, "y")
    (file, *_) = (tmp_path / "cache").rglob("*.jsonl")
    file.write_bytes(file.read_bytes()[:-5])
    mended = Drawn()
    assert keep(benchmark.run(cached(mended, tmp_path / "cache")), "mended") == keep(expected, "z")
    assert len(mended.batches) == 1


def test_an_error_loses_no_answer_that_was_given_before(tmp_path):
    broken = [*IMAGES[:5], image(5, image=Picture(b"no image"))]
    benchmark = opened(broken, batch_size=5, blind=False, prior=False)
    with pytest.raises(UserError, match="image i5"):
        benchmark.run(cached(Drawn(), tmp_path))
    rest = Drawn()
    with pytest.raises(UserError, match="image i5"):
        benchmark.run(cached(rest, tmp_path))
    assert rest.batches == []


def test_all_questions_about_an_image_go_together_and_equal_ones_once():
    model = Drawn()
    twice = [*IMAGES, image(0, group="again")]
    twice[-1] = replace(twice[-1], key="again")
    items = rows(opened(twice, batch_size=12, blind=False, prior=False).run(model))
    assert model.batches == [[5, 5]] * 3
    for n in range(5):
        name = "basic" if n == 0 else f"c{n}"
        assert items[f"again/{name}"]["nll"] == items[f"i0/{name}"]["nll"]


def test_written_answers_are_read_strictly_and_counted():
    class Says(Writer):
        @staticmethod
        def said(question):
            return {"0": question.options[0], "1": "perhaps"}.get(question.text[3], "it depends")

    images = [image(n) for n in range(2)]
    evaluation = opened(images, protocol="write", max_new_tokens=20).run(Says())
    items = rows(evaluation)
    assert evaluation.outcomes[0].benchmark == "asked_vqa_written"
    for name, row in items.items():
        parsed = name.endswith("basic")
        assert row["unparsed"] == float(not parsed)
        assert row["chosen"] == (json.loads(row["options"])[0] if parsed else None)
        assert row["right"] == float(parsed and row["chosen"] == row["answer"])
        assert row["written"] in ("2", "a red one", "perhaps", "it depends")
    assert numbers(evaluation)["unparsed"] == 0.8
    assert "flips" not in items["i0/basic"]
    assert "prior_right" not in items["i0/basic"]
    with pytest.raises(UserError, match="Drawn ranks options and writes no text"):
        opened(images, protocol="write").run(Drawn())


def favours(chosen):
    """Return a model that prefers one option, by its words or its place."""

    class Model(Drawn):
        def answer(self, images, questions):
            return [
                [
                    Answered(
                        tuple(
                            OptionScore(1.0 if chosen(place, option) else 2.0, 1)
                            for place, option in enumerate(question.options)
                        )
                    )
                    for question in about
                ]
                for about in questions
            ]

    return Model()


def yes_or_no(count, right=lambda number: number % 2):
    return [
        image(
            n, questions=[SourceQuestion("basic", "basic", f"Is it {n}?", ("yes", "no"), right(n))]
        )
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("model", "images", "said"),
    [
        (favours(lambda place, option: option == "yes"), yes_or_no(20), "answer, 'yes'"),
        (favours(lambda place, option: option == "yes"), yes_or_no(19), ""),
        (favours(lambda place, option: option == "yes"), yes_or_no(20, lambda n: 0), "'yes'"),
        (Drawn(), yes_or_no(20), ""),
        (favours(lambda place, option: place == 1), [image(n) for n in range(6)], "'option 2'"),
    ],
)
def test_a_model_that_answers_every_question_alike_is_said(model, images, said, capsys):
    say_once.cache_clear()
    with refuse_indistinct("asked_vqa", 0.2):
        opened(images, prior=False, blind=False).run(model)
    err = capsys.readouterr().err
    assert said in err
    assert bool(said) == ("the same answer" in err)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"reduction": "mean"}, "reduction=mean: choose from token_mean, sum,"),
        ({"shots": 1}, "needs benchmark.demonstrations"),
        ({"chain_of_thought": "one_stage"}, "needs benchmark.shots=1"),
        ({"chain_of_thought": "two_stage", "protocol": "write"}, "one_stage"),
    ],
)
def test_an_invalid_setting_is_named_with_the_choices(settings, said):
    with pytest.raises(UserError, match=said):
        VisualQuestions(**settings)


def test_what_cannot_be_opened_is_said():
    with pytest.raises(UserError, match=r"needs benchmark\.data=FILE"):
        opened(IMAGES, data=None)
    with pytest.raises(UserError, match="has no question"):
        opened([])
    two = [IMAGES[0].questions[0], replace(IMAGES[0].questions[0], id="b2"),
           *IMAGES[0].questions[1:]]  # fmt: skip
    with pytest.raises(UserError, match="'i0' has 2 basic questions"):
        opened([image(0, questions=two)])
    with pytest.raises(UserError, match="no question set can be opened"):
        VisualQuestions(data="x").open(replace(context(IMAGES), questions=None))


def test_ties_and_all_four_accuracies_of_naturalbench_are_on_the_terminal(tmp_path):
    class Level(Drawn):
        def answer(self, images, questions):
            return [
                [replace(answer, scores=(answer.scores[0],) * len(answer.scores)) for answer in row]
                for row in super().answer(images, questions)
            ]

    pq.write_table(pa.Table.from_pylist([naturalbench_row(0)]), tmp_path / "test.parquet")
    benchmark = opened(read_questions(tmp_path))
    first, *_, last = benchmark.summarise(benchmark.run(Level()))
    assert first.columns == (
        "all questions", "both images of a question", "both questions of an image",
        "all four of a group",
    )  # fmt: skip
    assert first.groups == (("Right, %", 4),)
    assert first.rows[0][0] == ("asked with the image",)
    assert [cell.text for cell in first.rows[0][1]] == ["0.00"] * 4
    assert last.startswith("100.0% of the questions have several equally likely options")


def bias_by_hand(model, entries, blind=False):
    """Ask one question at a time; return (topic, right, memorised) of each with a choice."""
    answers = []
    for entry in entries:
        (question,) = entry.questions
        picture = None if blind else decode_image(entry.image.read(), "it")
        [[reply]] = model.answer([picture], [[Question(question.text, question.options)]])
        place = smallest([score.nll / score.tokens for score in reply.scores])
        chosen = None if place is None else question.options[place]
        memorised = question.extra["expected_bias"]
        answers.append((entry.category, chosen == question.right, chosen == memorised))
    return answers


def test_the_share_of_memorised_answers_is_that_of_a_slow_count(tmp_path):
    entries = read_questions(f"{vlms_are_biased(tmp_path / 'set')}:main")
    benchmark = opened(entries)
    evaluation = benchmark.run(Drawn())
    for prefix, blind in (("", False), ("blind_", True)):
        answers = bias_by_hand(Drawn(), entries, blind)
        values = numbers(evaluation)
        assert values[f"{prefix}bias_ratio"] == sum(m for _, _, m in answers) / 24
        by_topic = {}
        for topic, right, memorised in answers:
            by_topic.setdefault(topic, []).append((right, memorised))
        for at, metric in enumerate(("right", "bias_ratio")):
            means = {t: sum(x[at] for x in some) / len(some) for t, some in by_topic.items()}
            assert values[f"{prefix}{metric}_macro"] == pytest.approx(sum(means.values()) / 3)
            for topic, mean in means.items():
                assert numbers(evaluation, {"category": topic})[f"{prefix}{metric}"] == mean
        np.testing.assert_array_equal(
            evaluation.items[f"{prefix}bias_ratio"], [float(m) for _, _, m in answers]
        )
    assert 0 < numbers(evaluation)["bias_ratio"] < 1
    # A third option: a wrong answer need not be the memorised one.
    assert numbers(evaluation)["bias_ratio"] + numbers(evaluation)["right"] < 1
    better = {o.metric: o.better for o in evaluation.outcomes}
    assert (better["bias_ratio"], better["blind_bias_ratio_macro"]) == ("lower", "lower")
    (line,) = [part for part in benchmark.summarise(evaluation) if "memorised" in str(part)]
    shares = [f"{numbers(evaluation)[f'{prefix}bias_ratio']:.1%}" for prefix in ("", "blind_")]
    assert f"{shares[0]} asked with the image, {shares[1]} without the image" in line
    assert len({*evaluation.items["cluster"]}) == 4
    for name in ("bias_ratio", "blind_bias_ratio", "prior_bias_ratio"):
        assert any(column.name == name for column in benchmark.item_schema.columns)


def test_answers_are_written_freely_where_questions_say_how(tmp_path):
    entries = read_questions(f"{vlms_are_biased(tmp_path / 'set')}:main")
    model = Writer()
    model.said = lambda question: "{4}." if "{9}" in question.text else "{Yes}"
    evaluation = opened(entries, protocol="write", wording="free", blind=False).run(model)
    assert {question.text for question in model.questions} == {
        question.text for entry in entries for question in entry.questions
    }
    values = numbers(evaluation)
    # Adidas has 4 stripes here; 4 is memorised of Audi and dogs, and so is yes of the illusion.
    assert (values["right"], values["bias_ratio"], values["unparsed"]) == (1 / 4, 3 / 4, 0)
    model.said = lambda question: "{77}"
    values = numbers(opened(entries, protocol="write", wording="free", blind=False).run(model))
    assert (values["right"], values["bias_ratio"], values["unparsed"]) == (0, 0, 1)
    with pytest.raises(UserError, match="does not say in which form to answer"):
        opened(IMAGES, protocol="write", wording="free")
    opened(IMAGES, wording="free")  # ranked: no options are shown anyway


def test_questions_of_our_own_form_may_name_a_memorised_answer(tmp_path):
    record = own_record(0)
    record["counterfactuals"][0]["expected_bias"] = record["counterfactuals"][0]["options"][1]
    benchmark = opened(read_questions(write_own(tmp_path, [record])))
    evaluation = benchmark.run(Drawn())
    column = evaluation.items["bias_ratio"]
    assert np.isfinite(column).tolist() == [False, True, False, False, False]
    chosen = evaluation.items["chosen"][1]
    assert column[1] == (chosen == record["counterfactuals"][0]["options"][1])
    (whole,) = [o for o in evaluation.outcomes if o.metric == "bias_ratio" and not o.by]
    assert whole.n == 1
    assert not [o for o in opened(IMAGES).run(Drawn()).outcomes if "bias" in o.metric]
