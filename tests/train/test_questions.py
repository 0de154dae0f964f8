"""Tuning a vision-language model on questions: loss, steps, resumption, what is saved."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.data.mixture.settings import QuestionData
from cfaug.data.questions import BASIC, COUNTERFACTUAL, QuestionImage, SourceQuestion
from cfaug.data.sources.question_sets.rows import EmbeddedImage
from cfaug.models.task_specs import VisionLanguage
from cfaug.planning.mixture_plan import draw_questions, open_rows, trained_images
from cfaug.train.generative_tasks import QuestionTask
from cfaug.train.settings import AnswerLoss, LoggerSettings, OptimSettings, TrainerSettings
from cfaug.train.tuning import Lora, Tuning
from cfaug.worlds.shapescapes.question_parts import make_questions
from cfaug.worlds.shapescapes.settings import WorldSettings
from tests.models import tiny_vlm
from tests.train.tasks import run_task, saved
from tests.train.test_fit import image
from tests.train.tiny_plan import rows

TRAINER = TrainerSettings(
    max_steps=6, progress=False, accelerator="cpu", val_every_steps=3, gradient_clip=None
)
DATA = QuestionData("set", None, cf_ratio=0.5, seed=8, batch_size=5, validation=0.2)
PROMPTS = {"blip_2_t5": "Question: {question} Answer:", "instructblip": "Q: {question} A:"}
SLOW = pytest.mark.slow
FAMILIES = ("llava", "blip_2_t5", pytest.param("instructblip", marks=SLOW))
"""Of every way to score options one; ``tests/models/test_vision_language.py`` has every family."""


def asked_images(count=24):
    """Two images a group, each with a basic and two counterfactual questions of one set."""
    for number in range(count):
        rng = np.random.default_rng(number)
        colour, size = rng.integers(2, size=2).tolist()
        hues, sizes = ("red", "dark blue"), ("big", "very small")
        yield QuestionImage(
            f"i{number}", f"g{number // 2}",
            EmbeddedImage(f"image {number}", lambda n=number: image("asked", n)), "colour",
            (
                SourceQuestion("basic", BASIC, "What colour is it?", hues, colour),
                SourceQuestion("c0", COUNTERFACTUAL, "And if it were not?", hues, 1 - colour),
                SourceQuestion("c1", COUNTERFACTUAL, "If shrunk, how large?", sizes, size),
            ),
        )  # fmt: skip


def open_set(name):
    assert name == "set"
    return list(asked_images())


def spec(folder, kind):
    return VisionLanguage(str(folder / kind), prompt=PROMPTS.get(kind))


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answerers")
    tiny_vlm.save_llava(folder / "llava")
    return folder


def task(
    folder, *, kind="llava", data=DATA, trainer=TRAINER, contrast=0.0, tuning=None, eps=1e-6
):  # fmt: skip
    mixture = draw_questions(data, *open_rows(data, open_set))
    return QuestionTask(
        model=spec(folder, kind), data=data, mixture=mixture, indexes=mixture.sources,
        optim=OptimSettings(lr=1e-2, eps=eps, schedule="constant"), trainer=trainer,
        logger=LoggerSettings(), seed=7, data_seed=8, tuning=tuning,
        loss=AnswerLoss(contrast=contrast),
    )  # fmt: skip


def run(folder, shelf, attempt=0, **given):
    return run_task(task(shelf, **given), folder, attempt)


def slow_costs(answerer, index, row):
    """Each option's mean cost: one question and option at a time, by transformers' own labels."""
    from cfaug.core.answers import Question

    question = index.question(row)
    pixels = decode_image(index.image(row).image.read(), "x")
    processor, costs = answerer.processor, []
    text = answerer.prompts.text(Question(question.text), image=True)
    for option in question.options:
        if answerer.scoring.translates:
            given = processor(images=[pixels], text=[text], return_tensors="pt")
            labels = processor.tokenizer(option, return_tensors="pt")["input_ids"]
            costs.append(float(answerer.model(**given, labels=labels).loss))
            continue
        space = "" if text[-1].isspace() else " "
        added = {"add_special_tokens": answerer.prompts.adds_special_tokens(text)}
        given = processor(
            images=[pixels], text=[f"{text}{space}{option}"], return_tensors="pt", **added
        )
        ids = given["input_ids"]
        alone = processor(images=[pixels], text=[text], return_tensors="pt", **added)
        # InstructBLIP's queries read the question, and not its answer.
        given = {**given, **{n: tensor for n, tensor in alone.items() if n.startswith("qformer")}}
        begin = next(
            (n for n, (a, b) in enumerate(zip(alone["input_ids"][0], ids[0], strict=False))
             if a != b), alone["input_ids"].shape[1],
        )  # fmt: skip
        labels = ids.clone()
        labels[:, :begin] = -100
        costs.append(float(answerer.model(**given, labels=labels).loss))
    return costs


@pytest.mark.parametrize("kind", FAMILIES)
def test_the_loss_is_that_of_one_question_at_a_time(tmp_path, kind):
    """Padding, image, prompt and the questions beside it change no question's loss."""
    from cfaug.train.generative_modules import AnswerModule

    tiny_vlm.SAVERS[kind](tmp_path / kind)
    question_task = task(tmp_path, kind=kind, data=replace(DATA, batch_size=7))
    tuned = question_task.load().eval()
    indexes, validation = question_task.questions, question_task.mixture.validation.tolist()
    with torch.no_grad():
        slow = [slow_costs(tuned, indexes[source], row) for source, row in validation]
        right = [indexes[source].question(row).answer for source, row in validation]
        for contrast in (0.0, 0.5):
            module = AnswerModule(tuned, question_task.make_steps(1), contrast)
            with_contrast = replace(question_task, loss=AnswerLoss(contrast))
            batches = list(with_contrast.validation_batches(tuned, None, 0, 1))
            total = sum(float(module.loss(b)) * b["global_size"] for b in batches)
            wanted = [
                costs[answer] + contrast * (
                    costs[answer] + np.log(np.exp(-np.array(costs)).sum())
                )
                for costs, answer in zip(slow, right, strict=True)
            ]  # fmt: skip
            assert total == pytest.approx(sum(wanted), rel=1e-5)
    assert len(validation) > 7  # so that questions of several lengths are in one batch


