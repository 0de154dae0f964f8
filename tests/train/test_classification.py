"""Fine-tuning image classifiers: loss, resumption, augmentation, what is measured and saved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.index import open_index
from cfaug.data.mixture.mixture import plan_mixture
from cfaug.data.mixture.settings import ClassificationData
from cfaug.data.shards.shards import write_shards
from cfaug.evaluation.class_mapping import match_classes
from cfaug.models.classifier_specs import TimmClassification
from cfaug.models.task_specs import ImageClassification
from cfaug.planning.mixture_plan import plan_classification
from cfaug.planning.training import TrainRequest
from cfaug.train.classification_module import augment
from cfaug.train.classification_task import ClassificationTask
from cfaug.train.settings import ClassLoss, LoggerSettings, OptimSettings, TrainerSettings
from tests import children
from tests.models import tiny
from tests.train.tasks import run_task, saved
from tests.train.test_fit import image
from tests.train.tiny_plan import rows

TRAINER = TrainerSettings(
    max_steps=6, progress=False, accelerator="cpu", val_every_steps=2, val_metrics=("accuracy",)
)
DATA = ClassificationData("real", "edited", cf_ratio=0.5, seed=8, batch_size=8)
LABELS = ("cat", "dog", "eel")


def photos(name, count, edited=False):
    """Photos of three classes; an edited one is a set of the photo and an edit of its class."""
    for number in range(count):
        members = [
            Member(
                f"{name} {number} {i}", str(i), f"{name}-{number}",
                Edit("subject", "a", "b") if i else None, LABELS[(number + i) % 3],
            )
            for i in range(2 if edited else 1)
        ]  # fmt: skip
        images = {str(i): image(f"{name}{i}", number) for i in range(len(members))}
        yield CounterfactualSet(f"{name}-{number}", f"{name}-{number}", tuple(members), images)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classification")
    tiny.save_classifier(folder / "vit")
    write_shards(photos("real", 24), folder / "real")
    write_shards(photos("edited", 12, edited=True), folder / "edited")
    return folder


@pytest.fixture(scope="module")
def indexes(shelf):
    return tuple(open_index(str(shelf / name), shelf / "cache") for name in ("real", "edited"))


def task(shelf, indexes, *, trainer=TRAINER, data=DATA, loss=None, lr=1e-3, eps=1e-8):
    mixture = plan_mixture(
        *indexes, cf_ratio=data.cf_ratio, size=data.size, seed=8, validation=data.validation
    )
    return ClassificationTask(
        data=data, mixture=mixture, indexes=indexes,
        model=ImageClassification(str(shelf / "vit")),
        optim=OptimSettings(lr=lr, eps=eps, schedule="constant", weight_decay=0.1),
        trainer=trainer, logger=LoggerSettings(), seed=7, data_seed=8, labels=LABELS,
        match=match_classes, loss=loss,
    )  # fmt: skip


def run(folder, shelf, indexes, attempt=0, **given):
    return run_task(task(shelf, indexes, **given), folder, attempt)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_losses_are_exactly_those_of_a_plain_loop(folder, shelf, indexes, smoothing):
    """The plain loop: transformers' own model, AdamW, the batches of the plan."""
    loss = ClassLoss(label_smoothing=smoothing)
    trainer = replace(TRAINER, checkpoint="last", gradient_clip=None)
    run(folder, shelf, indexes, trainer=trainer, loss=loss, eps=1e-3)
    asked = task(shelf, indexes, trainer=trainer)
    classifier = asked.load()
    assert classifier.classes == LABELS  # the folder's five classes are others: a new head
    batches = iter(asked.make_plan(classifier, 6, None).training(0, 0, 1))
    model = classifier.model.train()
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=1e-3, eps=1e-3, fused=True,
    )  # fmt: skip
    costs = []
    for _ in range(6):
        batch = next(batches)
        logits = model(pixel_values=classifier.transform.normalize(batch["pixels"])).logits
        cost = functional.cross_entropy(logits, batch["labels"], label_smoothing=smoothing)
        optimizer.zero_grad()
        cost.backward()
        optimizer.step()
        costs.append(cost.item())
    logged = [float(row["train/loss"]) for row in rows(folder)]
    np.testing.assert_allclose(logged, costs, rtol=2e-6)
    kept = ImageClassification(str(folder / "checkpoint")).load().model.state_dict()
    torch.testing.assert_close(kept, dict(model.state_dict()), atol=1e-6, rtol=1e-5)


