"""The configuration node for vision-language models that answer questions. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cfaug.core.protocols import Answerer
from cfaug.core.validation import Positive, check_fields
from cfaug.models.checkpoints import Checkpoint
from cfaug.models.task_specs import check_prompt

if TYPE_CHECKING:
    from cfaug.models.prompts import Prompts

Dtype = Literal["float32", "float16", "bfloat16"]
"""A number format of weights."""


@dataclass(frozen=True)
class VisionLanguage(Checkpoint):
    """A vision-language model that ranks options or writes answers: LLaVA, Qwen-VL, InternVL, ...

    Args:
        name_or_path: a ``save_pretrained`` folder or a Hub id of ``AutoModelForImageTextToText``.
        revision: the commit of a Hub id.
        prompt: the template, with ``{question}`` and ``{image}``, for models without a chat
            template, such as BLIP-2 (``Question: {question} Answer:``); ``None`` is the chat
            template.
        dtype: the number format of the weights; scores are added up in float32 and float64.
        sharing: ``auto`` processes an image once for its questions and a question once for its
            options if the model supports it; ``none`` processes every prompt completely.
        tokens_at_once: the largest number of places in the caches of a batch, which bounds memory:
            about 0.5 MB for each place with a model of 7 billion weights.
    """

    prompt: str | None = None
    dtype: Dtype = "float32"
    sharing: Literal["auto", "none"] = "auto"
    tokens_at_once: Positive = 16384

    provides = (Answerer,)
    implementation = "cfaug.models.vision_language.VisionLanguageModel"
    ineffective = frozenset({"sharing", "tokens_at_once"})

    def __post_init__(self) -> None:
        check_fields(self, "model")
        check_prompt(self.prompt)

    def load_prompts(self) -> Prompts:
        """Return the model's writer of prompts, loaded from its processor, without its weights.

        Raises:
            UserError: if the folder or Hub id is unavailable, or lacks a processor or a prompt.
        """
        from cfaug.models.pretrained import load_processor
        from cfaug.models.prompts import Prompts

        folder = self.folder()
        return Prompts(load_processor(folder), self.prompt, folder)
