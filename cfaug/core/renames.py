"""Settings and classes that have been renamed: one table each.

A command that uses an old name is refused with the corrected command (``correct_words``). Files
written under old names, a run's ``config.yaml`` and ``run.json``, are read as if they had been
written under the new ones (``update_settings``, ``update_flat``), so that a run keeps its identity.

To rename a setting or a class, add one row here: whole dotted names, the old one first. A row also
covers everything below a name: the settings of a group, the classes of a module.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

_PLANS = ("real", "base", "medium", "all", "human_validated")

_DATA = {
    "data.withheld": "data.counterfactual_holdout",
    **{f"data.plan={name}": f"plan@data.plan=coco_{name}" for name in _PLANS},
}

SETTINGS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "train": {
            **_DATA,
            "pack": "share_image_cache",
            "pack_mib": "image_cache_mib",
        },
        "evaluate": {
            **_DATA,
            "annotate.annotators": "annotate.assignment.annotators",
            "annotate.at_least": "annotate.analyses.altered_subjects.at_least",
            "annotate.overlap": "annotate.assignment.overlap_fraction",
            "annotate.raters": "annotate.assignment.annotators_per_item",
            "annotate.wordnet_senses": "annotate.analyses.altered_subjects.wordnet_senses",
            "benchmark.withheld": "benchmark.counterfactual_holdout",
            "benchmark.folders.*.withheld": "benchmark.folders.*.counterfactual_holdout",
            "benchmark.world.*.withheld": "benchmark.world.*.counterfactual_holdout",
            "before": "evaluate_initial",
            "forgetting": "forgetting_threshold",
        },
        "generate": {
            "data.captions": "data.source",
            "draws": "recipe.draws",
            "draws.cfg": "recipe.draws.guidance_scale",
            "draws.p": "recipe.draws.p2p_threshold",
            "finish": "recipe.postprocess",
            "image": "recipe.image_editor",
            "on_error": "publish_incomplete",
            "on_error=fail": "publish_incomplete=false",
            "on_error=publish": "publish_incomplete=true",
            "overlap": "pipeline_scoring",
            "scorer.device": "recipe.scorers.scorer.device",
            "scorer.encoder": "recipe.scorers.scorer.model",
            "scorer.preprocessing": "recipe.scorers.scorer.preprocessing",
            "scorer.report": "recipe.report.report.model",
            "select": "recipe.selection",
            "select.caption": "recipe.selection.min_clip_text",
            "select.direction": "recipe.selection.min_clip_direction",
            "select.image": "recipe.selection.min_clip_image",
            "select.over": "recipe.selection.aggregate",
            "text": "recipe.editor",
            "text.choose": "recipe.editor.ranker",
            "zoo.choose": "zoo.ranker",
        },
    }
)
"""The settings of each script. A ``*`` is any one part of a name; a row ``key=value`` covers one
value, in commands and in configuration files but not in the files of runs."""

TARGETS: Mapping[str, str] = MappingProxyType(
    {
        **{
            f"cfaug.bench.{module}.{old}": f"cfaug.{new}"
            for module in ("members", "configs")
            for old, new in (
                ("RetrievalOn", "evaluation.retrieval.Retrieval"),
                ("ClassificationOn", "evaluation.classification.Classification"),
                ("PairsOn", "compositional.pairs.PairMatching"),
                ("MatchingOn", "evaluation.image_text_matching.Matching"),
            )
        },
        "cfaug.data.settings": "cfaug.data.mixture.settings",
        "cfaug.generate.draws": "cfaug.generate.sampling",
        "cfaug.report.annotation.tables": "cfaug.coco_cf.annotation_tables",
        "cfaug.report.paper.arms": "cfaug.coco_cf.tables",
        "cfaug.report.paper.drops": "cfaug.coco_cf.tables",
        "cfaug.report.paper.figures": "cfaug.coco_cf.figures",
        "cfaug.report.paper.gains": "cfaug.coco_cf.label_gains",
    }
)
"""Classes and functions that a ``_target_`` may name, or their modules."""

OBJECTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "data.plan": {
            name: {"_target_": "cfaug.coco_cf.mixtures.PaperMixture", "name": name}
            for name in _PLANS
        }
    }
)
"""Settings in files that used to be names and are objects now: the node of each name."""

SIGNS = "+~"
"""Characters that may precede a key on the command line."""


def new_key(key: str, script: str) -> str:
    """Return the current name of a setting.

    >>> new_key("pack_mib", "train"), new_key("seed", "train")
    ('image_cache_mib', 'seed')
    """
    return _covered(key, SETTINGS.get(script, {}))


def old_key(key: str, script: str) -> str:
    """Return the earliest name of a setting, which older folders may have."""
    return _covered(key, {new: old for old, new in SETTINGS.get(script, {}).items()})


def old_word(word: str, script: str) -> str:
    """Return an override with the old name of its value.

    >>> old_word("plan@data.plan=coco_base", "train"), old_word("seed=1", "train")
    ('data.plan=base', 'seed=1')
    """
    rows = SETTINGS.get(script, {})
    return next((old for old, new in rows.items() if "=" in old and new == word), word)


def new_target(target: str) -> str:
    """Return the current name of a class.

    >>> new_target("cfaug.data.settings.DataSettings")
    'cfaug.data.mixture.settings.DataSettings'
    """
    return _covered(target, TARGETS)


def _covered(name: str, rows: Mapping[str, str]) -> str:
    """Replace the longest part of a dotted name, from its beginning, that has a row."""
    parts = name.split(".")
    for old in sorted(rows, key=len, reverse=True):
        covered = old.split(".")
        pairs = list(zip(covered, parts, strict=False))
        if len(parts) < len(covered) or any(one not in {"*", part} for one, part in pairs):
            continue
        any_names = iter(part for one, part in pairs if one == "*")
        new = [next(any_names) if one == "*" else one for one in rows[old].split(".")]
        return ".".join([*new, *parts[len(covered) :]])
    return name


def correct_words(words: Sequence[str], script: str) -> list[str]:
    """Return overrides with every old name replaced; the others are unchanged.

    >>> correct_words(["-m", "data.withheld=0.1,0.3", "+pack=true"], "train")
    ['-m', 'data.counterfactual_holdout=0.1,0.3', '+share_image_cache=true']
    """
    return [new for word in words for new in _corrected(word, script)]


def _corrected(word: str, script: str) -> list[str]:
    """Return the replacement of one word; settings within braces become separate words."""
    bare = word.lstrip(SIGNS + "-")
    sign = word[: len(word) - len(bare)]
    key, equals, value = bare.partition("=")
    settings = split_braces(value)
    if settings:
        unfolded = [f"{sign}{key}.{name}={one}" for name, one in settings.items()]
        corrected = correct_words(unfolded, script)
        return corrected if corrected != unfolded else [word]
    valued = _correct_value(key, value, script)
    if valued is not None:
        new, _, chosen = valued.partition("=")
        # A group's choice is overridden, never added: the old name was not a group.
        return [f"{sign.replace('+', '') if '@' in new else sign}{new}={chosen}"]
    if key.endswith("_target_"):
        value = new_target(value)
    return [f"{sign}{new_key(key, script)}{equals}{value}"]


def _correct_value(key: str, value: Any, script: str) -> str | None:
    """Return ``key=value`` with each value replaced by its row; ``None`` if one has none."""
    rows = SETTINGS.get(script, {})
    found = [rows.get(f"{key}={one}") for one in str(value).split(",")]
    known = [one.partition("=") for one in found if one is not None]
    if not known or len(known) < len(found):
        return None
    return f"{known[0][0]}={','.join(new for _, _, new in known)}"


def split_braces(text: str) -> dict[str, str]:
    """Return the settings of a value such as ``{p: [0, 1], cfg: 3}``; empty for any other value.

    >>> split_braces("{p: [0, 1], cfg:{a: 3}}"), split_braces("{}"), split_braces("coco")
    ({'p': '[0, 1]', 'cfg': '{a: 3}'}, {}, {})
    """
    if not (text.startswith("{") and text.endswith("}")):
        return {}
    pieces, depth, quote = [""], 0, ""
    for sign in text[1:-1]:
        if sign in "'\"" and quote in {"", sign}:
            quote = "" if quote else sign
        depth += 0 if quote else (sign in "[{(") - (sign in ")}]")
        if sign == "," and not depth and not quote:
            pieces.append("")
        else:
            pieces[-1] += sign
    pairs = [piece.partition(":") for piece in pieces]
    if depth or quote or not all(name.strip() and colon for name, colon, _ in pairs):
        return {}
    return {name.strip(): value.strip() for name, _, value in pairs}


def explain_words(words: Sequence[str], script: str) -> str | None:
    """Return the message for a command that uses old names; ``None`` if it uses none.

    Args:
        words: the command line after the script's name.
        script: the script's name, ``train`` for ``train.py``.
    """
    corrected = correct_words(words, script)
    changed = _changes((word, " ".join(_corrected(word, script))) for word in words)
    if not changed:
        return None
    command = shlex.join(["python", f"{script}.py", *corrected])
    return f"renamed since: {changed}. The corrected command:\n  {command}"


def explain_settings(flat: Mapping[str, Any], script: str) -> str | None:
    """Return the message for configuration files that use old names; ``None`` if they use none.

    Args:
        flat: the composed settings by their dotted keys.
        script: the script that the settings belong to.
    """
    changed = _changes(
        (_written(key, value), _written(*update_flat({key: value}, script).popitem()))
        if valued is None
        else (f"{key}: {value}", _as_yaml(valued))
        for key, value in flat.items()
        for valued in (_correct_value(key, value, script),)
    )
    return f"renamed since, write the new name in the YAML file: {changed}" if changed else None


def _as_yaml(word: str) -> str:
    """Return ``key=value`` in YAML; a group's choice is written in the list of defaults."""
    key, _, value = word.partition("=")
    return f'"override /{key}: {value}" in its defaults' if "@" in key else f"{key}: {value}"