def test_prompts_are_those_of_the_benchmark(shelf):
    """Token for token what ``benchmark=vqa`` reads without solved examples, in every wording."""
    from cfaug.editing.edit_prompts import read_wording
    from cfaug.evaluation.questions.vqa import VisualQuestions
    from cfaug.train.generative_modules import AnswerExamples

    question_task = task(shelf)
    tuned = question_task.load()
    (index, _) = question_task.questions
    seen = []
    reader = tuned.reader
    real = reader.read

    def spy(image, questions, known=None):
        made = real(image, questions, known)
        seen.extend(
            (
                a.inputs["input_ids"].tolist(),
                a.inputs["pixel_values"].sum().item(),
                a.head,
                [o.ids for o in a.options],
                [o.start for o in a.options],
            )
            for a in made
        )
        return made

    reader.read = spy
    for wording in ("plain", "short", "listed"):
        benchmark = VisualQuestions("set", wording=wording, blind=False, prior=False)
        benchmark._images = [index.image(0)]
        seen.clear()
        benchmark.run(tuned)
        asked = list(seen)
        seen.clear()
        examples = AnswerExamples(question_task.questions, tuned, read_wording(wording))
        for source, row in ((0, 0), (1, 0), (1, 1)):
            examples._read(source, row)
        assert seen == asked
        assert len(seen) == 3


def test_only_what_is_drawn_is_trained_on_and_groups_stay_together(shelf):
    question_task = task(shelf, data=replace(DATA, size=20, cf_ratio=0.8))
    counts = question_task.counts
    assert (counts["real"], counts["counterfactual"]) == (3, 13)
    assert question_task.kinds["train"] == {BASIC: 3, COUNTERFACTUAL: 13}
    groups = [
        {question_task.questions[source].image(row).group for source, row in side.tolist()}
        for side in (question_task.mixture.train, question_task.mixture.validation)
    ]
    assert groups[1]
    assert not groups[0] & groups[1]
    trained = {image.key for image in trained_images(question_task.data, open_set)}
    assert trained == {
        question_task.questions[source].image(row).key
        for source, row in question_task.mixture.train.tolist()
    }
    # An arm of basic questions alone has those of the mixed arm first, and more after them.
    more = task(shelf, data=replace(DATA, size=20, cf_ratio=0)).mixture.train
    assert question_task.mixture.train[:3].tolist() == more[:3].tolist()


