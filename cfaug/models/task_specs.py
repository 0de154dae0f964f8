"""Configuration nodes for models of one task: classifiers, detectors, entailers, ... No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from cfaug.core.errors import UserError
from cfaug.core.pixels import Geometry
from cfaug.core.protocols import (
    Answerer,
    Captioner,
    Classifier,
    Detector,
    Entailer,
    OpenVocabularyDetector,
)
from cfaug.core.validation import Positive, Share
from cfaug.models.checkpoints import Checked, Folder, Matching
from cfaug.models.classifier_specs import class_names, with_names
from cfaug.models.prompts import Prompts, Reduction, read_prompt
from cfaug.models.visual_words import visual_words


@dataclass(frozen=True)
class ImageCheckpoint(Checked):
    """A checkpoint of transformers whose model reads images.

    Args:
        geometry: ``crop`` or ``squash`` images to a square; ``None`` follows the processor.
    """

    geometry: Geometry | None = None


@dataclass(frozen=True)
class Fusion(Folder):
    """A fusion encoder with a head that tells whether the text follows from the image.

    For training, ``weights`` may be any checkpoint of the encoder.

    Args:
        labels: entailment, neutral and contradiction in the order of the head's logits, which
            differs between models; ``None`` takes it from ``config.json``.
    """

    labels: tuple[str, ...] | None = None

    provides = (Entailer,)

    def load_to_train(self, seed: int) -> Any:
        """Load the encoder with its head, or a random one if it has no head of three logits."""
        module, _, name = self.implementation.rpartition(".")
        kind = getattr(import_module(module), name)
        return kind.load(self.folder(), **self.settings, head_seed=seed)

    def check_trainable(self) -> None:
        """Refuse training as a dual encoder."""
        raise UserError(
            f"{self.owner} cannot be fine-tuned on images and their captions: it learns whether a "
            "text follows from an image, by `python train.py task=entailment` with labelled "
            "hypotheses (data=shapescapes_ve, data=entailment)"
        )


def check_prompt(prompt: str | None) -> None:
    """Refuse a template without the placeholder of the question, or with a repeated placeholder.

    ``None`` stands for the model's chat template.
    """
    if prompt is None:
        return
    if prompt.count("{question}") != 1:
        raise UserError(f"model.prompt={prompt!r} needs {{question}} exactly once")
    if prompt.count("{image}") > 1:
        raise UserError(f"model.prompt={prompt!r} has {{image}} more than once")


@dataclass(frozen=True)
class ImageClassification(ImageCheckpoint):
    """An image classifier of transformers with its own classes: ViT, ConvNeXt, ResNet, ...

    Args:
        classes: a file of class names, a line for each logit: a name or a WordNet id; ``None``
            takes them from ``config.json``.
    """

    classes: str | None = None

    provides = (Classifier,)
    implementation = "cfaug.models.classifiers.HFClassifier"

    @property
    def settings(self) -> dict[str, Any]:
        return {**super().settings, "classes": class_names(self.classes)}

    def load_with_head(self, labels: Sequence[str], seed: int, match: Matching) -> Any:
        from cfaug.models.classifiers import HFClassifier

        return HFClassifier.load_with_head(self.folder(), self.settings, labels, seed, match)

    def answering(self) -> dict[str, Any]:
        return with_names(super().answering())


@dataclass(frozen=True)
class TextEntailment(Checked):
    """A model for natural language inference on texts, such as RoBERTa trained on MNLI.

    Args:
        max_length: premise and hypothesis together are truncated to this many tokens; ``None`` is
            the model's limit.
        labels: entailment, neutral and contradiction in the order of the model's logits, which
            differs between models; ``None`` takes it from ``config.json``.
    """

    max_length: Positive | None = None
    labels: tuple[str, ...] | None = None

    provides = (Entailer,)
    implementation = "cfaug.models.image_text.HFEntailer"


@dataclass(frozen=True)
class ImageCaptioning(ImageCheckpoint):
    """A model that describes images: BLIP, LLaVA, ...

    Args:
        prompt: the text that the model continues, with the placeholder ``{image}``; without the
            placeholder, the image comes first. The prompt is not part of the caption.
        prefix: the text put before every caption, such as LANCE's "a photo of".
        min_new_tokens: the smallest number of tokens in a caption; ``None`` for no limit.
        repetition_penalty: the argument of transformers' ``generate``; 1.0 for no penalty.
    """

    prompt: str = ""
    prefix: str = ""
    num_beams: Positive = 1
    """beams of the search for a caption; 1 is greedy"""
    max_new_tokens: Positive = 50
    """the most tokens of a caption"""
    min_new_tokens: Positive | None = None
    repetition_penalty: float = 1.0

    provides = (Captioner,)
    implementation = "cfaug.models.image_text.HFCaptioner"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prompt.count("{image}") > 1:
            raise UserError(f"model.prompt={self.prompt!r} has {{image}} more than once")


@dataclass(frozen=True)
class ObjectDetection(Checked):
    """An object detector with its own classes: YOLOS, DETR, ..."""

    threshold: Share = 0.5
    """the least score of a detection"""

    provides = (Detector,)
    implementation = "cfaug.models.detector.HFDetector"


@dataclass(frozen=True)
class ZeroShotDetection(Checked):
    """An open-vocabulary detector: Grounding DINO, OWL-ViT, OWLv2.

    Args:
        vocabulary: a file of names to detect, one in each line; ``None`` is the shipped list. An
            annotator that detects the nouns of a caption does not need it.
        template: the text for a name; OWL's authors use "a photo of a {label}".
        overlap: the intersection over union above which two boxes of one name are the same object;
            bottom-up attention, XMAI's detector, has 0.3.
        most: the largest number of objects in an image, the most certain first; bottom-up attention
            has 50. ``None`` for no limit.
    """

    vocabulary: str | None = None
    template: str = "{label}"
    threshold: Share = 0.3
    """the least score of a detection"""
    overlap: Share = 0.3
    most: Positive | None = 50

    provides = (OpenVocabularyDetector, Detector)
    implementation = "cfaug.models.detector.HFZeroShotDetector"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.template.count("{label}") != 1 or self.template.count("{") != 1:
            raise UserError(f"model.template={self.template!r} needs {{label}} exactly once")

    @property
    def settings(self) -> dict[str, Any]:
        return {**super().settings, "vocabulary": visual_words("objects", self.vocabulary)}

    def answering(self) -> dict[str, Any]:
        """Return the settings that change the model's answers, with the content of the file.

        The content of the shipped list is included, because a later release may change it.
        """
        return {**super().answering(), "vocabulary": visual_words("objects", self.vocabulary)}


@dataclass(frozen=True)
class ViltEntailment(Fusion):
    """A ViLT with a head of three logits; every pair needs a complete forward pass."""

    implementation = "cfaug.models.fusion.ViltEntailer"


@dataclass(frozen=True)
class BridgeTowerEntailment(Fusion):
    """A BridgeTower with a head of three logits; its image tower runs once for each image."""

    implementation = "cfaug.models.fusion.BridgeTowerEntailer"


@dataclass(frozen=True)
class FlavaEntailment(Fusion):
    """A FLAVA with a head of three logits; its image tower runs once for each image."""

    implementation = "cfaug.models.fusion.FlavaEntailer"


@dataclass(frozen=True)
class PromptedEntailment(ImageCheckpoint):
    """A vision-language model, such as LLaVA, that chooses one of three answers.

    Args:
        prompt: the model's template, with ``{image}`` and ``{question}``; the answer follows after
            a space. The default is LLaVA-1.5's; ``None`` is the chat template of the folder.
        wording: the question and the three answers: ``yes_maybe_no``, ``labels``, or a YAML file.
        reduction: the log-likelihood of an answer is the ``sum`` over its tokens or their mean,
            ``token_mean``, which does not favour short answers.
    """

    prompt: str | None = "USER: {image}\n{question} ASSISTANT:"
    wording: str = "yes_maybe_no"
    reduction: Reduction = "sum"

    provides = (Entailer,)
    implementation = "cfaug.models.image_text.PromptedEntailer"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_prompt(self.prompt)

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of the model other than its folder, with the content of the prompt file."""
        settings = super().settings
        wording = read_prompt(settings.pop("wording"))
        return {**settings, "question": wording.question, "options": dict(wording.options)}

    def answering(self) -> dict[str, Any]:
        wording = read_prompt(self.wording)
        settings = {name: value for name, value in super().answering().items() if name != "wording"}
        # Identities of known results have the name "asked".
        return {**settings, "asked": [wording.question, dict(sorted(wording.options.items()))]}


@dataclass(frozen=True)
class VisionLanguage(Checked):
    """A vision-language model that ranks options or writes answers: LLaVA, Qwen-VL, InternVL, ...

    It is a folder of ``AutoModelForImageTextToText``.

    Args:
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
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    sharing: Literal["auto", "none"] = "auto"
    tokens_at_once: Positive = 16384

    provides = (Answerer,)
    implementation = "cfaug.models.vision_language.VisionLanguageModel"
    ineffective = frozenset({"sharing", "tokens_at_once"})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_prompt(self.prompt)

    def load_prompts(self) -> Prompts:
        """Return the model's writer of prompts, loaded from its processor, without its weights."""
        from cfaug.models.encoder import load_processor

        folder = self.folder()
        return Prompts(load_processor(folder), self.prompt, folder)
