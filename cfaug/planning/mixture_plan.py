"""Trainings planned: on mixtures of real and counterfactual rows, on questions, on edits."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.processes import end_with_parent
from cfaug.core.protocols import Answerer, Entailer, LanguageModel
from cfaug.core.types import ENTAILMENT
from cfaug.core.weights import sha256, sha256_text
from cfaug.core.worlds import is_questions
from cfaug.data.grids import NEUTRAL
from cfaug.data.mixture.hard_negatives import require_neutral
from cfaug.data.mixture.mixture import mix
from cfaug.data.mixture.question_rows import QuestionRows, name_digest, read_digest
from cfaug.data.mixture.records import COUNTERFACTUAL, Mixture
from cfaug.data.mixture.settings import (
    ClassificationData,
    DataSettings,
    EntailmentData,
    LabelData,
    QuestionData,
    Sources,
)
from cfaug.data.questions import QuestionImage
from cfaug.data.sources.fields import reading_by
from cfaug.data.sources.lists import json_lines
from cfaug.editing.edit_prompts import group_rows, read_wording, split_by_caption
from cfaug.evaluation.class_mapping import match_classes
from cfaug.models.checkpoints import Checkpoint, choose_protocol
from cfaug.models.specs import ClassifierLearner, EntailmentLearner
from cfaug.models.task_specs import VisionLanguage
from cfaug.planning.sources import (
    Opened,
    check_names,
    check_negatives,
    check_sources,
    describe_sources,
    needed_sources,
    open_data,
    open_questions,
    open_source,
    permitted_roots,
    report_held_out,
    report_join,
    report_near,
    say_planned,
)
from cfaug.planning.training import TrainPlan, TrainRequest
from cfaug.train.classification_task import ClassificationTask, EntailmentTask
from cfaug.train.generative_tasks import EditData, LanguageTask, QuestionTask
from cfaug.train.mixture_task import ContrastiveTask
from cfaug.train.settings import AnswerLoss, ClassLoss, LossSettings

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.train.mixture_task import MixtureTask


def report_mixture(
    mixture: Mixture, data: DataSettings, opened: Opened, request: TrainRequest
) -> None:
    """Print what was joined, what is held out and what nearly equals it."""
    if mixture.join is not None:
        report_join(mixture.join, opened, request.cache)
    if mixture.held_out is not None:
        report_held_out(mixture.held_out, data)
    if mixture.near is not None:
        report_near(mixture.near)


def of_mixture(mixture: Mixture, data: DataSettings, request: TrainRequest) -> dict[str, Any]:
    """Return the arguments of every :class:`cfaug.train.mixture_task.MixtureTask`."""
    assert data.seed is not None
    return {
        **request.of_task(), "data_seed": data.seed, "data": data, "mixture": mixture,
        "indexes": mixture.sources,
    }  # fmt: skip


def planned_mixture(task: MixtureTask, opened: Opened, content: Mapping[str, str]) -> TrainPlan:
    """Return a task with the part of its data that identifies its run."""
    data = task.data
    return TrainPlan(
        task=task,
        data=data.settled(),
        # A plan is identified by its name, as it was before it became an object.
        hashed={} if data.plan is None else {"plan": data.plan.name},
        content=content,
        sources=describe_sources(data, opened),
    )


def prepare_sources(runs: Sequence[tuple[DataSettings, Mapping[str, Any]]]) -> None:
    """Draw and scan the sources of a sweep on all cores, so that planning finds them on disk."""
    wanted = {}
    for settings, paths in runs:
        names = (*needed_sources(settings), settings.control_source, settings.human_labels)
        wanted[settings.seed, settings.world, names, repr((settings.fields, settings.reader))] = (
            settings,
            paths,
        )
    if len(wanted) < 2:
        return
    # Forked before torch is imported, so a process costs next to nothing.
    fork = get_context("fork")
    with ProcessPoolExecutor(mp_context=fork, initializer=end_with_parent) as pool:
        for _ in pool.map(_prepare, *zip(*wanted.values(), strict=True)):
            pass


def _prepare(settings: DataSettings, paths: Mapping[str, Any]) -> None:
    open_sources(settings, paths)


def open_sources(data: DataSettings, paths: Mapping[str, Any]) -> Opened:
    """Open the sources of data settings; a part of the world is drawn on first use."""
    shards, cache, roots = Path(paths["shards"]), Path(paths["cache"]), permitted_roots(paths)

    def open_one(name: str) -> Index:
        with reading_by(data.fields, data.reader):
            return open_source(name, data.world, data.seed, shards, cache, roots, fetch=True)

    opened = open_data(data, open_one, shards)
    check_names(data, opened)
    return opened


def plan_contrastive(data: DataSettings, request: TrainRequest) -> TrainPlan:
    """Open the sources and draw the mixture; print what was joined and what is held out."""
    request.model.check_trainable()
    given = request.loss
    if isinstance(given, AnswerLoss):
        raise UserError(
            "loss=answers is for questions and their options: leave it out, or choose task=vqa"
        )
    if isinstance(given, ClassLoss):
        raise UserError(
            "loss=classes is for the classes of images: leave it out, or choose task=classification"
        )
    if data.batch_size == 1:
        raise UserError(
            "data.batch_size=1 leaves an example no other to be told apart from, and the loss is 0 "
            "at every step: give two or more; trainer.micro_batch_size=1 saves memory instead"
        )
    opened = open_sources(data, request.paths)
    check_sources(data, opened)
    loss = use_negatives(data, opened, given)
    check_negatives(opened, loss)
    check_sets(data, opened, loss)
    _check_wrong_captions(data, loss)
    mixture = count_negatives(mix(data, opened), given)
    _refuse_unused_negatives(data, opened, given, mixture)
    _warn_of_plain_loss(mixture, loss)
    report_mixture(mixture, data, opened, request)
    task = ContrastiveTask(**of_mixture(mixture, data, request), loss=loss)
    return planned_mixture(task, opened, content_trained_with(data, opened, loss))


def _refuse_unused_negatives(
    data: DataSettings, opened: Opened, loss: LossSettings | None, mixture: Mixture
) -> None:
    use = None if loss is None else loss.negative_captions
    if use is None or data.negatives in ("text", "none") or mixture.counts.get("negatives"):
        return
    read = (opened.real, opened.counterfactual, opened.control)
    indexes = [index for index in read if index is not None]
    if use == "ignored" and any(index.has_negatives for index in indexes):
        return
    names = " and ".join(str(index.source) for index in indexes)
    raise UserError(
        f"loss.negative_captions={use} has no effect: no training example of {names} has a "
        "caption without an image (a column neg_caption beside image and caption); "
        "data.negatives=text takes counterfactual captions as negatives, and loss=null is the "
        "model's own loss"
    )


def _check_wrong_captions(data: DataSettings, loss: LossSettings | None) -> None:
    """Refuse a loss of right and wrong captions where no example has a wrong one."""
    if loss is None or loss.negative_captions == "used" or data.negatives == "none":
        return
    for name in ("intra_modal", "ranking"):
        if weight := getattr(loss, name):
            raise UserError(
                f"loss.{name}={weight:g} compares an example's caption with its wrong ones, and "
                "none is read here: data.negatives=text takes those of pairs, "
                "loss.negative_captions=used those of a list (a column neg_caption), and "
                f"loss.{name}=0 leaves the term out"
            )


def _warn_of_plain_loss(mixture: Mixture, loss: LossSettings | None) -> None:
    if loss is None or loss.plain or loss.set_invariance or loss.negative_captions is not None:
        return
    several = []
    for source, index in enumerate(mixture.sources):
        if index is not None:
            rows = mixture.train[mixture.train[:, 0] == source, 1]
            several.append(np.asarray(index.groups)[rows])
    groups = np.concatenate(several)
    if len(np.unique(groups)) == len(groups):
        say_planned(
            "warning: the loss has no effect on these data: no two training examples are of one "
            "photo or counterfactual set, so it equals loss=null, the model's own"
        )


def use_negatives(
    data: DataSettings, opened: Opened, loss: LossSettings | None
) -> LossSettings | None:
    """Return the loss that uses the captions of ``data.negatives``."""
    index = opened.counterfactual
    if data.negatives not in ("text", "none") or index is None or not data.drawn[COUNTERFACTUAL]:
        return loss
    if data.negatives == "none" and not index.has_negatives:
        return loss
    wanted: Literal["used", "ignored"] = "used" if data.negatives == "text" else "ignored"
    given = LossSettings() if loss is None else loss
    if given.negative_captions not in (None, wanted):
        raise UserError(
            f"data.negatives={data.negatives} and loss.negative_captions={given.negative_captions} "
            "contradict each other: leave out the latter"
        )
    return replace(given, negative_captions=wanted)


def count_negatives(mixture: Mixture, loss: LossSettings | None) -> Mixture:
    """Return the mixture with its count of captions without an image that serve as negatives."""
    if loss is None or loss.negative_captions != "used":
        return mixture
    indexes = mixture.sources
    count = sum(len(cast("Index", indexes[s]).negatives(row)) for s, row in mixture.train.tolist())
    return replace(mixture, counts={**mixture.counts, "negatives": count})


def check_sets(data: DataSettings, opened: Opened, loss: LossSettings | None) -> None:
    """Refuse settings that need counterfactual sets if the source lacks them."""
    index, captions = opened.counterfactual, data.counterfactual_captions
    weight = 0.0 if loss is None else loss.set_invariance
    drawn = data.drawn[COUNTERFACTUAL]
    if weight:
        setting = f"loss.set_invariance={weight:g}"
        if not drawn or not data.pairs_in_batch:
            raise UserError(
                f"{setting} compares the images of a counterfactual set within a batch: it needs "
                "data.pairs_in_batch=true and data.cf_ratio above 0, or loss=null"
            )
        require_neutral(cast("Index", index), setting)
    if captions == NEUTRAL and drawn:
        require_neutral(cast("Index", index), f"data.counterfactual_captions={captions}")
    sets = cast("Index", index).sets if drawn else np.empty(0)
    if captions == "shuffled" and drawn and len(sets) <= int(sets[-1]) + 1:
        raise UserError(
            "data.counterfactual_captions=shuffled permutes captions within a counterfactual set, "
            f"and data.counterfactual={data.counterfactual} has no set of two: leave it out, or "
            "name a source of sets"
        )


def content_trained_with(
    data: DataSettings, opened: Opened, loss: LossSettings | None
) -> dict[str, str]:
    """Return the hashes of the data, including neutral prompts if the loss uses them."""
    wanted = data.counterfactual_captions == NEUTRAL or (loss is not None and loss.set_invariance)
    if not wanted or opened.counterfactual is None:
        return opened.content
    return {**opened.content, "counterfactual": opened.counterfactual.hash_with([NEUTRAL])}


def plan_entailment(data: EntailmentData, request: TrainRequest) -> TrainPlan:
    """Open the sources and draw the mixture; count its labels."""
    model: Any = request.model
    owner = getattr(model, "owner", type(model).__name__)
    choose_protocol(model.provides, Entailer, owner)
    if not isinstance(model, EntailmentLearner):
        raise UserError(
            f"{owner} cannot be trained: choose a model that task=entailment trains, such as "
            "model=vilt_entailer, bridgetower_entailer or flava_entailer"
        )
    request.refuse_contrastive("task=entailment")
    opened, mixture = _draw_labelled(
        data, request, lambda label: label in ENTAILMENT, f"no label of {', '.join(ENTAILMENT)}",
        "learns from labelled hypotheses, such as SNLI-VE's or shapescapes:ve",
    )  # fmt: skip
    task = EntailmentTask(**of_mixture(mixture, data, request))
    for side, counts in task.classes.items():
        say_planned(f"{side}: {_counted(counts)}")
    return planned_mixture(task, opened, opened.content)


def plan_classification(data: ClassificationData, request: TrainRequest) -> TrainPlan:
    """Open the sources and draw the mixture; collect the labels of both sources."""
    model: Any = request.model
    owner = getattr(model, "owner", type(model).__name__)
    if not isinstance(model, ClassifierLearner):
        raise UserError(
            f"{owner} is not an image classifier with classes of its own: choose model=classifier, "
            "timm or torchvision; a dual encoder learns from captions, without task=classification"
        )
    if request.loss is not None and not isinstance(request.loss, ClassLoss):
        raise UserError(
            "loss=... is of another task: leave it out with task=classification, or change "
            "loss.label_smoothing and loss.augment"
        )
    request.refuse_pieces("task=classification")
    opened, mixture = _draw_labelled(
        data, request, lambda label: label is not None, "no label",
        "learns from folders of a class each, or from sets whose members have labels",
    )  # fmt: skip
    # Of whole sources, so that arms of other ratios and sizes have the same classes.
    labels = {
        label for index in mixture.sources if index is not None
        for label in map(index.label, range(len(index)))
    }  # fmt: skip
    task = ClassificationTask(
        **of_mixture(mixture, data, request), loss=request.loss, match=match_classes,
        labels=tuple(sorted(label for label in labels if label is not None)),
    )  # fmt: skip
    say_planned(f"{len(task.labels)} classes: {shorten(', '.join(task.labels), 200)}")
    return planned_mixture(task, opened, opened.content)


def _draw_labelled(
    data: LabelData, request: TrainRequest, known: Callable[[str | None], bool], lacking: str,
    learns: str,
) -> tuple[Opened, Mixture]:  # fmt: skip
    """Open the sources and draw the mixture; refuse examples without a label that is ``known``."""
    opened = open_sources(data, request.paths)
    check_sources(data, opened)
    mixture = mix(data, opened)
    for source, index in enumerate(mixture.sources):
        rows = [side[side[:, 0] == source, 1] for side in (mixture.train, mixture.validation)]
        drawn = [row for part in rows for row in part.tolist()]
        wrong = [row for row in drawn if not known(cast("Index", index).label(row))]
        if wrong:
            assert index is not None
            label = index.label(wrong[0])
            problem = "no label" if label is None else f"the label {label[:40]!r}"
            raise UserError(
                f"{index.source}: {len(wrong):,} of {len(drawn):,} examples have {lacking}, such "
                f"as {index.key(wrong[0])}, which has {problem}: task={data.task} {learns}"
            )
    report_mixture(mixture, data, opened, request)
    return opened, mixture


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


# Planning the training of models that answer questions, and of those that edit captions.

Questions = Callable[[str], Sequence[QuestionImage]]
"""Opens a question set by its name."""


def plan_questions(data: QuestionData, request: TrainRequest) -> TrainPlan:
    """Open the question sets and draw the mixture; count its questions."""
    model: Any = request.model
    owner = getattr(model, "owner", type(model).__name__)
    choose_protocol(model.provides, Answerer, owner)
    if not isinstance(model, VisionLanguage):
        raise UserError(
            f"{owner} is not a vision-language model that task=vqa trains: choose model=vlm "
            "weights=FOLDER, or model=tiny_vlm"
        )
    if model.dtype != "float32":
        raise UserError(
            f"model.dtype={model.dtype}: weights are trained in float32; leave it out and set "
            "trainer.precision=bf16-mixed"
        )
    lora = None if request.tuning is None else request.tuning.lora
    if lora is not None and not lora.merge:
        raise UserError(
            "tuning.lora.merge=false leaves adapters that model=vlm does not load: leave it out "
            "with task=vqa"
        )
    if request.loss is not None and not isinstance(request.loss, AnswerLoss):
        request.refuse_contrastive("task=vqa")
    request.refuse_pieces("task=vqa")
    assert data.seed is not None
    roots = permitted_roots(request.paths)

    def read(name: str) -> Sequence[QuestionImage]:
        if not is_questions(name):
            return open_questions(name, data.world, data.seed, roots)
        seed = data.seed if data.world is None or data.world.seed is None else None
        return _drawn(name, data.world, seed)  # once for a sweep

    basic, counterfactual = open_rows(data, read)
    mixture = draw_questions(data, basic, counterfactual)
    loss = request.loss if isinstance(request.loss, AnswerLoss) else AnswerLoss()
    task = QuestionTask(**of_mixture(mixture, data, request), loss=loss)
    for side, counts in task.kinds.items():
        if counts:
            say_planned(f"{side}: {_counted(counts)} questions")
    if task.left_out:
        say_planned(f"left out: {_counted(task.left_out)}")
    content = {
        name: rows.hash
        for name, rows in (("real", basic), ("counterfactual", counterfactual))
        if rows is not None
    }
    wording = json.dumps(asdict(read_wording(data.wording)), sort_keys=True)
    return TrainPlan(
        task=task,
        data={**data.settled(), "counterfactual": data.counterfactual or data.real},
        hashed={"wording": None},
        content={**content, "wording": sha256_text(wording)},
    )


@lru_cache(maxsize=2)
def _drawn(name: str, world: Any, seed: int | None) -> Sequence[QuestionImage]:
    return open_questions(name, world, seed)


def open_rows(
    data: QuestionData, questions: Questions
) -> tuple[QuestionRows | None, QuestionRows | None]:
    """Open the basic and the counterfactual questions that data settings need."""
    names = data.question_sets
    for role, needed, name in zip(("real", "counterfactual"), data.needed, names, strict=True):
        if needed and name is None:
            raise UserError(
                f"data.cf_ratio={data.cf_ratio} needs data.{role}=FILE of questions about images, "
                "or data=shapescapes_vqa"
            )
    sets = {name: questions(name) for name in dict.fromkeys(names) if name is not None}
    basic, counterfactual = (
        None
        if name is None
        else QuestionRows(
            name, sets[name], counterfactual=bool(position),
            digest_of=name_digest if is_questions(name) else read_digest,
        )
        for position, name in enumerate(names)
    )  # fmt: skip
    return basic, counterfactual


def draw_questions(
    data: QuestionData, basic: QuestionRows | None, counterfactual: QuestionRows | None
) -> Mixture:
    """Draw the questions that data settings ask for; ``None`` if none of a kind are needed."""
    # These rows have what a mixture needs of an index; questions are not members of sets.
    rows: Any = (basic, counterfactual)
    return mix(data, Sources(*rows))


def trained_images(data: QuestionData, questions: Questions) -> list[QuestionImage]:
    """Return the images that a run trained on, each with all questions that its set has.

    Args:
        data: the data settings of the run, with its seed.
    """
    mixture = draw_questions(data, *open_rows(data, questions))
    images: dict[str, QuestionImage] = {}
    for source, row in mixture.train.tolist():
        image = cast("QuestionRows", mixture.sources[source]).image(row)
        images.setdefault(f"{source} {image.key}", image)
    return list(images.values())


def plan_language(data: EditData, request: TrainRequest) -> TrainPlan:
    """Read the rows, and hold out a share of their captions."""
    model = request.model
    owner = getattr(model, "owner", type(model).__name__)
    choose_protocol(model.provides, LanguageModel, owner)
    request.refuse_contrastive("data=edits")
    file = data.file()
    assert isinstance(model, Checkpoint)  # every language model is a checkpoint in a folder
    words = data.edit_format(model.folder())
    answers = group_rows(json_lines(file), words, file)
    assert data.seed is not None
    training, validation = split_by_caption(answers, data.validation, data.seed)
    task = LanguageTask(
        **request.of_task(), data_seed=data.seed, data=data, edit_format=words,
        training=tuple(training), validation=tuple(validation),
    )  # fmt: skip
    counts = task.counts
    say_planned(
        f"data.edits={data.edits}: {sum(len(answer.edits) for answer in answers):,} edits in "
        f"{len(answers):,} answers; {counts['train']:,} answers about {counts['captions']:,} "
        f"captions are trained on, {counts['validation']:,} about others are held out"
    )
    format_hash = sha256_text(json.dumps(words.content(), sort_keys=True))
    return TrainPlan(
        task=task,
        data={"seed": data.seed},
        content={"edits": sha256([file]), "format": format_hash},
    )
