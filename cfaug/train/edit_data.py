"""The training data of a perturber: the configuration node ``data=edits``. No torch at import."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge

from cfaug.core.errors import UserError
from cfaug.core.validation import PartialShare, Positive, Seed, check_fields
from cfaug.data.mixture.settings import data_seed
from cfaug.editing.edit_format import FILE, EditFormat
from cfaug.editing.edit_prompts import read_prompts


@dataclass(frozen=True)
class EditData:
    """Edited captions, and the prompts that ask a language model for them.

    Args:
        edits: the JSON Lines file, with ``caption``, ``kind`` and ``edit``, one edited caption, on
            each line; see ``cfaug.editing.edit_rows``.
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
        """Return the file of rows.

        Raises:
            UserError: if no file is named, or it does not exist.
        """
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

        Raises:
            UserError: for prompts that cannot be read.
        """
        if self.format is None and (model / FILE).is_file():
            if self.prompts != "plain":
                raise UserError(
                    f"data.prompts={self.prompts} would have no effect: {model} was trained with "
                    f"prompts of its own, {FILE}; data.format=alpaca takes yours in their place"
                )
            return EditFormat.read(model)
        prompts = {one.name: one for one in read_prompts(self.prompts)}
        if self.format == "short":
            return replace(EditFormat.short(), prompts=prompts)
        return EditFormat(prompts=prompts)
