"""Fusion encoders: BridgeTower, FLAVA and ViLT, and entailers made of them.

A checkpoint is an ordinary ``save_pretrained`` folder: the encoder's weights under transformers'
names, the head's as ``classifier.*``, and a ``config.json`` that names the encoder's class and the
three labels. transformers itself can load the encoder of such a folder, and
``ViltForQuestionAnswering`` loads a ViLT with its head.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cfaug.core.devices import send
from cfaug.core.errors import UserError
from cfaug.core.pixels import Geometry
from cfaug.core.rng import derive
from cfaug.core.safety.safe_loading import check_finite, read_json
from cfaug.core.types import ENTAILMENT
from cfaug.core.weights import find_weights
from cfaug.models.checkpoints import quiet, read_state, replace_checkpoint
from cfaug.models.encoder import FromFolder, HFEncoder, Tunable, inputs, label_names, on_device
from cfaug.models.image_text import PairMatcher, check_images, label_columns
from cfaug.models.losses import Negatives, three_way_loss

HEAD = "classifier"


class FusionEntailer(FromFolder, Tunable, ABC):
    """A :class:`cfaug.core.protocols.Entailer` whose premise is an image.

    The head is the one of METER for SNLI-VE (Dou et al., 2022; ``snli_classifier`` of its code):
    linear, layer norm, GELU, linear, on the encoder's pooled features.

    Args:
        labels: the label of each logit, in order; ``None`` takes them from ``config.json``.
        head_seed: the seed of a random head for a folder without one; ``None`` refuses the folder.
    """

    def __init__(
        self,
        model: nn.Module,
        processor: Any,
        folder: Path,
        *,
        max_length: int | None = None,
        geometry: Geometry | None = None,
        labels: Sequence[str] | None = None,
        head_seed: int | None = None,
    ) -> None:
        super().__init__()
        self.transform, self.tokenizer = inputs(model, processor, folder, max_length, geometry)
        self.processor = processor
        width = self.pooled_width(model)
        stored = _read_head(folder)
        last = stored.get("3.weight")
        names: Sequence[str]
        if last is not None and last.ndim == 2 and len(last) == len(ENTAILMENT):
            head = _head(width, len(last[0]))
            wanted = {name: tuple(tensor.shape) for name, tensor in head.state_dict().items()}
            there = {name: tuple(tensor.shape) for name, tensor in stored.items()}
            if wanted != there:
                raise UserError(
                    f"{folder}: the head ({HEAD}.*) does not fit the encoder: its weights are "
                    f"{there}, and {wanted} are needed"
                )
            head.load_state_dict(stored)
            names = label_names(model, folder) if labels is None else labels
        elif head_seed is not None:
            head, names = _head(width, 2 * self.hidden_size(model)), ENTAILMENT
            chance = torch.Generator().manual_seed(derive(head_seed, "entailment_head") % 2**63)
            with torch.no_grad():
                for layer in head:
                    if isinstance(layer, nn.Linear):
                        # 0.02 as in METER's ``init_weights``.
                        layer.weight.normal_(0.0, 0.02, generator=chance)
                        layer.bias.zero_()
        else:
            bias = stored.get("3.bias")
            text = "no head" if bias is None else f"a head of {bias.numel()} logits"
            raise UserError(
                f"{folder} has {text}, and three logits are needed: fine-tune it first with "
                "`python train.py task=entailment weights=FOLDER data.real=SNLI_VE`, "
                "and name the checkpoint of that run"
            )
        self.columns = label_columns(names, len(ENTAILMENT), folder)
        self.model = _Assembled(model, head)
        check_finite(self.model, folder)

    @classmethod
    def load(cls, folder: Path, **settings: Any) -> Self:
        import transformers

        wanted = getattr(transformers, cls.transformers_class).config_class.model_type
        config = read_json(folder / "config.json") if (folder / "config.json").is_file() else None
        there = config.get("model_type") if isinstance(config, dict) else None
        if there not in (None, wanted):
            raise UserError(
                f"{folder} holds a model of the type {there!r}, and this entailer is a {wanted!r}: "
                "choose the model=... of that type"
            )
        return super().load(folder, **settings)

    @staticmethod
    def hidden_size(model: Any) -> int:
        """Return the width of the encoder's layers."""
        return int(model.config.hidden_size)

    @classmethod
    def pooled_width(cls, model: Any) -> int:
        """Return the width of the head's input."""
        return cls.hidden_size(model)

    @property
    def encoder(self) -> Any:
        """The transformers encoder."""
        return self.model.encoder

    def entail(
        self, premises: Sequence[str], hypotheses: Sequence[str], pixels: Tensor | None = None
    ) -> Tensor:
        return F.softmax(self.logits(check_images(premises, pixels), hypotheses), dim=-1)

    def logits(self, pixels: Tensor, hypotheses: Sequence[str]) -> Tensor:
        """Map uint8 pixels (n, 3, size, size) and n texts to float32 (n, 3), before any softmax."""
        return self._answer(self.pool(self._normalize(pixels), self._tokens(hypotheses)))

    def _normalize(self, pixels: Tensor) -> Tensor:
        return self.transform.normalize(send(pixels, self.device))

    def _tokens(self, hypotheses: Sequence[str]) -> dict[str, Tensor]:
        return on_device(self.tokenizer(hypotheses), self.device)

    def _answer(self, pooled: Tensor) -> Tensor:
        logits: Tensor = self.model.classifier(pooled)
        return logits.float()[:, send(torch.tensor(self.columns), logits.device)]

    @abstractmethod
    def pool(self, pixels: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        """Map normalised float32 (n, 3, size, size) and n tokenised texts to (n, width)."""

    def save(self, folder: Path) -> None:
        """Write a ``save_pretrained`` folder with head and processor, atomically."""
        from safetensors.torch import save_file

        encoder = self.encoder
        config = copy.deepcopy(encoder.config)
        config.architectures = [type(encoder).__name__]
        names = sorted(zip(self.columns, ENTAILMENT, strict=True))
        config.id2label = dict(names)
        config.label2id = {name: number for number, name in names}
        state = {name: tensor.contiguous() for name, tensor in self.model.state_dict().items()}
        with replace_checkpoint(folder) as fresh, quiet():
            config.save_pretrained(fresh)
            save_file(state, fresh / "model.safetensors", metadata={"format": "pt"})
            self.processor.save_pretrained(fresh)


class TowerEntailer(FusionEntailer):
    """A fusion encoder with a separate image tower, whose output several hypotheses share."""

    @abstractmethod
    def image_states(self, pixels: Tensor) -> Tensor:
        """Map normalised float32 (n, 3, size, size) to the image input of ``fuse``, (n, ...)."""

    @abstractmethod
    def fuse(self, states: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        """Map states of images and n tokenised texts to the head's input, (n, width)."""

    def pool(self, pixels: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        """Map images and texts to the head's input, (n, width)."""
        return self.fuse(self.image_states(pixels), tokens)

    def encode_images(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (n, 3, size, size) to the input of ``entail_encoded``, (n, ...)."""
        return self.image_states(self._normalize(pixels))

    def entail_encoded(self, images: Tensor, hypotheses: Sequence[str]) -> Tensor:
        return F.softmax(self._answer(self.fuse(images, self._tokens(hypotheses))), dim=-1)


class _Assembled(nn.Module):
    """An encoder and its head, under their names in a transformers checkpoint."""

    def __init__(self, encoder: Any, head: nn.Sequential) -> None:
        super().__init__()
        self._prefix = str(encoder.base_model_prefix)
        self.add_module(self._prefix, encoder)
        self.add_module(HEAD, head)

    @property
    def encoder(self) -> Any:
        """The transformers encoder."""
        return getattr(self, self._prefix)


def _head(width: int, inner: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(width, inner), nn.LayerNorm(inner), nn.GELU(), nn.Linear(inner, len(ENTAILMENT))
    )


def _read_head(folder: Path) -> dict[str, Tensor]:
    """Return the weights of a folder's head by their names in it; empty if it has none."""
    tensors: dict[str, Tensor] = {}
    for file in find_weights(folder):
        if file.suffix == ".safetensors":
            from safetensors import safe_open

            with safe_open(file, "pt") as handle:
                names = [name for name in handle.keys() if name.startswith(f"{HEAD}.")]  # noqa: SIM118
                tensors |= {name: handle.get_tensor(name) for name in names}
        else:
            tensors |= {k: v for k, v in read_state(file).items() if k.startswith(f"{HEAD}.")}
    return {name.removeprefix(f"{HEAD}."): tensor.float() for name, tensor in tensors.items()}


TEXT_TYPE, IMAGE_TYPE = 0, 1
"""Rows of the token type embeddings that mark a text's and an image's tokens."""


class BridgeTowerEncoder(HFEncoder):
    """``BridgeTowerForContrastiveLearning`` as a dual encoder that can also train.

    Embeddings of images and texts equal those of the whole model, but need no cross encoder.
    """

    transformers_class = "BridgeTowerForContrastiveLearning"
    required = ()

    @classmethod
    def check_model(cls, model: Any, folder: Path) -> None:
        """Refuse a model whose layers have separate transforms."""
        if not model.config.share_cross_modal_transformer_layers:
            raise UserError(
                f"{folder}: with config.share_cross_modal_transformer_layers=false, images have no "
                "contrastive feature; BridgeTower/bridgetower-large-itm-mlm-itc shares the layers"
            )

    def encode_pixels(self, pixels: Tensor) -> Tensor:
        body = self.model.bridgetower
        visual = body.vision_model.visual
        hidden = visual.forward_pre(pixels)
        # The whole model runs both towers in parallel, up to the depth of the text tower.
        for block in visual.transformer.resblocks[: len(body.text_model.encoder.layer)]:
            hidden = block(hidden)
        summary = visual.forward_post(hidden)[:, 0]
        mark = body.token_type_embeddings.weight[IMAGE_TYPE]
        return self.model.itc_image_head(body.cross_modal_image_transform(summary) + mark)

    def encode_text(self, tokens: dict[str, Tensor]) -> Tensor:
        there = on_device(tokens, self.log_scale.device)
        hidden = self.model.bridgetower.text_model(**there).last_hidden_state
        return self.model.itc_text_head(hidden[:, 0])

    def features(self, pixels: Tensor, texts: Sequence[str]) -> tuple[Tensor, ...]:
        """Return unit features of images, texts and pairs, each (n, dim), in one pass."""
        tokens = on_device(self.tokenize(texts), self.log_scale.device)
        output = self.model(**tokens, pixel_values=self.normalize(pixels))
        return output.image_embeds, output.text_embeds, output.cross_embeds

    takes_negatives = False

    def contrastive(
        self,
        features: Sequence[Tensor],
        log_weights: Tensor | None = None,
        negatives: Negatives | None = None,
    ) -> Tensor:
        """Return the mean of the authors' three cross-entropies over a whole batch, a scalar."""
        assert negatives is None  # a single text or image has no feature of a pair
        images, texts, crossed = features
        return three_way_loss(images, texts, crossed, self.logit_scale(), log_weights)


class BridgeTowerMatcher(PairMatcher):
    """``BridgeTowerForImageAndTextRetrieval``: the probability that a caption is of an image."""

    kind = "probability"
    transformers_class = "BridgeTowerForImageAndTextRetrieval"

    def score(self, pixels: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        """Return P(match) of each pair, (n,)."""
        logits = self.model(**tokens, pixel_values=pixels).logits
        return torch.softmax(logits.float(), dim=-1)[:, 1]


class BridgeTowerEntailer(TowerEntailer):
    """``BridgeTowerModel`` with a head of three logits on both pooled first tokens.

    Its cross encoder reads the image tower's upper layers, which do not depend on the text: they
    are computed once for all hypotheses about an image.
    """

    transformers_class = "BridgeTowerModel"

    @classmethod
    def pooled_width(cls, model: Any) -> int:
        return 2 * cls.hidden_size(model)

    def image_states(self, pixels: Tensor) -> Tensor:
        """Map normalised float32 (n, 3, size, size) to (n, cross layers, tokens, hidden)."""
        body = self.encoder
        visual = body.vision_model.visual
        hidden = visual.forward_pre(pixels)
        mark = body.token_type_embeddings.weight[IMAGE_TYPE]
        states = []
        for number, block in enumerate(visual.transformer.resblocks[: self._depth], 1):
            hidden = block(hidden)
            if number >= self._first:
                change = _of_layer(body.cross_modal_image_transform, number - self._first)
                states.append(change(visual.forward_post(hidden)) + mark)
        return torch.stack(states, dim=1)

    def fuse(self, states: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        """Map the image tower's layers and texts to both pooled first tokens, (n, 2 hidden)."""
        from transformers.masking_utils import create_bidirectional_mask

        body = self.encoder
        layers = body.text_model.encoder.layer
        text = body.text_model.embeddings(input_ids=tokens["input_ids"])
        # As in transformers: the same mask for queries from the text and from the image.
        shown = create_bidirectional_mask(
            config=body.config,
            inputs_embeds=text[:, :1],
            attention_mask=tokens["attention_mask"],
        )
        mark = body.token_type_embeddings.weight[TEXT_TYPE]
        for layer in layers[: self._first - 1]:
            text = layer(text, shown)
        words = image = None
        for number, state in enumerate(states.unbind(1)):
            text = layers[self._first - 1 + number](text, shown)
            projected = _of_layer(body.cross_modal_text_transform, number)(text) + mark
            if words is None or image is None:
                words = body.cross_modal_text_layernorm(projected)
                image = body.cross_modal_image_layernorm(state)
            else:
                words = body.cross_modal_text_link_tower[number - 1](projected, words, shown)
                image = body.cross_modal_image_link_tower[number - 1](state, image, None)
            of_text, of_image = body.cross_modal_text_layers, body.cross_modal_image_layers
            words, image = (
                of_text[number](words, image, attention_mask=shown)[0],
                of_image[number](image, words, encoder_attention_mask=shown)[0],
            )
        pooled: Tensor = body.get_cls_features(words, image)
        return pooled

    @property
    def _depth(self) -> int:
        """Number of layers of the text tower: the whole model runs both towers to this depth."""
        return len(self.encoder.text_model.encoder.layer)

    @property
    def _first(self) -> int:
        """The first layer of the towers, counted from 1, that the cross encoder reads."""
        return self._depth - int(self.encoder.config.num_hidden_layers) + 1


def _of_layer(module: Any, number: int) -> Any:
    """Return a cross layer's own transform, or the one that all share."""
    return module[number] if isinstance(module, nn.ModuleList) else module


class FlavaEntailer(TowerEntailer):
    """``FlavaModel`` with a head of three logits on the multimodal encoder's first token.

    FLAVA's authors classify that token after the last layer norm (``FLAVAForClassification`` of
    torchmultimodal). The image tower does not depend on the text: it runs once for all hypotheses
    about an image.
    """

    transformers_class = "FlavaModel"

    @staticmethod
    def hidden_size(model: Any) -> int:
        return int(model.config.multimodal_config.hidden_size)

    def image_states(self, pixels: Tensor) -> Tensor:
        """Map normalised float32 (n, 3, size, size) to projected tokens (n, tokens, hidden)."""
        seen = self.encoder.image_model(pixel_values=pixels, output_hidden_states=True)
        projected: Tensor = self.encoder.image_to_mm_projection(seen.hidden_states[-1])
        return projected

    def fuse(self, states: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        """Map projected image tokens and texts to the multimodal first token, (n, hidden)."""
        body = self.encoder
        read = body.text_model(**tokens, output_hidden_states=True)
        words = body.text_to_mm_projection(read.hidden_states[-1])
        shown = tokens["attention_mask"]
        first = int(body.multimodal_model.use_cls_token)
        seen = shown.new_ones((len(states), states.shape[1] + first))
        output = body.multimodal_model(
            torch.cat([states, words], dim=1), attention_mask=torch.cat([seen, shown], dim=1)
        )
        pooled: Tensor = output.last_hidden_state[:, 0]
        return pooled


class ViltMatcher(PairMatcher):
    """``ViltForImageAndTextRetrieval``: one logit for each pair, without a softmax.

    The authors' processor keeps an image's aspect ratio and pads the batch. Here every image is
    cropped to a square, as for all other models, so that no score depends on the rest of the batch.
    """

    kind = "logit"
    transformers_class = "ViltForImageAndTextRetrieval"

    def score(self, pixels: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        """Return the logit of each pair, (n,)."""
        logits: Tensor = _run(self.model, pixels, tokens).logits[:, 0]
        return logits


class ViltEntailer(FusionEntailer):
    """``ViltModel`` with a head of three logits on the pooled first token.

    Image and words go through the same layers, so no part can be reused for a second hypothesis:
    every pair needs a complete forward pass.
    """

    transformers_class = "ViltModel"

    def pool(self, pixels: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        """Map images and texts to the head's input, (n, hidden)."""
        pooled: Tensor = _run(self.encoder, pixels, tokens).pooler_output
        return pooled


def _run(model: Any, pixels: Tensor, tokens: dict[str, Tensor]) -> Any:
    """Run a ViLT on normalised squares (n, 3, size, size) and n tokenised texts."""
    count, _, height, width = pixels.shape
    mask = torch.ones((count, height, width), dtype=torch.long, device=pixels.device)
    with torch.random.fork_rng(devices=[]):
        # ViLT shuffles the patches. Each has its position embedding, so only rounding changes.
        torch.default_generator.manual_seed(0)
        return model(**tokens, pixel_values=pixels, pixel_mask=mask)
