"""The interfaces between parts. Every method takes and returns lists or batches, never one item.

No torch at import: tensors appear in annotations only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image
    from torch import Tensor

    from cfaug.core.answers import Answered, Question
    from cfaug.core.pixels import ImageTransform
    from cfaug.core.types import (
        Edited,
        Evaluation,
        Example,
        ImageJob,
        Images,
        Proposal,
        Scores,
    )


class NoModel:
    """A placeholder for a model, for benchmarks of texts alone."""


@runtime_checkable
class DualEncoder(Protocol):
    """A model with one tower for images and one for texts, as CLIP (Radford et al., 2021).

    Implementations are ``torch.nn.Module``s in float32; inputs may be on any device. Embeddings are
    projected into the shared space and NOT normalised: loss and metrics normalise them once.
    """

    transform: ImageTransform

    def tokenize(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return int64 tensors (batch, length), padded and truncated for the model."""
        ...

    def encode_image(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (batch, 3, size, size) from ``transform`` to features (batch, dim)."""
        ...

    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """Map float32 pixels, normalised by ``transform.mean`` and ``std``, to (batch, dim).

        This is for images that were never uint8; they are on the model's device.
        """
        ...

    def encode_text(self, tokens: dict[str, Tensor]) -> Tensor:
        """Map the result of ``tokenize`` to features (batch, dim)."""
        ...

    def logit_scale(self) -> Tensor:
        """Return the factor of the cosine, ``exp`` of the learnt parameter: a scalar."""
        ...

    def clamp_logit_scale(self) -> None:
        """Bound the learnt parameter after a step, if the model's authors do."""
        ...

    def save(self, folder: Path) -> None:
        """Write weights, configuration and processor in the format of the model's own library."""
        ...


@runtime_checkable
class Projects(DualEncoder, Protocol):
    """A dual encoder whose image features can also be taken before their projection."""

    def encode_unprojected(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels to what the image tower gives before the shared space, (batch, width).

        Raises:
            UserError: if the model has no projection of its own for images.
        """
        ...


@runtime_checkable
class Matcher(Protocol):
    """A model that scores how well an image and a text match.

    This is the score G of COCO-Counterfactuals (section 4.2.2); higher is better, and scores of
    different matchers are not comparable. Implementations are ``torch.nn.Module``s.

    Attributes:
        kind: the kind of score: ``cosine x scale``, ``probability`` or ``logit``.
    """

    transform: ImageTransform
    kind: str

    def tokenize(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return int64 tensors (batch, length): the tokens of each text that the model reads."""
        ...

    def match(self, pixels: Tensor, texts: Sequence[str]) -> Tensor:
        """Score image i with text i: float32 (n,).

        Args:
            pixels: images, uint8 (n, 3, size, size), from ``transform``.
            texts: n texts.
        """
        ...


@runtime_checkable
class Classifier(Protocol):
    """A model with classes of its own, such as ImageNet's 1,000.

    Implementations are ``torch.nn.Module``s.

    Attributes:
        classes: class names in the order of the logits.
    """

    transform: ImageTransform
    classes: tuple[str, ...]

    def classify(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (n, 3, size, size), from ``transform``, to logits.

        Returns:
            float32 (n, classes), before any softmax.
        """
        ...


@runtime_checkable
class FeatureExtractor(Protocol):
    """A model whose features compare sets of images, such as Inception's (FID).

    Implementations are ``torch.nn.Module``s.
    """

    transform: ImageTransform

    def extract(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (n, 3, size, size), from ``transform``, to features (n, dim)."""
        ...


@runtime_checkable
class Answerer(Protocol):
    """A model that answers questions about images by ranking options (CFMM, section 3.4).

    Implementations are ``torch.nn.Module``s with an image processor of their own.
    """

    def answer(
        self, images: Sequence[Image | None], questions: Sequence[Sequence[Question]]
    ) -> list[list[Answered]]:
        """Score every option of every question; the smallest NLL is the model's answer.

        Args:
            images: RGB images of any size; ``None`` asks without an image.
            questions: the questions about each image, any number; their common beginning is read
                once.

        Returns:
            For each image and each of its questions: the scores of its options in order, or the
            reason why it was left out.
        """
        ...


@runtime_checkable
class WritesAnswers(Answerer, Protocol):
    """An answerer that can also answer in its own words."""

    def write(
        self, images: Sequence[Image | None], questions: Sequence[Question], max_new_tokens: int
    ) -> list[Answered]:
        """Write an answer to each question; its options are ignored.

        Args:
            images: RGB images, one for each question; ``None`` asks without an image.
            questions: questions with their demonstrations and the beginning of the answer.
            max_new_tokens: the largest number of tokens of an answer.

        Returns:
            For each question, the answer's text or the reason why it was left out.
        """
        ...


@runtime_checkable
class Entailer(Protocol):
    """A model that says whether a hypothesis follows from a premise.

    Implementations are ``torch.nn.Module``s.

    Attributes:
        transform: the model's image transform; ``None`` for a model that reads texts only.
    """

    transform: ImageTransform | None

    def entail(
        self, premises: Sequence[str], hypotheses: Sequence[str], pixels: Tensor | None = None
    ) -> Tensor:
        """Return the probabilities of ``ENTAILMENT``, in that order: float32 (n, 3).

        Args:
            premises: n texts, which are empty where the image is the premise.
            hypotheses: n texts.
            pixels: images, uint8 (n, 3, size, size), from ``transform``; ``None`` for a model that
                reads texts only.
        """
        ...


@runtime_checkable
class EncodesImages(Entailer, Protocol):
    """An entailer that encodes an image by itself, so that several hypotheses share that work."""

    def encode_images(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (n, 3, size, size), from ``transform``, to encodings (n, ...)."""
        ...

    def entail_encoded(self, images: Tensor, hypotheses: Sequence[str]) -> Tensor:
        """Return the probabilities of ``entail`` for n encoded images and n texts: (n, 3)."""
        ...


@runtime_checkable
class Captioner(Protocol):
    """A model that describes images. Implementations are ``torch.nn.Module``s."""

    transform: ImageTransform

    def caption(self, pixels: Tensor) -> list[str]:
        """Return one text for each image of uint8 (n, 3, size, size), from ``transform``."""
        ...


@runtime_checkable
class Detector(Protocol):
    """A model that finds objects in images. Implementations are ``torch.nn.Module``s."""

    def detect(self, images: Sequence[Image]) -> list[list[dict[str, Any]]]:
        """Return the objects of each image, the most certain first.

        Args:
            images: RGB images of any size.

        Returns:
            For each object ``{"label": str, "score": float, "box": [left, top, right, bottom]}``,
            the box in pixels of the image as given.
        """
        ...


@runtime_checkable
class OpenVocabularyDetector(Detector, Protocol):
    """A detector that looks for given names; ``detect`` looks for its vocabulary."""

    def detect_named(
        self, images: Sequence[Image], names: Sequence[Sequence[str]]
    ) -> list[list[dict[str, Any]]]:
        """Return the objects of each image that have one of its names, as ``detect`` does.

        Args:
            images: RGB images of any size.
            names: the names to look for in each image, such as ``dog``; may be empty.
        """
        ...


@runtime_checkable
class LanguageModel(Protocol):
    """A causal language model."""

    def log_likelihood(
        self, texts: Sequence[str], contexts: Sequence[str] | None = None
    ) -> NDArray[np.float64]:
        """Return the natural log of the probability of each text: float64 (n,).

        Args:
            texts: n texts.
            contexts: the text before each text, which is not scored; ``None`` for no context.
        """
        ...

    def perplexity(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return exp of the mean negative log-likelihood per token: float64 (n,)."""
        ...

    def generate(self, prompts: Sequence[str], max_new_tokens: int) -> list[str]:
        """Continue each prompt greedily; the prompt itself is not returned."""
        ...

    def describe(self) -> dict[str, str]:
        """Return the names, revisions and hashes of the weights, for the card."""
        ...


@runtime_checkable
class Annotator(Protocol):
    """A part that adds a model's findings, such as a caption or detections, to examples."""

    @property
    def name(self) -> str:
        """The name of its results in ``Example.extra``."""
        ...

    @property
    def reads(self) -> tuple[str, ...]:
        """The parts of an example on which its answer depends, such as ``image``.

        Results are cached under the hash of these parts; without any, nothing is cached.
        """
        ...

    def identity(self) -> str:
        """Return a hash of the weights and all settings that change an answer."""
        ...

    def annotate(self, examples: Sequence[Example]) -> list[Mapping[str, Any]]:
        """Return JSON for each example, in order, which is merged into its ``extra``."""
        ...

    def describe(self) -> dict[str, str]:
        """Return the names, revisions and hashes of the weights, for the card."""
        ...


@runtime_checkable
class Editor(Protocol):
    """A part that proposes edited texts: candidates, filters, and a choice among the rest."""

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return each example's result, in order, independently of the rest of the batch."""
        ...

    def describe(self) -> dict[str, str]:
        """Return the names, revisions and hashes of the weights, for the card."""
        ...


@runtime_checkable
class ChecksSource(Protocol):
    """An editor or annotator whose settings name files, or properties of the examples."""

    def check_source(self, examples: Sequence[Example]) -> None:
        """Refuse what is missing, or fits no example, before anything is edited.

        Args:
            examples: all examples of the source, whichever shard or part of the run they belong to.

        Raises:
            UserError: naming the setting and the choices.
        """
        ...


class Postprocess(Protocol):
    """A change of the chosen images of a candidate just before they are encoded."""

    def __call__(self, image: Image, job: ImageJob) -> Image:
        """Return the image to be written; the same for the same image and job."""
        ...


@runtime_checkable
class ImageEditor(Protocol):
    """A part that makes the images of proposals, as pixels or encoded files."""

    def edit(self, jobs: Sequence[ImageJob]) -> list[Images]:
        """Return the images of each job, in order, independently of the other jobs."""
        ...

    def describe(self) -> dict[str, str]:
        """Return the names, revisions and hashes of the weights, for the card."""
        ...


@runtime_checkable
class SharesExamples(ImageEditor, Protocol):
    """An image editor that shares work among the jobs of an example.

    All jobs of an example are passed in one call, so sharing does not depend on batches: an editor
    needs no state between calls, and an interrupted run makes the same images.
    """

    @property
    def shares_examples(self) -> bool:
        """Return true; the protocol is recognised by the name."""
        ...


@runtime_checkable
class Progressive(ImageEditor, Protocol):
    """An image editor that denoises step by step and decodes only promising candidates.

    It makes one image for each text. The image of a job's first text, the base, depends on that
    text, the source image and the draw, but not on ``draw.p``: jobs that differ only in it share
    their base image.
    """

    def sample(self, jobs: Sequence[ImageJob]) -> list[Tensor]:
        """Return each job's final latents, float32 (texts, channels, height, width) on the device.

        The jobs of one call are denoised together, independently of each other up to rounding.
        """
        ...

    def sample_halving(
        self,
        jobs: Sequence[ImageJob],
        rounds: int,
        keep: Callable[[Sequence[int], list[Tensor]], Sequence[int]],
    ) -> dict[int, Tensor]:
        """Sample jobs, dropping some after each of ``rounds`` parts: an approximation.

        ``keep`` maps the numbers of the remaining jobs, and estimates of their final latents, to
        the numbers of the jobs to continue. Returns the final latents of the last ones, by number.
        """
        ...

    def decode(self, latents: Tensor) -> Tensor:
        """Map latents (n, channels, height, width) to images float32 (n, 3, H, W) in [0, 1]."""
        ...

    def same_text(self, texts: Sequence[str]) -> bool:
        """Say whether the model reads all texts alike, as when the edited end is truncated."""
        ...

    def unsafe(self, images: Tensor) -> list[bool]:
        """Say of each image (n, 3, H, W) whether a safety checker flags it; false without one."""
        ...


@runtime_checkable
class Scorer(Protocol):
    """A part that gives each candidate named scores from its texts, its images, or both.

    Attributes:
        names: the names of the scores, in the order of the log; unique within a recipe.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the scores."""
        ...

    def score(self, proposals: Sequence[Proposal], images: Sequence[Images]) -> list[Scores]:
        """Return the scores of each candidate by name, finite."""
        ...

    def describe(self) -> dict[str, str]:
        """Return the names, revisions and hashes of the weights, for the card."""
        ...


@runtime_checkable
class EmbeddingScorer(Scorer, Protocol):
    """A scorer that compares embeddings, float32 and of unit length.

    Each text and image is embedded only once, and a candidate with a poor base image is rejected
    before its edited images are decoded.
    """

    def texts(self, texts: Sequence[str]) -> Tensor:
        """Embed texts: (n, dim)."""
        ...

    def images(self, images: Tensor) -> Tensor:
        """Embed images float32 (n, 3, H, W) in [0, 1]: (n, dim)."""
        ...

    def compare(self, texts: Sequence[Tensor], images: Sequence[Tensor]) -> Scores:
        """Return the scores of one candidate that can be computed from its known images.

        Args:
            texts: the embedding (dim,) of each text.
            images: the embedding (dim,) of each text's image, or only of the first text's image.
        """
        ...


@runtime_checkable
class Benchmark(Protocol):
    """A test of a model, which receives the model as an object and never depends on its name.

    A class should declare the columns of its items, ``item_schema: ClassVar[ItemSchema]``, and of
    its rankings, if it has any, ``ranking_schema``; other columns are then refused.
    """

    name: str

    @property
    def needs(self) -> type:
        """The protocol of the model that ``run`` takes, such as ``DualEncoder``."""
        ...

    @property
    def data_hash(self) -> str:
        """Return a hash of the test's data: sources, rows, class names."""
        ...

    def run(self, model: Any) -> Evaluation:
        """Test the model; return the outcomes and its answer to every test item."""
        ...
