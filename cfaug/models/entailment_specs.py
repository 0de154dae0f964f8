"""Configuration nodes for entailers whose premise is an image. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cfaug.core.protocols import Entailer
from cfaug.models.entailment_prompt import Reduction, read_prompt
from cfaug.models.folder import Fusion, ImageCheckpoint
from cfaug.models.task_specs import LLAVA_PROMPT, check_prompt


@dataclass(frozen=True)
class ViltEntailment(Fusion):
    """A ViLT with a head of three logits; every pair needs a complete forward pass.

    The arguments are those of :class:`cfaug.models.folder.Fusion`.
    """

    implementation = "cfaug.models.vilt.ViltEntailer"


@dataclass(frozen=True)
class BridgeTowerEntailment(Fusion):
    """A BridgeTower with a head of three logits; its image tower runs once for each image.

    The arguments are those of :class:`cfaug.models.folder.Fusion`.
    """

    implementation = "cfaug.models.bridgetower.BridgeTowerEntailer"


@dataclass(frozen=True)
class FlavaEntailment(Fusion):
    """A FLAVA with a head of three logits; its image tower runs once for each image.

    The arguments are those of :class:`cfaug.models.folder.Fusion`.
    """

    implementation = "cfaug.models.flava.FlavaEntailer"


@dataclass(frozen=True)
class AskedEntailment(ImageCheckpoint):
    """A vision-language model, such as LLaVA, that chooses one of three answers.

    Args:
        name_or_path: a ``save_pretrained`` folder or a Hub id.
        revision: the commit of a Hub id.
        geometry: ``crop`` or ``squash`` images to a square; ``None`` follows the processor.
        prompt: the model's template, with ``{image}`` and ``{question}``; the answer follows after
            a space. The default is LLaVA-1.5's; ``None`` is the chat template of the folder.
        asked: the question and the three answers: ``yes_maybe_no``, ``labels``, or a YAML file.
        reduction: the log-likelihood of an answer is the ``sum`` over its tokens or their mean,
            ``token_mean``, which does not favour short answers.
    """

    prompt: str | None = LLAVA_PROMPT
    asked: str = "yes_maybe_no"
    reduction: Reduction = "sum"

    provides = (Entailer,)
    implementation = "cfaug.models.asked_entailer.AskedEntailer"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_prompt(self.prompt)

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of the model other than its folder, with the content of the prompt file."""
        told = super().settings
        asked = read_prompt(told.pop("asked"))
        return {**told, "question": asked.question, "options": dict(asked.options)}

    def answering(self) -> dict[str, Any]:
        """Return the settings that change the model's answers, with the content of the file."""
        asked = read_prompt(self.asked)
        told = {name: value for name, value in super().answering().items() if name != "asked"}
        return {**told, "asked": [asked.question, dict(sorted(asked.options.items()))]}
