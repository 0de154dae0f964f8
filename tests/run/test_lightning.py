"""The data module and the modules in Trainers of one's own, and the page that shows them."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch

import cfaug
from cfaug.data.shards.shards import write_shards
from cfaug.train.settings import LossSettings
from tests.models import tiny, tiny_vlm
from tests.run.conftest import WORLD
from tests.scripts import ROOT
from tests.train.test_distributed import torchrun
from tests.train.test_entailment import hypotheses

PAGE = ROOT / "docs" / "lightning.md"
SMALL = {key: int(value) for key, value in (word.split("=") for word in WORLD)}
MIXED = {**SMALL, "data.cf_ratio": 0.5, "data.size": 60, "seed": 107}
"""Three batches of 16 an epoch, and one of 12 to validate on."""


@pytest.fixture(scope="module")
def dropping(tmp_path_factory):
    """A dual encoder that drops 30 % of its activations."""
    return str(tiny.save_dual_encoder(tmp_path_factory.mktemp("weights"), dropout=0.3))


@pytest.fixture
def here(tmp_path, monkeypatch, shards):
    monkeypatch.chdir(tmp_path)
    Path("shards").symlink_to(shards)
    return tmp_path


def trainer(*callbacks, **given):
    settings = {"max_epochs": 2, "gradient_clip_val": 1.0, "accelerator": "cpu", "logger": False,
                "enable_progress_bar": False, "enable_model_summary": False}  # fmt: skip
    return pl.Trainer(callbacks=[*callbacks], **{**settings, **given})


def fit(settings, *callbacks, ckpt_path=None, module=None, **given):
    """Train on data of these settings; return the module and what was measured."""
    data = cfaug.CounterfactualDataModule(settings)
    model = data.make_module(module)
    made = trainer(*callbacks, **given)
    made.fit(model, data, ckpt_path=ckpt_path)
    return model, made


def weights(module):
    return {name: weight.clone() for name, weight in module.state_dict().items()}


def same(first, second):
    return all(torch.equal(weight, second[name]) for name, weight in first.items())


@pytest.mark.slow
def test_the_page_runs_and_its_example_is_short(here):
    first, second = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert sum(bool(line) for line in first.splitlines()) <= 25
    scenes = {key: number for key, number in SMALL.items() if key.startswith("data.world.")}
    world = f"cfaug.CounterfactualDataModule({scenes},"
    code = (first + second).replace("cfaug.CounterfactualDataModule(", world)
    code = code.replace("size=400, batch_size=32", "size=100, batch_size=16")
    exec(compile(code, str(PAGE), "exec"), {})
    assert {"step=4.ckpt", "step=8.ckpt"} <= {file.name for file in Path("ckpt").iterdir()}
    assert Path("tuned/model.safetensors").is_file()


@pytest.mark.slow
def test_it_is_the_run_of_the_command(here, dropping):
    asked = {**MIXED, "model.weights": dropping, "optim.lr": 3e-3}
    asked["trainer.val_metrics"] = ["recall@1"]
    model, made = fit(asked)
    model.save("tuned")
    run = cfaug.fine_tune(
        {**asked, "trainer.max_steps": None, "trainer.max_epochs": 2, "trainer.accelerator": "cpu"},
        **{"trainer.checkpoint": "last"},
    )
    assert run.record["steps"] == made.global_step == 6
    ours = (Path("tuned") / "model.safetensors").read_bytes()
    assert ours == (run.folder / "checkpoint" / "model.safetensors").read_bytes()
    with (run.folder / "metrics.csv").open() as handle:
        [*_, last] = csv.DictReader(handle)
    for name in ("train/loss", "val/loss", "val/recall@1"):
        assert made.callback_metrics[name].item() == pytest.approx(float(last[name])), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("saving", "given", "more"),
    [
        ({"every_n_train_steps": 1}, {}, {"data.workers": 1}),
        ({"every_n_train_steps": 1}, {"accumulate_grad_batches": 2, "max_epochs": 3}, {}),
        ({"monitor": "val/loss"}, {"val_check_interval": 2, "max_epochs": -1, "max_steps": 7}, {}),
    ],
    ids=["between steps", "accumulated", "after a validation"],
)  # fmt: skip
def test_it_resumes_to_the_same_bytes(here, dropping, saving, given, more):
    asked = {**MIXED, "model.weights": dropping, "optim.lr": 3e-3, **more}
    keeper = pl.callbacks.ModelCheckpoint("ckpt", "{step}", save_top_k=-1, **saving)
    whole, made = fit(asked, keeper, **given)
    files = sorted(Path("ckpt").iterdir(), key=lambda file: int(file.stem.removeprefix("step=")))
    assert len(files) >= 2
    for file in files[:2]:
        resumed, again = fit(asked, keeper, ckpt_path=file, **given)
        assert again.global_step == made.global_step
        assert same(weights(whole), weights(resumed)), file


class Stop(pl.Callback):
    """Fails before a step, between the batches of which it is made."""

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if batch_idx == 0:
            raise RuntimeError("the machine is gone")


@pytest.mark.slow
def test_a_checkpoint_within_a_step_is_no_exact_one(here):
    last = pl.callbacks.OnExceptionCheckpoint("ckpt", "last")
    with pytest.raises(RuntimeError, match="the machine is gone"):
        fit(MIXED, last, Stop(), accumulate_grad_batches=2)
    with pytest.warns(UserWarning, match="the gradients of its first 1 batches are lost"):
        fit(MIXED, ckpt_path="ckpt/last.ckpt", accumulate_grad_batches=2)


@pytest.mark.slow
def test_other_batches_are_refused_by_their_names(here):
    data = cfaug.CounterfactualDataModule(MIXED)
    state = data.state_dict()
    data.load_state_dict(state)
    for more, named in (
        ({"batch_size": 8}, r"data\.batch_size was 16 and is 8\. Make"),
        ({"cf_ratio": 0.25}, r"data\.cf_ratio was 0\.5 and is 0\.25\. Make"),
        ({"counterfactual": "shapescapes:unbiased"}, r"the counterfactual data have changed"),
    ):
        asked = {k: v for k, v in MIXED.items() if k.removeprefix("data.") not in more}
        other = cfaug.CounterfactualDataModule(asked, **more)
        with pytest.raises(cfaug.UserError, match=named):
            other.load_state_dict(state)
    with pytest.raises(cfaug.UserError, match=r"ContrastiveModule does; task=entailment makes"):
        data.make_module(cfaug.EntailmentModule)
    with pytest.raises(cfaug.UserError, match=r"trainer\.max_steps=4 would have no effect: cfaug"):
        cfaug.CounterfactualDataModule(MIXED, **{"trainer.max_steps": 4})
    model = data.make_module()
    with pytest.raises(cfaug.UserError, match=r"optim\.schedule=linear needs the length"):
        trainer(max_epochs=-1).fit(model, data)
    model.weighting = LossSettings(set_invariance=1.0)
    with pytest.raises(cfaug.UserError, match=r"module by data\.make_module\(ContrastiveM"):
        trainer().fit(model, data)


class Plain(pl.LightningModule):
    """Somebody else's module."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3 * 32 * 32, 1)
        self.texts = []

    def training_step(self, batch, batch_idx):
        self.texts.append(batch["texts"])
        return self.layer(batch["pixels"].flatten(1).float()).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-6)


