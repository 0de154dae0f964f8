"""Tuning a language model on edited captions: loss, steps, resumption, what is saved."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.editing.causal_lm import CausalLM
from cfaug.editing.edit_prompts import EditFormat
from cfaug.models import lora as adapters
from cfaug.train.generative_tasks import EditData, LanguageTask
from cfaug.train.settings import LoggerSettings, OptimSettings, TrainerSettings
from cfaug.train.tuning import Lora, Tuning
from tests import children
from tests.train import tiny_language
from tests.train.tasks import run_task, saved
from tests.train.tiny_plan import rows, same_weights

QKV = r"\.(c_attn|[qkv]_proj)$"
TRAINER = TrainerSettings(
    max_steps=6, progress=False, accelerator="cpu", val_every_steps=2, gradient_clip=None
)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    tiny_language.save_gpt2(folder / "gpt2")
    tiny_language.save_gpt2(folder / "dropout", dropout=0.2)
    tiny_language.save_llama(folder / "llama")
    return folder


def task(weights, *, lora=None, batch_size=4, trainer=TRAINER, lr=1e-2, eps=1e-8):
    training, validation = tiny_language.answers()[:-4], tiny_language.answers()[-4:]
    tuning = None if lora is None else Tuning(lora=lora)
    return LanguageTask(
        model=CausalLM(str(weights)), optim=OptimSettings(lr=lr, weight_decay=0.0, eps=eps),
        trainer=trainer, logger=LoggerSettings(), seed=7, data_seed=8, tuning=tuning,
        data=EditData("rows.jsonl", batch_size=batch_size), edit_format=EditFormat.short(),
        training=tuple(training), validation=tuple(validation),
    )  # fmt: skip


def run(folder, weights, attempt=0, **given):
    return run_task(task(weights, **given), folder, attempt)


def slow_costs(tuned, row):
    """The answer's negative log-likelihood, one token after the other, each from its own prefix."""
    total = 0.0
    for place in range(row.start, len(row.ids)):
        before = torch.tensor([row.ids[:place]])
        with torch.no_grad():
            logits = tuned.model(input_ids=before).logits[0, -1]
        total -= float(torch.log_softmax(logits.double(), -1)[row.ids[place]])
    return total


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_only_the_answers_tokens_count(shelf, kind):
    """Padding, prompt and the rows beside it change no row's loss: a token-by-token reference."""
    from cfaug.train.generative_modules import collate

    language_task = task(shelf / kind)
    tuned = language_task.load()
    encoded = tuned.encode(language_task.edit_format, language_task.training[:3])
    assert len({len(row.ids) for row in encoded}) > 1  # so that something is padded
    costs = tuned.costs(collate(encoded, tuned.fill)).tolist()
    assert costs == pytest.approx([slow_costs(tuned, row) for row in encoded], rel=1e-5)
    edit_format = language_task.edit_format
    text = tuned.tokenizer.decode(encoded[0].ids[encoded[0].start :])
    assert (
        text
        == language_task.edit_format.response(language_task.training[0].edits) + "<|endoftext|>"
    )
    before = tuned.tokenizer.decode(encoded[0].ids[1 : encoded[0].start])
    assert before == edit_format.prompt("adjective", language_task.training[0].caption)


def test_a_row_that_is_too_long_loses_its_end(shelf):
    language_task = task(shelf / "gpt2")
    tuned = language_task.load()
    (whole,) = tuned.encode(language_task.edit_format, language_task.training[:1])
    tuned.longest = whole.start + 3
    (cut,) = tuned.encode(language_task.edit_format, language_task.training[:1])
    assert cut.ids == whole.ids[: whole.start + 3]
    assert cut.answered == 3
    tuned.longest = whole.start
    with pytest.raises(UserError, match=rf"has {whole.start} tokens, .*data\.format=short"):
        tuned.encode(language_task.edit_format, language_task.training[:1])