@pytest.mark.slow
def test_a_run_keeps_the_best_weights_and_measures_them(folder, shelf):
    trainer = replace(TRAINER, val_metrics=("accuracy",))
    with pytest.raises(UserError, match="reads the right one alone"):
        task(shelf, trainer=trainer).check()
    result = run(folder, shelf, trainer=trainer, contrast=0.5)
    validated = {int(r["step"]): float(r["val/loss"]) for r in rows(folder) if r["val/loss"]}
    assert result.best_val_loss == min(validated.values())
    question_task = task(shelf)
    answerer = VisionLanguage(str(folder / "checkpoint")).load()
    assert answerer.processor.chat_template == task(shelf).load().processor.chat_template
    right = {BASIC: [], COUNTERFACTUAL: []}
    costs = []
    with torch.no_grad():
        for source, row in question_task.mixture.validation.tolist():
            question = question_task.questions[source].question(row)
            slow = slow_costs(answerer, question_task.questions[source], row)
            right[question.kind].append(int(np.argmin(slow)) == question.answer)
            costs.append(slow[question.answer] + 0.5 * (slow[question.answer] + np.log(
                np.exp(-np.array(slow)).sum()
            )))  # fmt: skip
    measured = result.measured["evaluation"]
    for kind, hits in right.items():
        assert measured[kind] == {"accuracy": round(np.mean(hits), 5), "questions": len(hits)}
    assert result.best_val_loss == pytest.approx(np.mean(costs), rel=1e-5)
    assert measured["all"]["questions"] == len(costs)
    shown = {row["step"]: row["val/accuracy"] for row in rows(folder)}
    accuracy = float(shown[str(result.best_step)])
    assert accuracy == pytest.approx(measured["all"]["accuracy"], abs=1e-5)


@SLOW
def test_adapters_are_merged_into_a_folder_like_any_other(folder, shelf):
    before = task(shelf).load().model.state_dict()
    lora = Tuning(lora=Lora([r"language_model.*\.(q_proj|v_proj)$"], r=2))
    result = run(folder, shelf, tuning=lora, trainer=replace(TRAINER, max_steps=2))
    assert result.trained < result.parameters / 10
    after = VisionLanguage(str(folder / "checkpoint")).load().model.state_dict()
    changed = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    adapted = re.compile(r"language_model.*\.(q_proj|v_proj)\.weight$")
    assert changed == {name for name in before if adapted.search(name)}


def test_little_room_for_images_changes_nothing(shelf):
    from cfaug.data.mixture.loader import TrainingBatches
    from cfaug.editing.edit_prompts import read_wording
    from cfaug.train.generative_modules import AnswerExamples

    question_task = task(shelf)
    tuned = question_task.load()
    shares = list(TrainingBatches(question_task.mixture, question_task.data, seed=7, data_seed=8,
                                 start_step=0, total_steps=16))  # fmt: skip
    encoded = []
    for room in (0, 30_000, 2**30):
        examples = AnswerExamples(
            question_task.questions,
            tuned,
            read_wording("plain"),
            every_option=True,
            keep_bytes=room,
        )
        encoded.append([examples.__getitems__(share) for share in shares])
        held = sum(kept.bytes for kept in examples._images.values())
        assert held + examples._left == room
        assert examples._left >= 0
    for some in zip(*encoded, strict=True):
        for other in some[1:]:
            torch.testing.assert_close(other, some[0], rtol=0, atol=0)