@pytest.mark.slow
def test_data_and_modules_work_apart(here, dropping):
    data = cfaug.CounterfactualDataModule(MIXED)
    theirs = Plain()
    trainer(max_epochs=1).fit(theirs, data)
    alone = cfaug.CounterfactualDataModule(MIXED)
    batches = [batch["texts"] for batch in alone.train_dataloader()]
    assert batches == theirs.texts
    assert [len(batch) for batch in batches] == [16, 16, 16]
    assert len(data.mixture.train) == 48
    model = cfaug.ContrastiveModule(data.task.load())
    (metrics,) = trainer(max_epochs=1).validate(model, data, verbose=False)
    assert metrics["val/loss"] > 0


@pytest.mark.slow
def test_entailers_and_answerers_train_in_ones_own_trainer(here):
    write_shards(hypotheses("real", 24), here / "hypotheses")
    vilt = str(tiny.save_vilt(here / "vilt"))
    model, made = fit(
        {"task": "entailment", "data": "entailment", "data.real": str(here / "hypotheses"),
         "model.weights": vilt, "data.batch_size": 8, "data.validation": 0.25},
        module=cfaug.EntailmentModule, max_epochs=1,
    )  # fmt: skip
    assert made.global_step > 1
    assert "val/loss" in made.callback_metrics
    model.save("entailer")
    assert Path("entailer/model.safetensors").is_file()
    vlm = str(tiny_vlm.save_llava(here / "vlm"))
    model, made = fit(
        {"task": "vqa", "model": "vlm", "model.weights": vlm, "data.world.vqa_pairs": 20,
         "data.size": 20, "data.batch_size": 8},
        module=cfaug.AnswerModule, max_epochs=1,
    )  # fmt: skip
    assert made.global_step > 1
    model.save("answerer")
    assert Path("answerer/model.safetensors").is_file()


def train_on_two(folder, settings):
    keeper = pl.callbacks.ModelCheckpoint("ckpt", "{step}", save_top_k=-1, every_n_train_steps=2)
    ways = {"strategy": "ddp", "devices": 2}
    whole, made = fit(settings, keeper, **ways)
    resumed, again = fit(settings, keeper, ckpt_path="ckpt/step=2.ckpt", **ways)
    assert made.world_size == 2
    assert again.global_step == made.global_step
    assert same(weights(whole), weights(resumed))
    if made.global_rank == 0:
        torch.save(weights(whole), folder / "two.pt")


@pytest.mark.slow
def test_two_processes_share_every_batch(here):
    asked = {**MIXED, "optim.eps": 1e-2}
    torchrun(train_on_two, here, asked)
    alone, _ = fit(asked)
    together = torch.load(here / "two.pt", weights_only=True)
    for name, weight in weights(alone).items():
        assert torch.allclose(weight, together[name], atol=1e-5), name


def test_a_precision_of_other_weights_is_refused(here):
    data = cfaug.CounterfactualDataModule(MIXED)
    trainer = pl.Trainer(max_steps=1, precision="bf16-true", logger=False, accelerator="cpu")
    with pytest.raises(cfaug.UserError, match=r"precision=bf16-true: .*bf16-mixed"):
        trainer.fit(data.make_module(), data)
