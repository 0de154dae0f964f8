"""Planning the training of models that answer questions, and of those that edit captions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from cfaug.core.errors import UserError
from cfaug.core.protocols import Answerer, LanguageModel
from cfaug.core.questions import AskedImage
from cfaug.core.weights import sha256, sha256_text
from cfaug.core.world_source import is_questions
from cfaug.data.mixture.mixture import mix
from cfaug.data.mixture.question_rows import QuestionRows, name_digest, read_digest
from cfaug.data.mixture.records import Mixture
from cfaug.data.mixture.settings import QuestionData, Sources
from cfaug.data.sources.lists import json_lines
from cfaug.editing.edit_format import group_rows, split_by_caption
from cfaug.editing.edit_prompts import read_wording
from cfaug.models.checkpoints import Checkpoint, choose_protocol
from cfaug.models.task_specs import VisionLanguage
from cfaug.planning.mixture_plan import of_mixture
from cfaug.planning.sources import open_questions, permitted_roots, say_once
from cfaug.planning.training import TrainPlan, TrainRequest
from cfaug.train.language_task import EditData, LanguageTask
from cfaug.train.question_task import QuestionTask
from cfaug.train.settings import AnswerLoss

# Planning the training of a model that answers questions: open the sets, draw the mixture.

Questions = Callable[[str], Sequence[AskedImage]]
"""Opens a question set by its name."""


def plan_questions(data: QuestionData, asked: TrainRequest) -> TrainPlan:
    """Open the question sets and draw the mixture; count its questions."""
    _check_model(asked)
    if asked.loss is not None and not isinstance(asked.loss, AnswerLoss):
        asked.refuse_contrastive("task=vqa")
    asked.refuse_pieces("task=vqa")
    assert data.seed is not None
    paths = asked.paths
    roots = permitted_roots(paths)
    basic, counterfactual = open_rows(data, _questions_of(data, roots))
    mixture = draw_questions(data, basic, counterfactual)
    loss = asked.loss if isinstance(asked.loss, AnswerLoss) else AnswerLoss()
    task = QuestionTask(**of_mixture(mixture, data, asked), loss=loss)
    _say_counts(task)
    content = {
        name: one.hash
        for name, one in (("real", basic), ("counterfactual", counterfactual))
        if one is not None
    }
    wording = json.dumps(asdict(read_wording(data.wording)), sort_keys=True)
    return TrainPlan(
        task=task,
        data={
            "seed": data.seed, "cf_ratio": data.cf_ratio, "holdout": data.holdout,
            "counterfactual": data.counterfactual or data.real,
        },
        hashed={"plan": None, "wording": None},
        content={**content, "wording": sha256_text(wording)},
    )  # fmt: skip


def _check_model(asked: TrainRequest) -> None:
    model: Any = asked.model
    owner = getattr(model, "owner", type(model).__name__)
    choose_protocol(model.provides, Answerer, owner)
    if not isinstance(model, VisionLanguage):
        raise UserError(
            f"{owner} is not a vision-language model that task=vqa trains: choose model=vlm "
            "model.name_or_path=FOLDER, or model=tiny_vlm"
        )
    if model.dtype != "float32":
        raise UserError(
            f"model.dtype={model.dtype}: weights are trained in float32; leave it out and set "
            "trainer.precision=bf16-mixed"
        )
    lora = None if asked.tuning is None else asked.tuning.lora
    if lora is not None and not lora.merge:
        raise UserError(
            "tuning.lora.merge=false leaves adapters that model=vlm does not load: leave it out "
            "with task=vqa"
        )


def _questions_of(data: QuestionData, roots: tuple[Path, ...]) -> Questions:
    """Return the opener of question sets; those of the world are drawn once for a sweep."""

    def ask(name: str) -> Sequence[AskedImage]:
        if not is_questions(name):
            return open_questions(name, data.world, data.seed, roots)
        seed = data.seed if data.world is None or data.world.seed is None else None
        return _drawn(name, data.world, seed)

    return ask


@lru_cache(maxsize=2)
def _drawn(name: str, world: Any, seed: int | None) -> Sequence[AskedImage]:
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
            name, sets[name], counterfactual=bool(place),
            digest_of=name_digest if is_questions(name) else read_digest,
        )
        for place, name in enumerate(names)
    )  # fmt: skip
    return basic, counterfactual


def draw_questions(
    data: QuestionData, basic: QuestionRows | None, counterfactual: QuestionRows | None
) -> Mixture:
    """Draw the questions that data settings ask for.

    Args:
        basic: the basic questions, from ``open_rows``; ``None`` if none are needed.
    """
    # These rows have what a mixture needs of an index; questions are not members of sets.
    rows: Any = (basic, counterfactual)
    return mix(data, Sources(*rows))


def trained_images(data: QuestionData, questions: Questions) -> list[AskedImage]:
    """Return the images that a run trained on, each with all questions that its set has.

    Args:
        data: the data settings of the run, with its seed.
        questions: a function that opens a question set by its name.
    """
    mixture = draw_questions(data, *open_rows(data, questions))
    found: dict[str, AskedImage] = {}
    for source, row in mixture.train.tolist():
        image = cast("QuestionRows", mixture.sources[source]).image(row)
        found.setdefault(f"{source} {image.key}", image)
    return list(found.values())


def _say_counts(task: QuestionTask) -> None:
    for side, found in task.kinds.items():
        if found:
            say_once(f"{side}: {_counted(found)} questions")
    if task.left_out:
        say_once(f"left out: {_counted(task.left_out)}")


def _counted(found: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in found.items())


# Planning the tuning of a language model on edited captions: read the rows, hold out captions.


def plan_language(data: EditData, asked: TrainRequest) -> TrainPlan:
    """Read the rows, and hold out a share of their captions."""
    model = asked.model
    owner = getattr(model, "owner", type(model).__name__)
    choose_protocol(model.provides, LanguageModel, owner)
    asked.refuse_contrastive("data=edits")
    file = data.file()
    assert isinstance(model, Checkpoint)  # every language model is a checkpoint in a folder
    words = data.edit_format(model.folder())
    answers = group_rows(json_lines(file), words, file)
    assert data.seed is not None
    training, validation = split_by_caption(answers, data.validation, data.seed)
    task = LanguageTask(
        **asked.of_task(), data_seed=data.seed, data=data, asked=words,
        training=tuple(training), validation=tuple(validation),
    )  # fmt: skip
    counts = task.counts
    say_once(
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
