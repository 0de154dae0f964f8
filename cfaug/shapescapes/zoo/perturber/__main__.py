"""Train the tiny perturber: ``python -m cfaug zoo perturber out=FOLDER seed=0``.

It writes a base model of lists of the embedded world's captions into ``FOLDER/base``, and the same
model tuned on edited captions by the code of ``python train.py experiment=lance_perturber``.
Rebuilding with the seed, threads and versions in ``card.json`` gives the same metrics.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from cfaug.editing.causal_lm import CausalLM
from cfaug.editing.edit_prompts import EditFormat, split_by_caption
from cfaug.shapescapes.zoo.command import fresh_folder, read, run, save_half, write_card
from cfaug.shapescapes.zoo.perturber.rows import PerturberSettings, draw_answers
from cfaug.train.language_task import EditData, LanguageTask
from cfaug.train.settings import LoggerSettings, OptimSettings, TrainerSettings
from cfaug.train.task import fit

VALIDATION = 0.1
"""The share of the rows' captions that are held out to choose the weights."""


def tune(settings: PerturberSettings, base: Path, folder: Path) -> dict[str, Any]:
    """Tune all weights of the base model on the rows, and write them in float16.

    Returns:
        Counts, steps, and the loss of held-out answers before and after.
    """
    answers = draw_answers(settings.rows)
    training, validation = split_by_caption(answers, VALIDATION, settings.seed)
    task = LanguageTask(
        model=CausalLM(str(base), device="cpu"),
        optim=OptimSettings(
            lr=settings.tune_lr, weight_decay=0.0, schedule="cosine", warmup_steps=settings.warmup
        ),
        trainer=TrainerSettings(
            max_steps=settings.tune_steps, max_epochs=None, accelerator="cpu",
            val_every_steps=max(1, settings.tune_steps // 4),
        ),
        logger=LoggerSettings(), seed=settings.seed, data_seed=settings.seed,
        data=EditData(None, "short", batch_size=settings.tune_batch, validation=VALIDATION),
        asked=EditFormat.short(), training=tuple(training), validation=tuple(validation),
    )  # fmt: skip
    before = task.measure(task.load())["evaluation"]["all"]
    with tempfile.TemporaryDirectory() as place:
        run_folder = Path(place) / "perturber" / "zoo" / "seed=0"
        run_folder.mkdir(parents=True)
        result = fit(task, run_folder, attempt=0)
        tuned = CausalLM(str(run_folder / "checkpoint"), device="cpu")
        save_half(tuned.model, tuned.tokenizer, folder)
    EditFormat.short().write(folder)
    return {
        "rows": dict(task.counts),
        "steps": {"run": result.end_step, "kept": result.best_step},
        "held_out_loss": {"before": before, "after": result.measured["evaluation"]},
    }


def build(settings: PerturberSettings, folder: Path) -> dict[str, Any]:
    """Train, tune and evaluate; return metrics, counts, seconds and sizes."""
    from cfaug.shapescapes.zoo.perturber.rows import (
        build_tokenizer,
        evaluate,
        held_out_captions,
        train_base,
    )

    began = time.process_time()
    tokenizer = build_tokenizer()
    model = train_base(settings, tokenizer)
    save_half(model, tokenizer, folder / "base")
    EditFormat.short().write(folder / "base")
    between = time.process_time()
    facts = tune(settings, folder / "base", folder)
    ended = time.process_time()
    captions = held_out_captions(settings.rows, settings.tested)
    return {
        "metrics": evaluate(folder, captions, settings.seed),
        **facts,
        "words": len(tokenizer),
        "parameters": sum(p.numel() for p in model.parameters()),
        "processor_seconds": {
            "base": round(between - began, 1), "tuning": round(ended - between, 1),
        },
    }  # fmt: skip


def main(argv: list[str]) -> int:
    """Train both and write them with one ``card.json``."""
    settings = read(PerturberSettings, argv)
    folder = fresh_folder(settings.out)
    facts = build(settings, folder)
    libraries = ("torch", "transformers", "lightning")
    write_card(folder, "perturber", settings, facts, libraries=libraries)
    return 0


if __name__ == "__main__":
    run(main)
