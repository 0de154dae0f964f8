"""What the parts promise each other. Every method takes and gives lists or batches, never one item.

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

    from cfaug.pixels import ImageTransform
    from cfaug.questions import Answered, Question
    from cfaug.types import (
        Edited,
        Evaluation,
        Example,
        ImageJob,
        Images,
        Proposal,
        Scores,
    )


class NoModel:
    """Stands where a model would: what a benchmark of texts alone is asked of."""


@runtime_checkable
class DualEncoder(Protocol):
    """A model with one tower for images and one for texts, as CLIP (Radford et al., 2021).

    Implementations are ``torch.nn.Module``s in float32; inputs may lie on any device. Embeddings
    are projected into the shared space and NOT normalised: loss and metrics normalise, once.
    """

    transform: ImageTransform

    def tokenize(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return int64 tensors (batch, length), padded and truncated as the model wants."""
        ...

    def encode_image(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (batch, 3, size, size), as ``transform`` gives them, to (batch, dim)."""
        ...

    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """Map float32 pixels, less ``transform.mean`` and over its ``std``, to (batch, dim).

        For images that were never uint8; they lie on the model's device.
        """
        ...

    def encode_text(self, tokens: dict[str, Tensor]) -> Tensor:
        """Map what ``tokenize`` gives to (batch, dim)."""
        ...

    def logit_scale(self) -> Tensor:
        """Return the factor on the cosine, ``exp`` of the learnt parameter: a scalar."""
        ...

    def clamp_logit_scale(self) -> None:
        """Bound the learnt parameter after a step, where the model's authors do."""
        ...

    def save(self, folder: Path) -> None:
        """Write weights, configuration and processor so that the home library loads the folder."""
        ...


@runtime_checkable
class Matcher(Protocol):
    """A model that says how well an image and a text belong together: the paper's score G.

    COCO-Counterfactuals, section 4.2.2. Higher is better; scores of two matchers do not compare.
    Implementations are ``torch.nn.Module``s.

    Attributes:
        transform: the model's image transform.
        kind: what a score is: ``cosine x scale``, ``probability`` or ``logit``.
    """

    transform: ImageTransform
    kind: str

    def tokenize(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return int64 tensors (batch, length): what the model reads of each text."""
        ...

    def match(self, pixels: Tensor, texts: Sequence[str]) -> Tensor:
        """Score image i with text i: float32 (n,).

        Args:
            pixels: uint8 (n, 3, size, size), as ``transform`` gives them.
            texts: n texts.
        """
        ...


@runtime_checkable
class Classifier(Protocol):
    """A model with classes of its own, such as ImageNet's 1,000.

    Implementations are ``torch.nn.Module``s.

    Attributes:
        transform: the model's image transform.
        classes: class names in the order of the logits.
    """

    transform: ImageTransform
    classes: tuple[str, ...]

    def classify(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (n, 3, size, size), as ``transform`` gives them, to logits.

        Returns:
            float32 (n, classes), before any softmax.
        """
        ...


@runtime_checkable
class FeatureExtractor(Protocol):
    """A model in whose features sets of images are compared, such as Inception's (FID).

    Implementations are ``torch.nn.Module``s.

    Attributes:
        transform: the model's image transform.
    """

    transform: ImageTransform

    def extract(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (n, 3, size, size), as ``transform`` gives them, to (n, dim)."""
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
            images: RGB, of any size; ``None`` asks without an image.
            questions: of each image, in any number: what they share is read once.

        Returns:
            Of each image, of each question, the scores of its options in order, or why it was left
            out.
        """
        ...


@runtime_checkable
class WritesAnswers(Answerer, Protocol):
    """An answerer that can also answer in its own words."""

    def write(
        self, images: Sequence[Image | None], questions: Sequence[Question], max_new_tokens: int
    ) -> list[Answered]:
        """Write an answer to each question; its options are not looked at.

        Args:
            images: RGB, one a question; ``None`` asks without an image.
            questions: with their demonstrations, and what the answer begins with.
            max_new_tokens: the most tokens of an answer.

        Returns:
            The answers' texts, or why a question was left out.
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
        """Return the probabilities of ``cfaug.types.ENTAILMENT``, in that order: float32 (n, 3).

        Args:
            premises: n texts; empty texts where the image is the premise.
            hypotheses: n texts.
            pixels: uint8 (n, 3, size, size), as ``transform`` gives them; ``None`` for a model that
                reads texts only.
        """
        ...


@runtime_checkable
class EncodesImages(Entailer, Protocol):
    """An entailer that looks at an image before it reads: several hypotheses share that work."""

    def encode_images(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (n, 3, size, size), as ``transform`` gives them, to (n, ...)."""
        ...

    def entail_encoded(self, images: Tensor, hypotheses: Sequence[str]) -> Tensor:
        """Return the probabilities of ``entail`` for n encoded images and n texts: (n, 3)."""
        ...


@runtime_checkable
class Captioner(Protocol):
    """A model that describes images. Implementations are ``torch.nn.Module``s.

    Attributes:
        transform: the model's image transform.
    """

    transform: ImageTransform

    def caption(self, pixels: Tensor) -> list[str]:
        """Return one text per image of uint8 (n, 3, size, size), as ``transform`` gives them."""
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
    """A detector that looks for what it is told by name; ``detect`` looks for its vocabulary."""

    def detect_named(
        self, images: Sequence[Image], names: Sequence[Sequence[str]]
    ) -> list[list[dict[str, Any]]]:
        """Return the objects of each image that have one of its names, as ``detect`` does.

        Args:
            images: RGB images of any size.
            names: of each image, what is looked for in it, such as ``dog``; it may be nothing.
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
            contexts: what stands before each text and is not scored; ``None`` is nothing.
        """
        ...

    def perplexity(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return exp of the mean negative log-likelihood per token: float64 (n,)."""
        ...

    def generate(self, prompts: Sequence[str], max_new_tokens: int) -> list[str]:
        """Continue each prompt, greedily; the prompt itself is not returned."""
        ...

    def describe(self) -> dict[str, str]:
        """Return names, revisions and hashes of the weights, for the card."""
        ...


@runtime_checkable
class Annotator(Protocol):
    """Adds to examples what a model finds in them: a caption, detections."""

    @property
    def name(self) -> str:
        """The name under which its results are kept in ``Example.extra``."""
        ...

    @property
    def reads(self) -> tuple[str, ...]:
        """The parts of an example on which its answer depends, such as ``image``.

        Results are kept under their hash; with no part, nothing is kept.
        """
        ...

    def identity(self) -> str:
        """Return a hash of the weights and of every setting that changes an answer."""
        ...

    def annotate(self, examples: Sequence[Example]) -> list[Mapping[str, Any]]:
        """Return for each example, in order, JSON that is merged into its ``extra``."""
        ...

    def describe(self) -> dict[str, str]:
        """Return names, revisions and hashes of the weights, for the card."""
        ...


@runtime_checkable
class Editor(Protocol):
    """Proposes edited texts for examples: candidates, filters, and a choice among the rest."""

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return what was made of each example, in order, independent of the rest of the batch."""
        ...

    def describe(self) -> dict[str, str]:
        """Return names, revisions and hashes of the weights, for the card."""
        ...


@runtime_checkable
class ChecksSource(Editor, Protocol):
    """An editor whose settings name something of the examples, such as their classes."""

    def check_source(self, examples: Sequence[Example]) -> None:
        """Refuse settings that name what no example has, before anything is edited.

        Args:
            examples: all of the source, whichever part or shard they lie in.

        Raises:
            UserError: naming the setting, and what there is.
        """
        ...


class Postprocess(Protocol):
    """Changes the chosen images of a candidate just before they are encoded."""

    def __call__(self, image: Image, job: ImageJob) -> Image:
        """Return an image as it is to be written; the same for the same image and job."""
        ...


@runtime_checkable
class ImageEditor(Protocol):
    """Makes the images of proposals: pixels or encoded files, whatever makes them."""

    def edit(self, jobs: Sequence[ImageJob]) -> list[Images]:
        """Return the images of each job, in order; each is what it would be alone."""
        ...

    def describe(self) -> dict[str, str]:
        """Return names, revisions and hashes of the weights, for the card."""
        ...


@runtime_checkable
class SharesExamples(ImageEditor, Protocol):
    """An image editor that does once for an example what its jobs have in common.

    All jobs of an example come in one call, so what is shared does not depend on batches: an editor
    need keep nothing between calls, and an interrupted run makes the same images.
    """

    @property
    def shares_examples(self) -> bool:
        """Return true; the protocol is recognised by the name."""
        ...


@runtime_checkable
class Progressive(ImageEditor, Protocol):
    """An image editor that draws step by step and decodes what is worth looking at.

    It makes one image for each text. The image of a job's first text, the base, depends on that
    text, the source image and the draw, but not on ``draw.p``: jobs that differ in no more have one
    base image between them.
    """

    def sample(self, jobs: Sequence[ImageJob]) -> list[Tensor]:
        """Return each job's final latents, float32 (texts, channels, height, width) on the device.

        The jobs of one call are denoised together; each is what it would be alone, up to rounding.
        """
        ...

    def sample_halving(
        self,
        jobs: Sequence[ImageJob],
        rounds: int,
        keep: Callable[[Sequence[int], list[Tensor]], Sequence[int]],
    ) -> dict[int, Tensor]:
        """Draw jobs of which ``keep`` gives some up, ``rounds`` times on the way: an approximation.

        ``keep`` maps the numbers of the jobs that are left, and guesses of their final latents, to
        the numbers of those to go on with. Returns the final latents of those, by number.
        """
        ...

    def decode(self, latents: Tensor) -> Tensor:
        """Map latents (n, channels, height, width) to images float32 (n, 3, H, W) in [0, 1]."""
        ...

    def same_text(self, texts: Sequence[str]) -> bool:
        """Say whether an edited text is the first text to the model, as when it was cut off."""
        ...

    def unsafe(self, images: Tensor) -> list[bool]:
        """Say which images (n, 3, H, W) a safety checker flags; none where there is no checker."""
        ...


@runtime_checkable
class Scorer(Protocol):
    """Gives each candidate scores that have names, from its texts, its images, or both.

    Attributes:
        names: of the scores, in the order in which they are logged; unique within a recipe.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the scores."""
        ...

    def score(self, proposals: Sequence[Proposal], images: Sequence[Images]) -> list[Scores]:
        """Return the scores of each candidate by name, finite.

        Args:
            proposals: of each candidate.
            images: made for it.
        """
        ...

    def describe(self) -> dict[str, str]:
        """Return names, revisions and hashes of the weights, for the card."""
        ...


@runtime_checkable
class EmbeddingScorer(Scorer, Protocol):
    """A scorer that compares embeddings, float32 and of unit length.

    Each text and image is embedded once, whatever it is compared with, and a candidate whose base
    image is too poor is rejected before its edited images are even decoded.
    """

    def texts(self, texts: Sequence[str]) -> Tensor:
        """Embed texts: (n, dim)."""
        ...

    def images(self, images: Tensor) -> Tensor:
        """Embed images float32 (n, 3, H, W) in [0, 1]: (n, dim)."""
        ...

    def compare(self, texts: Sequence[Tensor], images: Sequence[Tensor]) -> Scores:
        """Return the scores of one candidate, as far as its images are known.

        Args:
            texts: embeddings (dim,) of every text.
            images: embeddings (dim,) of the image of every text, or of the first one's only.
        """
        ...


@runtime_checkable
class Benchmark(Protocol):
    """A question asked of a model: it receives the model as an object and never asks its name.

    Attributes:
        name: what results and tables call it.
    """

    name: str

    @property
    def needs(self) -> type:
        """The protocol of the model that ``run`` takes, such as ``DualEncoder``."""
        ...

    @property
    def data_hash(self) -> str:
        """Return a hash of what is asked about: sources, rows, class names."""
        ...

    def run(self, model: Any) -> Evaluation:
        """Ask the model, and return the outcomes and what it answered to every test item."""
        ...
