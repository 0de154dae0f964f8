from __future__ import annotations

import gc
import io
import multiprocessing
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.rng import generator
from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.index import open_index
from cfaug.data.mixture.mixture import plan_mixture
from cfaug.data.mixture.settings import RatioData
from cfaug.data.shards.shards import write_shards
from cfaug.models.specs import HFClip
from cfaug.train.mixture_task import ContrastiveTask
from cfaug.train.settings import LoggerSettings, OptimSettings, TrainerSettings
from cfaug.train.task import fit
from cfaug.train.tuning import Lora, Tuning
from tests.models import tiny
from tests.train.tasks import saved
from tests.train.tiny_plan import rows, same_weights

DATA = RatioData("real", "cf", cf_ratio=0.6, seed=8, batch_size=16)
TRAINER = TrainerSettings(
    max_steps=20, progress=False, accelerator="cpu", val_every_steps=4, save_every_steps=3
)


def image(name, number):
    draw = generator(0, name, number)
    data = io.BytesIO()
    pixels = draw.integers(0, 256, (tiny.SIZE + 4, tiny.SIZE, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(data, "PNG")
    return data.getvalue()


def make_sets(name, count, members):
    for number in range(count):
        words = generator(1, name, number).choice(tiny.WORDS, (members, 4))
        yield CounterfactualSet(
            f"{name}-{number}", f"{name}-{number}",
            tuple(Member(" ".join(w), str(i), f"{name}-{number}") for i, w in enumerate(words)),
            {str(i): image(name, 10 * number + i) for i in range(members)},
        )  # fmt: skip


@pytest.fixture(scope="module")
def indexes(tmp_path_factory):
    shelf = tmp_path_factory.mktemp("shards")
    write_shards(make_sets("real", 60, 1), shelf / "real")
    write_shards(make_sets("cf", 40, 2), shelf / "cf")
    return tuple(open_index(str(shelf / name), shelf / "cache") for name in ("real", "cf"))


def run(folder, indexes, weights, *, trainer=TRAINER, data=DATA, tuning=None, attempt=0, **given):
    folder.mkdir(parents=True, exist_ok=True)
    mixture = plan_mixture(
        *indexes, cf_ratio=data.cf_ratio, size=data.size, seed=8, validation=data.validation
    )
    job = ContrastiveTask(
        data=data, mixture=mixture, indexes=indexes, model=HFClip(str(weights)),
        optim=OptimSettings(lr=0.3, schedule="constant"), trainer=trainer,
        logger=LoggerSettings(), seed=7, data_seed=8, tuning=tuning,
    )  # fmt: skip
    return fit(job, folder, attempt=attempt, **given)


def test_a_run_leaves_the_best_weights(folder, indexes, dropout_weights):
    steps = []
    result = run(folder, indexes, dropout_weights, started=steps.append)
    assert steps == [0]
    assert (result.steps, result.start_step, result.end_step) == (20, 0, 20)
    # 106 rows are trained on, in 7 batches of at most 16: two epochs and six batches.
    assert result.seen == 2 * 106 + 6 * 16
    validated = {int(r["step"]): float(r["val/loss"]) for r in rows(folder) if r["val/loss"]}
    assert result.best_val_loss == min(validated.values())
    assert validated[result.best_step] == result.best_val_loss
    assert {p.name for p in folder.iterdir()} == {"metrics.csv", "last.ckpt", "checkpoint"}
    kept = torch.load(folder / "last.ckpt", weights_only=True)["callbacks"]["Keeper"]
    best = kept["best"]["weights"]
    assert result.best_step <= 18  # not the last: last.ckpt of step 18 already holds it
    assert all(torch.equal(best[f"model.{k}"], v) for k, v in saved(folder).items())


@pytest.mark.slow
def test_the_last_weights_by_option_and_any_number_of_workers(folder, indexes, dropout_weights):
    last = replace(TRAINER, max_steps=8, checkpoint="last")
    result = run(folder, indexes, dropout_weights, trainer=last)
    assert (result.best_step, result.best_val_loss) == (None, None)
    other = folder.with_name("seed=8")
    gc.disable()  # which would end the workers of a loader that is in a cycle, some time
    try:
        run(other, indexes, dropout_weights, trainer=last, data=replace(DATA, workers=2))
        assert not multiprocessing.active_children()
    finally:
        gc.enable()
    assert same_weights(saved(folder), saved(other))


@pytest.mark.slow
def test_adapters_resume_and_end_in_an_ordinary_checkpoint(folder, indexes, dropout_weights):
    from transformers import AutoModel

    tuning = Tuning(train=["^logit_scale$"], lora=Lora([r"\.(query|value)$"], r=2, dropout=0.2))
    result = run(folder, indexes, dropout_weights, tuning=tuning)
    other = folder.with_name("seed=8")
    other.mkdir()
    shutil.copy(folder / "last.ckpt", other)
    resumed = run(other, indexes, dropout_weights, tuning=tuning, attempt=1)
    assert resumed.start_step == 18
    assert replace(resumed, start_step=0) == result
    assert same_weights(saved(folder), saved(other))
    before = HFClip(str(dropout_weights)).load().model.state_dict()
    after = AutoModel.from_pretrained(folder / "checkpoint").state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    layer = "text_model.encoder.layer.0.attention.self"
    assert moved == {f"{layer}.query.weight", f"{layer}.value.weight", "logit_scale"}


def test_nothing_to_choose_the_best_by_is_an_error(folder, indexes, weights):
    with pytest.raises(UserError, match=r"trainer\.checkpoint=last"):
        run(folder, indexes, weights, data=replace(DATA, validation=0.0))


def test_less_than_a_batch_is_an_error(folder, indexes, weights):
    with pytest.raises(UserError, match=r"leaves no batch: .* data\.batch_size=1000"):
        run(folder, indexes, weights, data=replace(DATA, batch_size=1000, drop_last=True))
