"""Fine-tuning entailers: loss, steps, resumption, what is measured and saved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cfaug.core.pixels import decode_image
from cfaug.core.types import ENTAILMENT, CounterfactualSet, Edit, Member
from cfaug.data.index import open_index
from cfaug.data.mixture.mixture import plan_mixture
from cfaug.data.mixture.settings import EntailmentData
from cfaug.data.shards.shards import write_shards
from cfaug.models.task_specs import ViltEntailment
from cfaug.train.classification_task import EntailmentTask
from cfaug.train.settings import LoggerSettings, OptimSettings, TrainerSettings
from cfaug.train.tuning import Lora, Tuning
from tests.models import tiny
from tests.train.tasks import run_task, saved
from tests.train.test_fit import image
from tests.train.tiny_plan import rows

TRAINER = TrainerSettings(
    max_steps=6, progress=False, accelerator="cpu", val_every_steps=2, val_metrics=("accuracy",)
)
DATA = EntailmentData("real", "edited", cf_ratio=0.5, seed=8, batch_size=8)


def hypotheses(name, count, edited=False):
    """Photos with hypotheses of every label; of each the text before and after an edit."""
    for number in range(count):
        label = ENTAILMENT[number % 3]
        texts = [" ".join(np.random.default_rng([number, i]).choice(tiny.WORDS, 4)) for i in (0, 1)]
        edit = Edit("insertion", "", "red") if edited else None
        yield CounterfactualSet(
            f"{name}-{number}", f"{name}-{number}",
            tuple(
                Member(text, "0", f"{name}-{number}", edit if i else None, label)
                for i, text in enumerate(texts)
            ),
            {"0": image(name, number)},
        )  # fmt: skip


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    folder = tmp_path_factory.mktemp("entailment")
    tiny.save_vilt(folder / "vilt")
    write_shards(hypotheses("real", 24), folder / "real")
    write_shards(hypotheses("edited", 24, edited=True), folder / "edited")
    return folder


@pytest.fixture(scope="module")
def indexes(shelf):
    return tuple(open_index(str(shelf / name), shelf / "cache") for name in ("real", "edited"))


def task(shelf, indexes, *, trainer=TRAINER, data=DATA, tuning=None, lr=1e-2, eps=1e-8):
    mixture = plan_mixture(
        *indexes, cf_ratio=data.cf_ratio, size=data.size, seed=8, validation=data.validation
    )
    return EntailmentTask(
        data=data, mixture=mixture, indexes=indexes, model=ViltEntailment(str(shelf / "vilt")),
        optim=OptimSettings(lr=lr, eps=eps, schedule="constant"), trainer=trainer,
        logger=LoggerSettings(), seed=7, data_seed=8, tuning=tuning,
    )  # fmt: skip


def run(folder, shelf, indexes, attempt=0, **given):
    return run_task(task(shelf, indexes, **given), folder, attempt)


def test_the_loss_is_the_mean_cross_entropy_of_the_labels(shelf, indexes):
    from cfaug.train.classification_module import EntailmentModule

    entailment_task = task(shelf, indexes)
    entailer = entailment_task.load()
    module = EntailmentModule(entailer, entailment_task.make_steps(6))
    batch = next(iter(entailment_task.validation_batches(entailer, None, 0, 1)))
    assert len(batch["labels"]) == batch["global_size"] == 8
    costs = []
    with torch.no_grad():
        for pixels, text, label in zip(
            batch["pixels"], batch["texts"], batch["labels"].tolist(), strict=True
        ):
            (shares,) = entailer.entail([""], [text], pixels[None])
            costs.append(-float(shares[label].log()))
        assert float(module.loss(batch)) == pytest.approx(np.mean(costs), rel=1e-4)
    # The labels in a batch are those of the rows themselves, in either source.
    mixture = entailment_task.mixture.validation
    by_text = {
        indexes[source].text(row): indexes[source].label(row) for source, row in mixture.tolist()
    }
    said = [ENTAILMENT[label] for label in batch["labels"].tolist()]
    assert said == [by_text[text] for text in batch["texts"]]
    assert len(set(said)) > 1


def test_a_run_keeps_the_best_weights_and_measures_them(folder, shelf, indexes):
    result = run(folder, shelf, indexes)
    validated = {int(r["step"]): float(r["val/loss"]) for r in rows(folder) if r["val/loss"]}
    assert result.best_val_loss == min(validated.values())
    entailment_task = task(shelf, indexes)
    entailer = ViltEntailment(str(folder / "checkpoint")).load()
    right, matrix, cost = 0, np.zeros((3, 3), int), 0.0
    for source, row in entailment_task.mixture.validation.tolist():
        index = indexes[source]
        image = decode_image(index.read_image(row), "x")
        pixels = torch.from_numpy(np.array(entailer.transform(image)))
        with torch.no_grad():
            shares = entailer.entail([""], [index.text(row)], pixels[None])[0]
        label = ENTAILMENT.index(index.label(row))
        matrix[label, int(shares.argmax())] += 1
        right += int(shares.argmax()) == label
        cost -= float(shares[label].log())
    measured = result.measured["evaluation"]
    assert measured["confusion"] == matrix.tolist()
    assert measured["accuracy"] == pytest.approx(
        right / len(entailment_task.mixture.validation), abs=1e-4
    )
    shown = {row["step"]: row["val/accuracy"] for row in rows(folder)}
    assert float(shown[str(result.best_step)]) == pytest.approx(measured["accuracy"], abs=1e-4)
    assert cost / len(entailment_task.mixture.validation) == pytest.approx(
        result.best_val_loss, rel=1e-4
    )
    counts = entailment_task.classes
    assert sum(counts["train"].values()) == entailment_task.counts["train"]
    assert sum(counts["validation"].values()) == entailment_task.counts["validation"]
    assert result.seen == 6 * 8


@pytest.mark.slow
def test_adapters_are_merged_into_a_folder_like_any_other(folder, shelf, indexes):
    tuning = Tuning(lora=Lora([r"attention\.(query|value)$"], r=2), train=["classifier"])
    result = run(folder, shelf, indexes, tuning=tuning)
    assert 0 < result.trained < result.parameters / 2
    assert not any("lora" in name for name in saved(folder))
    assert ViltEntailment(str(folder / "checkpoint")).load() is not None


def test_zero_steps_leave_the_row_before(folder, shelf, indexes):
    result = run(folder, shelf, indexes, trainer=replace(TRAINER, max_steps=0))
    assert (result.end_step, result.seen) == (0, 0)
    assert [path.name for path in folder.iterdir()] == ["checkpoint"]
    assert 0 <= result.measured["evaluation"]["accuracy"] <= 1
    base = ViltEntailment(str(shelf / "vilt")).load_to_train(7).model.state_dict()
    assert all(torch.equal(value, base[name]) for name, value in saved(folder).items())