def test_labels_are_those_of_members_and_the_best_weights_are_measured(folder, shelf, indexes):
    asked = task(shelf, indexes)
    result = run(folder, shelf, indexes)
    classifier = asked.load()
    for batch in asked.validation_batches(classifier, None, 0, 1):
        by_text = {
            index.text(row): index.label(row) for index in indexes for row in range(len(index))
        }
        assert [LABELS[n] for n in batch["labels"].tolist()] == [by_text[t] for t in batch["texts"]]
    measured = result.measured["evaluation"]
    assert np.sum(measured["confusion"]) == len(asked.mixture.validation)
    shown = {row["step"]: row["val/accuracy"] for row in rows(folder)}
    assert float(shown[str(result.best_step)]) == pytest.approx(measured["accuracy"], abs=1e-4)
    loaded = ImageClassification(str(folder / "checkpoint")).load()
    assert loaded.classes == LABELS
    assert asked.record()["labels"] == list(LABELS)


def test_the_accuracy_is_among_the_labels(shelf, indexes):
    """Of a model that keeps its five classes, the three others do not compete."""
    asked = replace(task(shelf, indexes), labels=("ball", "cube"))
    classifier = asked.load()
    assert len(classifier.classes) == 5
    module = asked.make_module(classifier, 6)
    module.measure(["accuracy"])
    pixels = torch.zeros((2, 3, classifier.transform.size, classifier.transform.size)).byte()
    with torch.no_grad():
        logits = classifier.eval().classify(pixels)
        columns = asked.columns(classifier).tolist()
        module.loss({"pixels": pixels, "labels": torch.tensor([0, 1]), "global_size": 2})
    best = int(logits[0, columns].argmax())
    assert module.metrics.compute()["val/accuracy"] == 0.5
    assert asked.predict(classifier, {"pixels": pixels})[:, best].shape == (2,)