def test_what_the_model_cannot_learn_from_is_refused_before_the_first_step(shelf, monkeypatch):
    question_task = task(shelf)
    tuned = question_task.load()

    def refused(what, change):
        changed = [replace(i, questions=tuple(map(change, i.questions))) for i in asked_images()]
        data = replace(DATA, cf_ratio=0)
        mixture = draw_questions(data, *open_rows(data, lambda _: changed))
        with pytest.raises(UserError, match=what):
            replace(question_task, data=data, mixture=mixture, indexes=mixture.sources).make_plan(
                tuned, 6, None
            )

    refused(r"23 of 23 questions are longer.*512 tokens that it reads \(i\d+/basic",
            lambda q: replace(q, options=("red", "blue " * 500)))  # fmt: skip
    refused("holds <image>", lambda q: replace(q, text="What is <image>?"))
    reader = tuned.reader
    real = reader.options
    monkeypatch.setattr(
        reader, "options", lambda text, ids, options: [real(text, ids, options)[0]] * len(options)
    )
    refused("23 of 23 questions have options that are the same tokens", lambda q: q)


def test_what_a_run_is_planned_on_can_be_sent_to_another_process():
    """As ``parallel=2`` of a sweep sends it."""
    asked = list(islice(make_questions(WorldSettings(seed=3), "test"), 4))
    again = pickle.loads(pickle.dumps(asked))
    for received, sent in zip(again, asked, strict=True):
        assert (received.questions, received.extra, received.key) == (
            sent.questions,
            sent.extra,
            sent.key,
        )
        assert received.image.digest == sent.image.digest


def test_questions_without_an_answer_are_left_out_and_counted():
    images = list(asked_images(6))
    bad = {
        "no_answer": replace(images[0].questions[0], answer=None),
        "one_option": replace(images[0].questions[0], options=("red",), answer=0),
        "equal_options": replace(images[0].questions[0], options=("red", "red"), answer=0),
    }
    for (reason, question), place in zip(bad.items(), (0, 1, 2), strict=True):
        images[place] = replace(images[place], questions=(question,))
        assert question.unscorable == reason
    images[3] = replace(images[3], image=None)
    data = replace(DATA, cf_ratio=0)
    index, _ = open_rows(data, lambda _: images)
    assert len(index) == 2
    assert index.left_out == {"no_answer": 1, "one_option": 1, "equal_options": 1, "no_image": 1}
    with pytest.raises(UserError, match=r"no basic question to learn from \(.*1 no_answer"):
        open_rows(data, lambda _: images[:4])
    with pytest.raises(UserError, match="no counterfactual question to learn from"):
        open_rows(replace(DATA, cf_ratio=1), lambda _: images[:1])


def test_equal_images_go_to_one_side_and_content_is_the_runs_identity():
    images = list(asked_images(8))
    twice = [*images[:7], replace(images[7], image=images[0].image)]
    data = replace(DATA, cf_ratio=0)
    sources = [
        open_rows(data, lambda _, entries=entries: entries)[0]
        for entries in (images, twice, images)
    ]
    assert sources[0].hash == sources[2].hash != sources[1].hash
    assert sources[1].contents[0] == sources[1].contents[7]
    assert len(set(sources[0].contents.tolist())) == 8
    for seed in range(6):
        mixture = draw_questions(replace(data, seed=seed, validation=0.4), sources[1], None)
        sides = (mixture.train, mixture.validation)
        both = [{0, 1, 6, 7} & set(side[:, 1].tolist()) for side in sides]
        assert not all(both)  # the groups of both


def train_in_ranks(folder, shelf):
    # Of 38 questions in batches of 37 the second process has none in an epoch's last.
    run(folder, shelf, trainer=replace(TRAINER, max_steps=4), data=replace(DATA, batch_size=37),
        eps=1e-2)  # fmt: skip  # or what has next to no gradient goes by its rounding


@SLOW
def test_two_processes_train_what_one_trains(folder, shelf):
    from tests.train.test_distributed import torchrun

    assert task(shelf).counts["train"] == 38
    alone, both = folder, folder.with_name("seed=8")
    train_in_ranks(alone, shelf)
    torchrun(train_in_ranks, both, shelf)
    for (name, first), second in zip(saved(alone).items(), saved(both).values(), strict=True):
        torch.testing.assert_close(first, second, atol=1e-4, rtol=1e-3, msg=name)