def test_batches_of_a_step_are_one_batch(folder, shelf):
    """Four batches of two answers, whatever their tokens, step as one of eight."""
    steps = {"max_steps": 2, "checkpoint": "last"}
    apart, together = folder, folder.with_name("seed=8")
    four = replace(TRAINER, **steps, accumulate_grad_batches=4)
    # AdamW would make a step of any size of the rounding of a gradient that is zero.
    run(apart, shelf / "gpt2", batch_size=2, trainer=four, eps=0.1)
    run(together, shelf / "gpt2", batch_size=8, trainer=replace(TRAINER, **steps), eps=0.1)
    for (name, first), second in zip(saved(apart).items(), saved(together).values(), strict=True):
        torch.testing.assert_close(first, second, atol=2e-5, rtol=1e-4, msg=name)
    losses = [
        [float(row["train/loss"]) for row in rows(run_folder)] for run_folder in (apart, together)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize(("kind", "layers"), [("gpt2", 2), ("llama", 6)])
def test_adapters_learn_and_are_saved_either_way(folder, shelf, kind, layers):
    """Merged, the folder is an ordinary one; by itself, the adapter gives the same model.

    Peft itself loads it, too.
    """
    from peft import PeftModel
    from safetensors.torch import load_file

    merged, alone = folder, folder.with_name("seed=8")
    lora = Lora([QKV], r=2, alpha=8, dropout=0.1)
    result = run(merged, shelf / kind, lora=lora)
    run(alone, shelf / kind, lora=replace(lora, merge=False))
    base = CausalLM(str(shelf / kind))
    assert 0 < result.trained < result.parameters / 5
    assert (alone / "checkpoint" / adapters.WEIGHTS).stat().st_size < 20_000
    assert {file.suffix for file in (alone / "checkpoint").iterdir()} <= {
        ".json", ".jsonl", ".safetensors",
    }  # fmt: skip
    texts = [answer.edits[0] for answer in tiny_language.answers()]
    ordinary = CausalLM(str(merged / "checkpoint")).perplexity(texts)
    adapted = base.at(str(alone / "checkpoint"))
    assert adapted.adapter == str(alone / "checkpoint")
    assert adapted.perplexity(texts) == pytest.approx(ordinary, rel=1e-4)
    assert max(abs(ordinary / base.perplexity(texts) - 1)) > 0.01
    assert adapted.weights_hash() != base.weights_hash()
    assert EditFormat.read(merged / "checkpoint") == EditFormat.short()
    tensors = load_file(alone / "checkpoint" / adapters.WEIGHTS)
    assert len(tensors) == 2 * layers
    ids = torch.tensor([[5, 6, 7, 8]], device=adapted.model.device)
    ours = adapted.model(input_ids=ids).logits
    theirs = PeftModel.from_pretrained(base.model, str(alone / "checkpoint")).eval()
    torch.testing.assert_close(theirs(input_ids=ids).logits, ours, atol=1e-3, rtol=1e-3)


def test_the_best_weights_are_kept_and_their_loss_is_told_by_prompt(folder, shelf):
    result = run(folder, shelf / "gpt2")
    validated = {int(r["step"]): float(r["val/loss"]) for r in rows(folder) if r["val/loss"]}
    assert result.best_val_loss == min(validated.values())
    table = result.measured["evaluation"]
    assert set(table) == {"adjective", "background-location", "all"}
    assert table["all"]["loss"] == pytest.approx(result.best_val_loss, rel=1e-4)
    tokens = sum(row["tokens"] for name, row in table.items() if name != "all")
    assert table["all"]["tokens"] == tokens
    assert table["all"]["answers"] == 4
    assert rows(folder)[0]["logit_scale"] == ""


def test_a_run_stops_when_the_held_out_loss_rises(folder, shelf):
    trainer = replace(TRAINER, max_steps=200, early_stopping=2)
    result = run(folder, shelf / "gpt2", trainer=trainer, lr=0.1)
    assert result.end_step < 200
    assert result.end_step - result.best_step == 4
    assert result.seen == result.end_step * 4


@pytest.mark.slow
def test_a_killed_run_ends_bit_identical(folder, shelf):
    trainer = replace(
        TRAINER, max_steps=8, save_every_steps=3, accumulate_grad_batches=2, ema_decay=0.5
    )
    given = {"trainer": trainer, "lora": Lora([QKV], r=2, dropout=0.2, merge=False)}
    whole = folder.with_name("seed=8")
    expected = run(whole, shelf / "dropout", **given)
    children.kill_at_line(folder / "metrics.csv", 6, run, folder, shelf / "dropout", **given)
    resumed = run(folder, shelf / "dropout", attempt=1, **given)
    assert 0 < resumed.start_step < 8
    assert resumed.best_step == expected.best_step
    assert resumed.best_val_loss == expected.best_val_loss
    files = {file.name for file in (whole / "checkpoint").iterdir()}
    assert files == {file.name for file in (folder / "checkpoint").iterdir()}
    for name in files:
        first, second = (
            (run_folder / "checkpoint" / name).read_bytes() for run_folder in (whole, folder)
        )
        assert first == second, name
    assert resumed.measured == expected.measured


def test_a_checkpoint_holds_what_is_trained_alone(folder, shelf):
    trainer = replace(TRAINER, keep_last=True)
    run(folder, shelf / "llama", trainer=trainer, lora=Lora([QKV], r=2))
    last = torch.load(folder / "last.ckpt", weights_only=True)
    assert last["state_dict"]
    assert all(".lora_" in name for name in last["state_dict"])
    kept = last["callbacks"]["Keeper"]["best"]["weights"]
    assert kept.keys() == {name.removeprefix("tuned.") for name in last["state_dict"]}
    assert not same_weights(kept, {name: value * 0 for name, value in kept.items()})