def _written(key: str, value: Any) -> str:
    """Return a key, with its value if that is the name of a class."""
    return f"{key}: {value}" if key.endswith("_target_") else key


def _changes(pairs: Iterable[tuple[str, str]]) -> str:
    """List each word that has a new name, once."""
    changed = [f"{old.lstrip('-')} is now {new.lstrip('-')}" for old, new in pairs if old != new]
    return "; ".join(dict.fromkeys(changed))


def update_flat(settings: Mapping[str, Any], script: str) -> dict[str, Any]:
    """Return the settings of an identity, by dotted keys, under their current names.

    >>> update_flat({"data.withheld": 0.3, "seed": 1}, "train")
    {'data.counterfactual_holdout': 0.3, 'seed': 1}
    """
    return {
        new_key(key, script): new_target(value)
        if key.rpartition(".")[2] == "_target_" and isinstance(value, str)
        else value
        for key, value in settings.items()
    }


def update_settings(config: dict[str, Any], script: str) -> dict[str, Any]:
    """Rename nested settings, such as those of ``config.yaml``, in place; return them.

    Args:
        config: the parsed content of a file, which may hold anything, even itself.
        script: the script that the settings belong to.
    """
    _update_targets(config)
    for old, new in SETTINGS.get(script, {}).items():
        *parents, last = old.split(".")
        node = _node_at(config, parents)
        if "=" in old or "*" in old or node is None or last not in node:
            continue
        *new_parents, new_last = new.split(".")
        _node_at(config, new_parents, make=True)[new_last] = node.pop(last)
    for key, nodes in OBJECTS.items():
        *parents, last = key.split(".")
        node = _node_at(config, parents)
        if node is not None and isinstance(node.get(last), str) and node[last] in nodes:
            node[last] = dict(nodes[node[last]])
    return config


def _update_targets(tree: Any) -> None:
    waiting, seen = [tree], set[int]()  # each node once: YAML's anchors can repeat and nest them
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict | list) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, dict) and isinstance(node.get("_target_"), str):
            node["_target_"] = new_target(node["_target_"])
        waiting += node.values() if isinstance(node, dict) else node


def _node_at(tree: Any, parents: Iterable[str], *, make: bool = False) -> Any:
    """Return the mapping at a path; if it is missing, a new one with ``make``, else ``None``."""
    for parent in parents:
        if make and not isinstance(tree.get(parent), dict):
            tree[parent] = {}
        tree = tree.get(parent) if isinstance(tree, dict) else None
    return tree if isinstance(tree, dict) else None


def update_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a training run's ``run.json`` under the current names of settings."""
    found = dict(record)
    for name in ("identity", "by_seed"):
        if isinstance(found.get(name), dict):
            found[name] = update_flat(found[name], "train")
    return found
