"""Fine-tuning a causal language model to edit captions (LANCE, section 3.1). No torch at import."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge

from cfaug.core.errors import UserError
from cfaug.core.protocols import LanguageModel
from cfaug.core.rng import generator
from cfaug.core.validation import PartialShare, Positive, Seed, check_fields
from cfaug.data.mixture.settings import data_seed
from cfaug.editing.edit_prompts import FILE, EditAnswer, EditFormat, read_prompts
from cfaug.editing.protocols import round_digits
from cfaug.models.lora import BaseModel
from cfaug.train.task import Task

if TYPE_CHECKING:
    import numpy as np

    from cfaug.data.mixture.loader import KeptPixels
    from cfaug.editing.causal_lm import CausalLM
    from cfaug.train.engine import Plan
    from cfaug.train.language_module import LanguageModule, TunedLanguageModel


@dataclass(frozen=True, kw_only=True)
class LanguageTask(Task):
    """Prompts and answers; only the tokens of answers enter the loss.

    Attributes: those of :class:`cfaug.train.task.Task`, and
        data: the settings of the data, such as batch size and length.
        asked: the format of the prompts.
        training: the answers of the training split.
        validation: the answers of the validation split, about other captions.
    """

    data: EditData
    asked: EditFormat
    training: tuple[EditAnswer, ...]
    validation: tuple[EditAnswer, ...]

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of answers on either side, and of captions and edits in the training split."""
        return {
            "train": len(self.training),
            "validation": len(self.validation),
            "total": len(self.training) + len(self.validation),
            "captions": len({answer.caption for answer in self.training}),
            "edits": sum(len(answer.edits) for answer in self.training),
        }

    @property
    def batch_size(self) -> int:
        """The number of answers in a batch, over all processes together."""
        return self.data.batch_size

    @property
    def batches_per_epoch(self) -> int:
        """The number of batches in one pass over the training answers."""
        return -(-len(self.training) // self.data.batch_size)

    @property
    def lower_validation(self) -> str:
        """The setting that must be raised if the validation split is empty."""
        return f"data.validation={self.data.validation}"

    @property
    def language_model(self) -> CausalLM:
        """The model's specification, which reads and writes texts."""
        spec: CausalLM = self.model.load(LanguageModel).to("cpu")
        return spec

    def load(self) -> TunedLanguageModel:
        """Return the language model with its tokenizer."""
        from cfaug.train.language_module import TunedLanguageModel

        spec = self.language_model
        return TunedLanguageModel(
            spec.model, spec.tokenizer, self.data.max_length,
            start=spec.add_start_token, owner=spec.owner,
        )  # fmt: skip

    def make_module(self, trained: TunedLanguageModel, total_steps: int | None) -> LanguageModule:
        """Return the model with the loss of its answers and its optimizer."""
        from cfaug.train.language_module import LanguageModule

        return LanguageModule(trained, self.make_steps(total_steps))

    def make_plan(
        self, trained: TunedLanguageModel, total_steps: int, kept: KeptPixels | None
    ) -> Plan:
        """Return the batches of every step: answers in an order drawn for each epoch."""
        from cfaug.train.engine import Plan
        from cfaug.train.language_module import collate

        rows = trained.encode(self.asked, self.training)
        held = trained.encode(self.asked, self.validation)
        size, fill = self.batch_size, trained.fill

        def training(start: int, rank: int, world: int) -> Iterator[Any]:
            for number in range(start, total_steps * self.trainer.accumulate_grad_batches):
                epoch, position = divmod(number, self.batches_per_epoch)
                chosen = self._order(epoch)[position * size : (position + 1) * size]
                yield collate([rows[i] for i in chosen], fill, rank, world)

        def validation(rank: int, world: int) -> list[Any]:
            # Grouped by length, so that there is little padding.
            order = sorted(range(len(held)), key=lambda i: (len(held[i].ids), i))
            parts = [order[i : i + size] for i in range(0, len(order), size)]
            return [collate([held[i] for i in part], fill, rank, world) for part in parts]

        return Plan(
            training,
            validation if held else None,
            steps_per_epoch=self.batches_per_epoch,
            total_steps=total_steps,
        )

    def _order(self, epoch: int) -> np.ndarray:
        rng = generator(self.seed, "order", self.data_seed, epoch)
        return rng.permutation(len(self.training))

    def save(self, trained: TunedLanguageModel, folder: Path) -> None:
        """Write the weights, adapters merged or by themselves, the tokenizer and the format."""
        spec = self.language_model
        base = BaseModel(spec.name_or_path, spec.revision, spec.weights_hash())
        lora = None if self.tuning is None else self.tuning.lora
        trained.save(folder, self.asked, base if lora is not None and not lora.merge else None)

    def measure(self, trained: TunedLanguageModel) -> dict[str, Any]:
        """Return the loss and perplexity of the held-out answers, by prompt and over all."""
        import torch

        from cfaug.train.engine import device_of
        from cfaug.train.language_module import collate

        if not self.validation:
            return {}
        device = device_of(self.trainer)
        trained.eval().to(device)
        rows = trained.encode(self.asked, self.validation)
        sums: Counter[str] = Counter()
        tokens: Counter[str] = Counter()
        for start in range(0, len(rows), self.batch_size):
            part = slice(start, start + self.batch_size)
            with torch.inference_mode():
                costs = trained.costs(collate(rows[part], trained.fill)).tolist()
            for answer, row, cost in zip(self.validation[part], rows[part], costs, strict=True):
                sums[answer.prompt] += cost
                tokens[answer.prompt] += row.answered
        trained.cpu()
        return {"evaluation": tabulate(sums, tokens, Counter(a.prompt for a in self.validation))}


def tabulate(
    sums: Mapping[str, float], tokens: Mapping[str, int], answers: Mapping[str, int]
) -> dict[str, dict[str, float]]:
    """Return the loss and perplexity by prompt, and over all prompts as ``all``.

    >>> tabulate({"domain": 2.0}, {"domain": 4}, {"domain": 1})["all"]
    {'loss': 0.5, 'perplexity': 1.6487, 'tokens': 4, 'answers': 1}

    Args:
        sums: the negative log-likelihood of each prompt's answers, in nats.
        tokens: the number of tokens of each prompt's answers.
        answers: the number of each prompt's answers.
    """
    table = {}
    for name, part in [(name, [name]) for name in sorted(sums)] + [("all", sorted(sums))]:
        count = sum(tokens[key] for key in part)
        loss = sum(sums[key] for key in part) / count
        table[name] = {
            "loss": round_digits(loss), "perplexity": round_digits(math.exp(loss)),
            "tokens": count, "answers": sum(answers[key] for key in part),
        }  # fmt: skip
    return table


# The training data of a perturber: the configuration node ``data=edits``. No torch at import.


@dataclass(frozen=True)
class EditData:
    """Edited captions, and the prompts that ask a language model for them.

    Args:
        edits: the JSON Lines file, with ``caption``, ``kind`` and ``edit``, one edited caption, on
            each line; see ``cfaug.editing.edit_prompts``.
        format: ``alpaca``, an instruction with a preamble; ``short``, the prompt's name, for tiny
            models; ``None`` is the model's own if it was trained for edits before, else ``alpaca``.
        prompts: the instructions: ``plain``, LANCE's without examples (Table 5), ``examples``, or
            the user's own folder.
        batch_size: the number of answers in a forward pass, over all processes together.
        validation: the share of captions that are held out, in [0, 1).
        max_length: the largest number of tokens of a prompt and its answer, or the model's limit if
            that is smaller; longer ones are truncated (LANCE, Table 6: 1,024).
        seed: the seed that draws the held-out captions; ``None`` is the run's seed + 1.
    """

    edits: str | None
    format: Literal["alpaca", "short"] | None = None
    prompts: str = "plain"
    batch_size: Positive = 4
    validation: PartialShare = 0.1
    max_length: Annotated[int, Ge(2)] = 1024
    seed: Seed | None = None

    def __post_init__(self) -> None:
        check_fields(self, "data")

    def with_seed(self, seed: int) -> EditData:
        """Return these settings with a seed: their own, or one derived from the run's seed."""
        return self if self.seed is not None else replace(self, seed=data_seed(seed))

    def file(self) -> Path:
        """Return the file of rows."""
        if self.edits is None:
            raise UserError(
                "data.edits=FILE.jsonl is missing: edited captions, one JSON object a line with "
                "caption, kind and edit; `python -m cfaug zoo perturber_rows out=FILE.jsonl` "
                "writes some of the embedded world"
            )
        file = Path(self.edits).expanduser()
        if not file.is_file():
            raise UserError(f"data.edits={self.edits}: there is no such file")
        return file

    def edit_format(self, model: Path) -> EditFormat:
        """Return the format of the prompts for the model.

        Args:
            model: the folder of the model's weights.
        """
        if self.format is None and (model / FILE).is_file():
            if self.prompts != "plain":
                raise UserError(
                    f"data.prompts={self.prompts} would have no effect: {model} was trained with "
                    f"prompts of its own, {FILE}; data.format=alpaca takes yours in their place"
                )
            return EditFormat.read(model)
        prompts = {prompt.name: prompt for prompt in read_prompts(self.prompts)}
        if self.format == "short":
            return replace(EditFormat.short(), prompts=prompts)
        return EditFormat(prompts=prompts)