def test_batches_of_a_step_are_one_batch(folder, shelf, indexes):
    """The last batch of an epoch is smaller, and counts by its examples."""
    apart, together = folder, folder.with_name("seed=8")
    only = {"validation": 0.0}
    trainer = replace(TRAINER, max_steps=1, checkpoint="last", val_metrics=())
    count = task(shelf, indexes, data=replace(DATA, **only)).counts["train"]
    run(apart, shelf, indexes, data=replace(DATA, batch_size=-(-count // 2) + 3, **only), eps=0.1,
        trainer=replace(trainer, accumulate_grad_batches=2))  # fmt: skip
    run(together, shelf, indexes, data=replace(DATA, batch_size=count, **only), eps=0.1,
        trainer=trainer)  # fmt: skip
    for (name, first), second in zip(saved(apart).items(), saved(together).values(), strict=True):
        torch.testing.assert_close(first, second, atol=2e-5, rtol=1e-4, msg=name)


def test_images_are_augmented_in_training_alone_by_the_seed(shelf, indexes):
    loss = ClassLoss(augment=("flip", "randaugment", "cutmix"))
    asked = task(shelf, indexes, loss=loss)
    module = asked.make_module(asked.load(), 6)
    plain = task(shelf, indexes).make_module(asked.load(), 6)
    batch = next(iter(asked.validation_batches(module.trained, None, 0, 1)))

    def cost(of, seed):
        torch.manual_seed(seed)
        return float(of.eval().loss(batch).detach())

    assert cost(module, 1) == cost(module, 1) != cost(module, 2)
    assert cost(plain, 1) == cost(plain, 2)
    with torch.no_grad():
        assert cost(module, 1) == cost(plain, 1)


def test_cutmix_shares_a_label_by_area_and_flips_mirror():
    torch.manual_seed(5)
    pixels = torch.stack([torch.full((3, 8, 8), value) for value in (10, 200)]).byte()
    mixed, shares = augment(pixels, torch.tensor([2, 0]), 4, ("cutmix",))
    torch.testing.assert_close(shares.sum(1), torch.ones(2))
    share = (mixed[0, 0] == 10).float().mean()
    torch.testing.assert_close(shares[0], torch.tensor([1 - share, 0, share, 0]))
    ramp = torch.arange(8).byte().expand(16, 3, 8, 8)
    flipped, labels = augment(ramp, torch.arange(16), 16, ("flip",))
    mirrored = [bool(torch.equal(augmented, ramp[0].flip(-1))) for augmented in flipped]
    kept = [bool(torch.equal(augmented, ramp[0])) for augmented in flipped]
    assert any(mirrored)
    assert any(kept)
    assert all(a != b for a, b in zip(mirrored, kept, strict=True))
    assert torch.equal(labels, torch.arange(16))


def request(model, **given):
    values = {
        "model": model, "optim": OptimSettings(), "trainer": TRAINER, "logger": LoggerSettings(),
        "tuning": None, "loss": None, "seed": 7, "paths": {},
    }  # fmt: skip
    return TrainRequest(**{**values, **given})


def test_classes_are_those_of_both_sources_whatever_is_drawn(shelf, tmp_path):
    paths = {"shards": tmp_path, "cache": tmp_path / "cache", "image_roots": []}
    model = ImageClassification(str(shelf / "vit"))
    data = replace(
        DATA, real=str(shelf / "real"), counterfactual=str(shelf / "edited"), size=4, validation=0
    )
    planned = plan_classification(data, request(model, paths=paths))
    assert planned.task.labels == LABELS
    assert planned.task.counts["train"] == 4


def test_other_models_and_data_without_labels_are_refused(shelf, tmp_path):
    from cfaug.models.specs import HFClip

    with pytest.raises(UserError, match="model=classifier, timm or torchvision"):
        plan_classification(DATA, request(HFClip("someone/model")))
    pieces = replace(TRAINER, micro_batch_size=2)
    with pytest.raises(UserError, match=r"micro_batch_size=2 is for contrastive"):
        plan_classification(DATA, request(TimmClassification("resnet50"), trainer=pieces))
    plain = (
        replace(photo, members=tuple(replace(member, label=None) for member in photo.members))
        for photo in photos("plain", 8)
    )
    write_shards(plain, tmp_path / "plain")
    paths = {"shards": tmp_path, "cache": tmp_path / "cache", "image_roots": []}
    data = replace(DATA, real=str(tmp_path / "plain"), counterfactual=None, cf_ratio=0)
    with pytest.raises(UserError, match=r"8 of 8 examples have no label, such as plain-"):
        plan_classification(data, request(ImageClassification(str(shelf / "vit")), paths=paths))


@pytest.mark.slow
def test_a_killed_run_ends_bit_identical(folder, shelf, indexes):
    loss = ClassLoss(augment=("flip", "randaugment", "cutmix"))
    trainer = replace(TRAINER, max_steps=8, save_every_steps=3, accumulate_grad_batches=2)
    whole = folder.with_name("seed=8")
    expected = run(whole, shelf, indexes, trainer=trainer, loss=loss)
    children.kill_at_line(
        folder / "metrics.csv", 6, run, folder, shelf, indexes, trainer=trainer, loss=loss
    )
    resumed = run(folder, shelf, indexes, attempt=1, trainer=trainer, loss=loss)
    assert 0 < resumed.start_step < 8
    assert resumed.measured == expected.measured
    for file in (whole / "checkpoint").iterdir():
        assert file.read_bytes() == (folder / "checkpoint" / file.name).read_bytes(), file.name


def train_in_ranks(folder, shelf, indexes, batch_size):
    run(folder, shelf, indexes, eps=1e-2, data=replace(DATA, batch_size=batch_size))


@pytest.mark.slow
def test_two_processes_train_what_one_trains(folder, shelf, indexes):
    """In an epoch's last batch, of one example, the second process has none."""
    from tests.train.test_distributed import torchrun

    train = task(shelf, indexes).counts["train"]
    size = next(size for size in range(5, train) if train % size == 1)
    alone, both = folder, folder.with_name("seed=8")
    train_in_ranks(alone, shelf, indexes, size)
    torchrun(train_in_ranks, both, shelf, indexes, size)
    measured = [[row["val/accuracy"] for row in rows(run_folder)] for run_folder in (alone, both)]
    assert measured[0] == measured[1]
    for (name, first), second in zip(saved(alone).items(), saved(both).values(), strict=True):
        torch.testing.assert_close(first, second, atol=1e-4, rtol=1e-3, msg=name)
