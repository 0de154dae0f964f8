"""The weight decay and the learning rate of each parameter."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

from torch import nn

_LIST = r"(?P<list>(?:.*?\.)?\w*?(?:layers?|blocks|stages|tower))"
BLOCK = re.compile(rf"^{_LIST}\.?(?P<number>\d+)\.")
"""A parameter of a numbered block (the outermost), as in ``encoder.layers.3.mlp.fc1.bias``."""

BEGINNING = re.compile(r"embed|patch|conv1\b|pre_lay\w*norm|ln_pre|cls_token|bn1\b|stem")
"""Parameters before the first block: embeddings, the patch convolution, the norm after it."""


NOT_DECAYED = re.compile(r"bias|layernorm|rmsnorm|(?:^|[._])norm(?:$|\.)")
"""Names that the Trainer of transformers leaves out (``Trainer.get_decay_parameter_names``)."""

DecayRule = Literal["matrices", "huggingface"]


def parameter_groups(
    model: nn.Module,
    weight_decay: float,
    *,
    lr: float = 1.0,
    layer_decay: float | None = None,
    decay_rule: DecayRule = "matrices",
) -> list[dict[str, Any]]:
    """Return groups of trainable parameters by weight decay and learning rate.

    Args:
        model: the model.
        weight_decay: the weight decay of the parameters that decay.
        lr: the peak of the learning rate.
        layer_decay: the factor of ``layer_rates`` that splits the groups by learning rate; ``None``
            does not split them.
        decay_rule: the rule that selects the parameters that decay; see
            ``cfaug.train.settings.OptimSettings``.
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    decayed = decayed_names(model, decay_rule)
    rates = dict.fromkeys(named, 1.0) if layer_decay is None else layer_rates(named, layer_decay)
    groups: list[dict[str, Any]] = []
    for decay, decays in ((weight_decay, True), (0.0, False)):
        for rate in sorted(set(rates.values()), reverse=True):
            found = [p for n, p in named.items() if (n in decayed) == decays and rates[n] == rate]
            if found or rate == 1.0:
                groups.append({"params": found, "weight_decay": decay, "lr": lr * rate})
    return groups


def decayed_names(model: nn.Module, rule: DecayRule) -> set[str]:
    """Return the names of the parameters that decay; see ``OptimSettings`` for the two rules."""
    if rule == "matrices":  # the rest: biases, norms' gains, the logit scale, class embeddings
        return {name for name, p in model.named_parameters() if p.ndim > 1}
    in_norms = tuple(n + "." for n, m in model.named_modules() if n and isinstance(m, nn.LayerNorm))
    return {
        name
        for name, _ in model.named_parameters()
        if not NOT_DECAYED.search(name.lower()) and not name.startswith(in_norms)
    }


def layer_rates(names: Iterable[str], layer_decay: float) -> dict[str, float]:
    """Return each parameter's factor of the learning rate, ``layer_decay ** (layers above it)``.

    A tower is a list of numbered blocks (``layers``, ``resblocks``, ``stages``, ...) with the
    parameters beside it. Its blocks are counted from the last, which has one layer above it (the
    projection), to the first; embeddings are below that. Other parameters (projections, final
    norms, heads, the logit scale) have factor 1. This applies BEiT's ``get_num_layer_for_vit`` to
    each tower separately.

    Args:
        names: the names of the parameters.
        layer_decay: the factor from each layer to the one below it, in (0, 1].

    >>> layer_rates(["visual.conv1.weight", "visual.layers.0.w", "visual.layers.1.w"], 0.5)
    {'visual.conv1.weight': 0.125, 'visual.layers.0.w': 0.25, 'visual.layers.1.w': 0.5}
    """
    names = list(names)
    numbers: dict[str, set[int]] = {}
    for found in filter(None, map(BLOCK.match, names)):
        numbers.setdefault(found["list"], set()).add(int(found["number"]))
    blocks = {tower: sorted(found, reverse=True) for tower, found in numbers.items()}
    return {name: layer_decay ** _layers_above(name, blocks) for name in names}


def _layers_above(name: str, blocks: dict[str, list[int]]) -> int:
    found = BLOCK.match(name)
    if found:
        return blocks[found["list"]].index(int(found["number"])) + 1
    if not BEGINNING.search(name):
        return 0
    towers = [tower for tower in blocks if name.startswith(_root(tower))]
    return len(blocks[max(towers, key=lambda t: len(_root(t)))]) + 1 if towers else 0


def _root(tower: str) -> str:
    """Return the prefix of a tower's embeddings: the parent of the module with its blocks.

    >>> _root("vision_model.encoder.layers"), _root("transformer.resblocks")
    ('vision_model.', '')
    """
    return "".join(part + "." for part in tower.split(".")[:-2])
