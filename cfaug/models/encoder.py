"""Loading of pretrained folders, and what all dual encoders share."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from cfaug.core.devices import send
from cfaug.core.errors import UserError, say_once
from cfaug.core.pixels import Geometry, ImageTransform
from cfaug.core.safety.safe_loading import check_finite, from_folder
from cfaug.models.checkpoints import load_model, longest_text, quiet, replace_checkpoint
from cfaug.models.image_processors import check_size, equal_transform, say_other_size
from cfaug.models.indistinct import check_end_of_text
from cfaug.models.losses import Negatives, sigmoid_loss, symmetric_loss

Bounds = tuple[float | None, float | None]


class Tunable(nn.Module):
    """A trainable module around a library's ``model``: see ``cfaug.train.task``."""

    model: Any  # any methods of its library
    held_in_evaluation: tuple[nn.Module, ...] = ()
    never_trained: frozenset[str] = frozenset()
    """Names of the model's parameters that its own settings keep, whatever is tuned."""

    def train(self, mode: bool = True) -> Self:
        """Set the mode of every module except those fixed in evaluation (frozen statistics)."""
        super().train(mode)
        for module in self.held_in_evaluation:
            module.eval()
        return self


class Encoder(Tunable, ABC):
    """A library's ``model`` as a :class:`cfaug.core.protocols.DualEncoder`.

    Args:
        model: a model with a parameter ``logit_scale``, the log of the factor on the cosine.
        log_scale_bounds: lower and upper bound of that parameter for ``clamp_logit_scale``;
            ``None`` for no bound.
    """

    def __init__(
        self, model: nn.Module, transform: ImageTransform, log_scale_bounds: Bounds
    ) -> None:
        super().__init__()
        self.model = model
        self.transform = transform
        self.log_scale_bounds = log_scale_bounds

    @property
    def log_scale(self) -> nn.Parameter:
        """The learnt log scale."""
        parameter = self.model.logit_scale
        assert isinstance(parameter, nn.Parameter)
        return parameter

    def normalize(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels on any device to normalised float32 on the model's device."""
        return self.transform.normalize(send(pixels, self.log_scale.device))

    def logit_scale(self) -> Tensor:
        return self.log_scale.exp().squeeze()

    def clamp_logit_scale(self) -> None:
        """Clamp the learnt log scale to its configured bounds."""
        lower, upper = self.log_scale_bounds
        if lower is not None or upper is not None:
            with torch.no_grad():
                self.log_scale.clamp_(lower, upper)

    def fix_logit_scale(self) -> None:
        """Keep the learnt scale, and SigLIP's bias, at their values in training."""
        logits = (self.log_scale, getattr(self.model, "logit_bias", None))
        known = {id(parameter) for parameter in logits}
        self.never_trained = frozenset(
            n for n, p in self.model.named_parameters() if id(p) in known
        )
        for name in self.never_trained:
            self.model.get_parameter(name).requires_grad_(False)

    @abstractmethod
    def tokenize(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return the tokens of texts as int64 tensors of shape (batch, length), by name."""

    def encode_image(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (batch, 3, size, size) to projected, unnormalised (batch, dim)."""
        return self.encode_pixels(self.normalize(pixels))

    @abstractmethod
    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """Map normalised float32 pixels to (batch, dim): the second part of ``encode_image``."""

    def image_projection(self) -> nn.Module | None:
        """Return the layer that projects image features; ``None`` if there is no such layer."""
        return None

    def encode_unprojected(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels to what the image tower gives before its projection, (batch, width).

        Raises:
            UserError: if the model has no projection of its own for images.
        """
        projection = self.image_projection()
        if projection is None:
            raise UserError(
                f"features before the projection: {type(self.model).__name__} has no layer that "
                "projects images into the shared space, as SigLIP and CLIP's ResNets, whose "
                "pooling gives the embedding itself: take what encode_image returns "
                "(benchmark.features=encode_image)"
            )
        given: list[Tensor] = []
        with projection.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0])):
            self.encode_image(pixels)
        return _pool(given[0])

    @abstractmethod
    def encode_text(self, tokens: dict[str, Tensor]) -> Tensor:
        """Map the output of ``tokenize`` to (batch, dim)."""

    def features(self, pixels: Tensor, texts: Sequence[str]) -> tuple[Tensor, ...]:
        """Return the features for ``contrastive``: those of images and of texts, each (n, dim)."""
        tokens = self.tokenize(texts)
        return self.encode_image(pixels), self.encode_text(tokens)

    takes_negatives = True
    """Whether ``contrastive`` accepts texts and images that are only wrong answers."""

    def contrastive(
        self,
        features: Sequence[Tensor],
        log_weights: Tensor | None = None,
        negatives: Negatives | None = None,
    ) -> Tensor:
        """Return the authors' loss of a whole batch, a scalar.

        CLIP's, or SigLIP's if the model has a learnt bias on its logits.

        Args:
            features: outputs of ``features`` from every process, with rows in the same order.
            log_weights: log weights of pairs, (n, n), see ``cfaug.models.losses``; ``None`` for 0.
        """
        images, texts = features
        bias = getattr(self.model, "logit_bias", None)
        scale = self.logit_scale()
        if bias is None:
            return symmetric_loss(images, texts, scale, log_weights, negatives)
        return sigmoid_loss(images, texts, scale, bias.squeeze(), log_weights, negatives)

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write a folder that the model's library can load, atomically."""


KEEP_CAPTIONS = 200_000
"""The largest number of cached captions of one tokenizer in a process, about 100 MB."""
Row = dict[str, list[int]]
PROBE = " ".join(["a photo of two zebras, 3 cafés & one Übung; don't!"] * 40)
"""A text, not a caption, that distinguishes tokenizers: it is longer than any model reads, with
characters that tokenizers treat differently."""
_KEPT: dict[str, dict[str, Row]] = {}
"""Tokenised captions by tokenizer, shared by the epochs of a run and all runs of a process."""


class Tokenizer:
    """A tokenizer with the padding that its model was trained with.

    A caption is tokenised once in a process; batches are padded from the cache.

    Args:
        embeddings: the number of tokens that the model has an embedding for; ``None`` if unknown.
    """

    def __init__(
        self,
        tokenizer: Any,
        max_length: int,
        embeddings: int | None = None,
        *,
        padded: bool = False,
    ) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.embeddings = embeddings
        self._checked = False
        # If a tokenizer has no attention mask, its model was trained on texts of full length, as
        # SigLIP was, for which transformers' Siglip2Tokenizer makes one all the same.
        self.padded = padded
        if padded:
            self.tokenizer.model_input_names = ["input_ids"]
        masked = "attention_mask" in self.tokenizer.model_input_names
        self.padding: dict[str, Any] = (
            {"padding": "longest"}
            if masked
            else {"padding": "max_length", "max_length": max_length}
        )
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._kept: dict[str, Row] = {}
        if backend is not None:  # its state determines its output
            settings = f"{tokenizer.model_input_names} {max_length} {backend.to_str()}"
            self._kept = _KEPT.setdefault(hashlib.sha256(settings.encode()).hexdigest(), {})
            # A tokenizer saves the settings of its last call, which have to be these even if all
            # captions are cached.
            self.tokenizer(["a"], truncation=True, max_length=max_length)

    def _check_case(self, texts: Sequence[str]) -> None:
        """Warn of capitals that a SigLIP has hardly seen: its authors trained on lower case.

        transformers' SigLIP tokenizers write captions in lower case themselves; Gemma's, which the
        files of SigLIP 2 name, does not.
        """
        cased = next((text for text in texts if text != text.lower()), None)
        if not self.padded or cased is None:
            return
        written, lower = self.tokenizer([cased, cased.lower()])["input_ids"]
        if written != lower:
            say_once(
                f"warning: to this model's tokenizer {cased!r} and {cased.lower()!r} are different "
                "captions, and SigLIP was trained on lower case: write captions in lower case, or "
                'name "tokenizer_class": "Siglip2Tokenizer" in its tokenizer_config.json'
            )

    def __call__(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return int64 tensors of shape (texts, length).

        If most words of the first captions are unknown, and thus alike to the model, warn.
        """
        absent = [text for text in dict.fromkeys(texts) if text not in self._kept]
        fresh: dict[str, Row] = {}
        if absent:
            encoded = self.tokenizer(absent, truncation=True, max_length=self.max_length)
            each = ({name: encoded[name][n] for name in encoded} for n in range(len(absent)))
            fresh = dict(zip(absent, each, strict=True))
        if len(self._kept) + len(fresh) <= KEEP_CAPTIONS:
            self._kept.update(fresh)
        rows = [fresh[text] if text in fresh else self._kept[text] for text in texts]
        if not self._checked and PROBE not in texts:
            self._checked = True
            self._check_case(texts)
            unknown = self.tokenizer.unk_token_id
            named = ("bos_token_id", "eos_token_id", "pad_token_id", "cls_token_id", "sep_token_id")
            special = {getattr(self.tokenizer, name, None) for name in named}
            words = [token for row in rows for token in row["input_ids"] if token not in special]
            # CLIP's own pieces spell any word.
            spells = unknown is None or unknown in special
            if words and not spells and words.count(unknown) > len(words) / 2:
                say_once(
                    f"warning: the model does not know {words.count(unknown) / len(words):.0%} of "
                    f"the words of the first captions, such as {texts[0]!r}, and cannot tell "
                    "captions apart by them: choose a model that was trained on such text, as "
                    "model=clip_vit_b32"
                )
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        # transformers warns that calling a fast tokenizer again is faster than padding; here it is
        # slower.
        self.tokenizer.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = True
        batch = dict(self.tokenizer.pad(columns, return_tensors="pt", **self.padding))
        last = int(batch["input_ids"].max())
        if self.embeddings is not None and last >= self.embeddings:
            raise UserError(
                f"{self.tokenizer.name_or_path}: the token "
                f"{self.tokenizer.convert_ids_to_tokens(last)!r} has the number {last}, and the "
                f"model has embeddings for {self.embeddings} tokens: give it more "
                "(model.resize_token_embeddings) and save it, or leave out the added tokens"
            )
        return batch


def on_device(tokens: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Move a tokenizer's output to a model's device."""
    return {name: send(ids, device) for name, ids in tokens.items()}


class FromFolder:
    """A wrapper of a transformers model that is loaded from a ``save_pretrained`` folder.

    Attributes:
        required: the attributes that a model has to have, such as those of a dual encoder.
    """

    model: Any
    transformers_class: ClassVar[str]
    processor_class: ClassVar[str] = "AutoProcessor"
    required: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def load(cls, folder: Path, **settings: Any) -> Self:
        """Load a folder with weights and processor, in float32 and evaluation mode."""
        processor = load_processor(folder, cls.processor_class)
        model = load_model(cls.transformers_class, folder, required=cls.required)
        cls.check_model(model, folder)
        made: Any = cls
        wrapped: Self = made(model, processor, folder, **settings).eval()
        return wrapped

    @classmethod
    def check_model(cls, model: Any, folder: Path) -> None:
        """Accept every model with the required attributes."""

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.model.parameters()).device


class Wrapped(FromFolder, nn.Module):
    """A transformers model for one task that uses all its weights."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model: Any = model

    @classmethod
    def check_model(cls, model: Any, folder: Path) -> None:
        check_finite(model, folder)


def label_names(model: Any, owner: object) -> list[str]:
    """Return the names of a model's classes in ``config.json``, in the order of its logits."""
    names = model.config.id2label
    for number in range(len(names)):
        if number not in names:
            raise UserError(
                f"{owner}: id2label in config.json names {len(names)} classes, and the number "
                f"{number} is missing: they should be numbered from 0, like the logits"
            )
    return [str(names[number]) for number in range(len(names))]


def load_processor(folder: Path, kind: str = "AutoProcessor") -> Any:
    """Load the processor in a folder.

    Args:
        kind: the class: ``AutoProcessor``, which has to have a ``tokenizer`` and an
            ``image_processor``, ``AutoImageProcessor`` or ``AutoTokenizer``.
    """
    import transformers

    try:
        processor = from_folder(getattr(transformers, kind), folder)
    except UserError:
        raise
    except Exception as error:
        names = {"AutoProcessor": "processor", "AutoTokenizer": "tokenizer"}
        raise UserError(
            f"{folder} has no {names.get(kind, 'image processor')} that transformers can load "
            f"({error}): save the model's tokenizer and image processor there "
            "(processor.save_pretrained)"
        ) from error
    for part in ("tokenizer", "image_processor") if kind == "AutoProcessor" else ():
        if getattr(processor, part, None) is None:
            raise UserError(f"{folder} has no {part}: save the model's whole processor there")
    tokenizer = processor if kind == "AutoTokenizer" else getattr(processor, "tokenizer", None)
    # Without a file of words transformers makes a tokenizer of special tokens alone.
    if tokenizer is not None and len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise UserError(
            f"{folder} has no words for its tokenizer, such as tokenizer.json: save the whole "
            "tokenizer there (tokenizer.save_pretrained)"
        )
    return processor


FIRST_POSITIONS = 20
"""Number of position embeddings that stretching keeps, as few captions were longer in training."""


def stretch_positions(positions: Tensor, count: int, owner: object) -> Tensor:
    """Return ``count`` position embeddings for captions beyond a model's longest.

    The first 20 stay. The others are spread evenly over the rest and interpolated linearly; those
    after the last are extrapolated from the last two. With 77 and 248 these are the embeddings from
    which Long-CLIP trains (Zhang et al., 2024; ``load_from_clip`` in its authors' code).

    Args:
        positions: the embeddings (length, dim) of a tower that reads from left to right.
        count: the number of positions, at least ``length``.
    """
    length = len(positions)
    if count < length or length < FIRST_POSITIONS + 2:
        raise UserError(
            f"model.max_tokens={count}: {owner} has {length} positions, which can only be "
            f"stretched to more, and from {FIRST_POSITIONS + 2} on"
        )
    more = torch.arange(count - FIRST_POSITIONS, dtype=torch.float64)
    at = FIRST_POSITIONS + more * (length - FIRST_POSITIONS) / len(more)
    before = at.floor().long().clamp(max=length - 2)
    share = (at - before)[:, None].to(positions)
    between = positions[before] * (1 - share) + positions[before + 1] * share
    return torch.cat([positions[:FIRST_POSITIONS], between])


def _lengthen(model: Any, tokenizer: Any, count: int, owner: object) -> None:
    """Let a CLIP of transformers read captions of ``count`` tokens, also after it is saved."""
    kind = model.config.model_type
    if kind not in LENGTHENED:
        raise UserError(
            f"model.max_tokens={count}: {owner} is a model of the type {kind!r}; only positions of "
            f"{' and '.join(LENGTHENED)} are stretched, which read a text at its end"
        )
    embeddings = model.text_model.embeddings
    known = embeddings.position_embedding.weight
    if count != len(known):
        longer = stretch_positions(known.detach(), count, owner)
        embeddings.position_embedding.weight = nn.Parameter(longer)
        embeddings.position_embedding.num_embeddings = count
        embeddings.position_ids = torch.arange(count)[None]
        model.config.text_config.max_position_embeddings = count
    tokenizer.model_max_length = count


LENGTHENED = ("clip", "metaclip_2")
"""Types of transformers' models whose text tower reads from left to right."""


def inputs(
    model: nn.Module,
    processor: Any,
    folder: Path,
    max_length: int | None,
    geometry: Geometry | None,
) -> tuple[ImageTransform, Tokenizer]:
    """Return the image transform and the tokenizer of a model that reads images and texts."""
    kind = getattr(model.config, "model_type", "")
    if kind == "siglip2":
        raise UserError(
            f"{folder} is a SigLIP 2 for images of any shape (NaFlex), which is not supported: "
            "choose one of a fixed size, such as google/siglip2-base-patch16-224, or model=siglip2"
        )
    transform = equal_transform(processor.image_processor, folder, geometry)
    length = text_length(model, processor.tokenizer, max_length, folder)
    known = getattr(getattr(model.config, "text_config", model.config), "vocab_size", None)
    return transform, Tokenizer(processor.tokenizer, length, known, padded=kind == "siglip")


def text_length(model: nn.Module, tokenizer: Any, requested: int | None, owner: object) -> int:
    """Return the number of tokens, special ones included, to which captions are truncated."""
    longest = longest_text(model, tokenizer)
    if longest < 1:
        raise UserError(
            f"{owner}: a caption could have {longest} tokens: model_max_length in "
            "tokenizer_config.json, or the number of the model's positions, is invalid"
        )
    if requested is not None and requested > longest:
        raise UserError(
            f"model.max_length={requested}: {owner} takes at most {longest} tokens, which null "
            "chooses"
        )
    return requested or longest


MOST_LOG_SCALE = 10.0
"""The largest log of a scale that is likely: CLIP's are at most log 100, 4.6."""


IMAGE_PROJECTIONS = ("visual_projection", "image_projection")
"""Names of the layer that projects image features, in CLIP's relatives and in FLAVA."""


class HFEncoder(FromFolder, Encoder):
    """A dual encoder of transformers with its processor."""

    transformers_class = "AutoModel"
    required: ClassVar[tuple[str, ...]] = ("get_image_features", "get_text_features", "logit_scale")

    def __init__(
        self,
        model: nn.Module,
        processor: Any,
        folder: Path,
        *,
        max_length: int | None,
        log_scale_bounds: Bounds,
        geometry: Geometry | None = None,
        max_tokens: int | None = None,
    ) -> None:
        if max_tokens is not None:
            _lengthen(model, processor.tokenizer, max_tokens, folder)
        transform, tokenizer = inputs(model, processor, folder, max_length, geometry)
        super().__init__(model, transform, log_scale_bounds)
        self.processor = processor
        self.tokenizer = tokenizer
        check_end_of_text(model, tokenizer.tokenizer, tokenizer.max_length, folder)
        check_size(self.encode_image, transform, folder)
        say_other_size(model.config, transform, folder)
        log_scale = float(self.log_scale.detach().max())
        if log_scale > MOST_LOG_SCALE:
            say_once(
                f"warning: {folder}: logit_scale is {log_scale:.4g}, and it is the logarithm of "
                "the factor on the cosine: was the factor itself saved? Rankings stay as they "
                "are; probabilities and losses do not"
            )

    def image_projection(self) -> nn.Module | None:
        layers = (getattr(self.model, name, None) for name in IMAGE_PROJECTIONS)
        return next((layer for layer in layers if isinstance(layer, nn.Module)), None)

    def tokenize(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return the tokenizer's int64 tensors (batch, length), padded to the longest caption."""
        return self.tokenizer(texts)

    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """Map normalised float32 (batch, 3, size, size) to projected, unnormalised (batch, dim)."""
        return _pool(self.model.get_image_features(pixel_values=pixels))

    def encode_text(self, tokens: dict[str, Tensor]) -> Tensor:
        there = on_device(tokens, self.log_scale.device)
        return _pool(self.model.get_text_features(**there))

    def save(self, folder: Path) -> None:
        with replace_checkpoint(folder) as fresh, quiet():
            self.model.save_pretrained(fresh)
            self.processor.save_pretrained(fresh)


def _pool(features: Any) -> Tensor:
    """Return one projected vector for each example, (batch, dim).

    Transformers 5 returns an output object, 4 and remote classes the tensor itself. FLAVA projects
    the whole sequence; its contrastive head takes the first token, the CLS.
    """
    output = features if isinstance(features, Tensor) else features.pooler_output
    return output[:, 0] if output.ndim == 3 else output
