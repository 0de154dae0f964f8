"""Configuration nodes for models of one task: classifiers, detectors, entailers, ... No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.protocols import (
    Captioner,
    Classifier,
    Detector,
    Entailer,
    OpenVocabularyDetector,
)
from cfaug.core.validation import Positive, Share, check_fields
from cfaug.core.visual_words import visual_words
from cfaug.models.checkpoints import Checkpoint
from cfaug.models.classifier_specs import class_names, with_names
from cfaug.models.folder import ImageCheckpoint

LLAVA_PROMPT = "USER: {image}\n{question} ASSISTANT:"
"""LLaVA-1.5's template."""


def check_prompt(prompt: str | None) -> None:
    """Refuse a template without the placeholder of the question, or with a repeated placeholder.

    Args:
        prompt: the template of a prompt; ``None`` stands for the model's chat template.

    Raises:
        UserError: for such a template; it names the placeholder.
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
        name_or_path: a ``save_pretrained`` folder or a Hub id.
        revision: the commit of a Hub id.
        geometry: ``crop`` or ``squash`` images to a square; ``None`` follows the processor.
        classes: a file of class names, a line for each logit: a name or a WordNet id; ``None``
            takes them from ``config.json``.
    """

    classes: str | None = None

    provides = (Classifier,)
    implementation = "cfaug.models.classifier.HFClassifier"

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of the model other than its folder."""
        return {**super().settings, "classes": class_names(self.classes)}

    def answering(self) -> dict[str, Any]:
        """Return the settings that change the model's answers, with the content of the file."""
        return with_names(super().answering())


@dataclass(frozen=True)
class TextEntailment(Checkpoint):
    """A model for natural language inference on texts, such as RoBERTa trained on MNLI.

    Args:
        name_or_path: a ``save_pretrained`` folder or a Hub id.
        revision: the commit of a Hub id.
        max_length: premise and hypothesis together are truncated to this many tokens; ``None`` is
            the model's limit.
        labels: entailment, neutral and contradiction in the order of the model's logits, which
            differs between models; ``None`` takes it from ``config.json``.
    """

    max_length: Positive | None = None
    labels: tuple[str, ...] | None = None

    provides = (Entailer,)
    implementation = "cfaug.models.entailer.HFEntailer"

    def __post_init__(self) -> None:
        check_fields(self, "model")


@dataclass(frozen=True)
class ImageCaptioning(ImageCheckpoint):
    """A model that describes images: BLIP, LLaVA, ...

    Args:
        name_or_path: a ``save_pretrained`` folder or a Hub id.
        revision: the commit of a Hub id.
        geometry: ``crop`` or ``squash`` images to a square; ``None`` follows the processor.
        prompt: the text that the model continues, with the placeholder ``{image}``; without the
            placeholder, the image comes first. The prompt is not part of the caption.
        prefix: the text put before every caption, such as LANCE's "a photo of".
        num_beams: the number of beams; 1 is greedy decoding.
        max_new_tokens: the largest number of tokens in a caption.
        min_new_tokens: the smallest number of tokens in a caption; ``None`` for no limit.
        repetition_penalty: the argument of transformers' ``generate``; 1.0 for no penalty.
    """

    prompt: str = ""
    prefix: str = ""
    num_beams: Positive = 1
    max_new_tokens: Positive = 50
    min_new_tokens: Positive | None = None
    repetition_penalty: float = 1.0

    provides = (Captioner,)
    implementation = "cfaug.models.image_text.HFCaptioner"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prompt.count("{image}") > 1:
            raise UserError(f"model.prompt={self.prompt!r} has {{image}} more than once")


@dataclass(frozen=True)
class ObjectDetection(Checkpoint):
    """An object detector with its own classes: YOLOS, DETR, ...

    Args:
        name_or_path: a ``save_pretrained`` folder or a Hub id.
        revision: the commit of a Hub id.
        threshold: the score above which an object is returned.
    """

    threshold: Share = 0.5

    provides = (Detector,)
    implementation = "cfaug.models.detector.HFDetector"

    def __post_init__(self) -> None:
        check_fields(self, "model")


@dataclass(frozen=True)
class ZeroShotDetection(Checkpoint):
    """An open-vocabulary detector: Grounding DINO, OWL-ViT, OWLv2.

    Args:
        name_or_path: a ``save_pretrained`` folder or a Hub id.
        revision: the commit of a Hub id.
        vocabulary: a file of names to detect, one in each line; ``None`` is the shipped list. An
            annotator that detects the nouns of a caption does not need it.
        template: the text for a name; OWL's authors use "a photo of a {label}".
        threshold: the score above which an object is returned.
        overlap: the intersection over union above which two boxes of one name are the same object;
            bottom-up attention, XMAI's detector, has 0.3.
        most: the largest number of objects in an image, the most certain first; bottom-up attention
            has 50. ``None`` for no limit.
    """

    vocabulary: str | None = None
    template: str = "{label}"
    threshold: Share = 0.3
    overlap: Share = 0.3
    most: Positive | None = 50

    provides = (OpenVocabularyDetector, Detector)
    implementation = "cfaug.models.zero_shot_detector.HFZeroShotDetector"

    def __post_init__(self) -> None:
        check_fields(self, "model")
        if self.template.count("{label}") != 1 or self.template.count("{") != 1:
            raise UserError(f"model.template={self.template!r} needs {{label}} exactly once")

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of the model other than its folder."""
        return {**super().settings, "vocabulary": visual_words("objects", self.vocabulary)}

    def answering(self) -> dict[str, Any]:
        """Return the settings that change the model's answers, with the content of the file.

        The content of the shipped list is included, because a later release may change it.
        """
        return {**super().answering(), "vocabulary": visual_words("objects", self.vocabulary)}
