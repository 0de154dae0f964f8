"""Planning the tuning of a language model on edited captions: read the rows, hold out captions."""

from __future__ import annotations

import json

from cfaug.core.protocols import LanguageModel
from cfaug.core.weights import sha256, sha256_text
from cfaug.data.sources.lists import json_lines
from cfaug.editing.edit_format import group_rows, split_by_caption
from cfaug.models.checkpoints import Checkpoint, choose_protocol
from cfaug.run.planned import TrainPlan, TrainRequest
from cfaug.run.sources import say_once
from cfaug.train.language_task import EditData, LanguageTask


def plan_language(data: EditData, asked: TrainRequest) -> TrainPlan:
    """Read the rows, and hold out a share of their captions.

    Raises:
        UserError: for a model, settings or rows that cannot make a run.
    """
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
        f"data.edits={data.edits}: {sum(len(one.edits) for one in answers):,} edits in "
        f"{len(answers):,} answers; {counts['train']:,} answers about {counts['captions']:,} "
        f"captions are trained on, {counts['validation']:,} about others are held out"
    )
    format_hash = sha256_text(json.dumps(words.content(), sort_keys=True))
    return TrainPlan(
        task=task,
        data={"seed": data.seed},
        content={"edits": sha256([file]), "format": format_hash},
    )
