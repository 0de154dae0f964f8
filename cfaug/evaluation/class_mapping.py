"""Match the labels of a test set to a model's classes: by WordNet id, by name, or as written.

Models of ImageNet name its classes by WordNet id, by one name, by several separated by commas, or
only by number; folders of images are named by ids or by names.
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from cfaug.core.errors import UserError
from cfaug.data.sources.row import WNID, class_words, imagenet_names, wordnet_id
from cfaug.stats.classification import hits_at
from cfaug.stats.effects import softmax, top_classes, truth_probability

ALIKE = 0.9
"""Share of 1,000 names that must be ImageNet's, in its order, for all to count as ImageNet's."""
NAMED = 5
"""Labels that an error names."""
NEAREST = 3
"""Classes that an error suggests for each label."""


def match_classes(labels: Sequence[str], classes: Sequence[str], owner: str) -> np.ndarray:
    """Return the number of each label's class in a model's own order, int64 (labels,).

    A label is looked up as written, then as words ignoring case, then among the names and WordNet
    ids of ImageNet.

    Args:
        labels: distinct labels of the test set.
        classes: the model's class names, in the order of its logits.
        owner: the model's name, for errors.
    """
    rules: list[Callable[[str], set[int]]] = [
        _ClassNames(classes, str),
        _ClassNames(classes, _plain),
    ]
    lost: dict[str, list[str]] = {}
    numbers = []
    for label in labels:
        at = next((where for rule in rules if (where := rule(label))), set[int]())
        if not at and len(rules) == 2 and _names_imagenet(labels, classes):
            rules.append(_ImageNet(classes))
            at = rules[-1](label)
        if len(at) == 1:
            numbers.append(at.pop())
        else:
            lost[label] = [f"{n} ({classes[n]!r})" for n in sorted(at)]
    if lost:
        plain = {_plain(name): name for name in classes}
        problems = []
        for label, several in list(lost.items())[:NAMED]:
            if several:
                problems.append(f"{label!r} could be {' or '.join(several)}")
                continue
            near = difflib.get_close_matches(_plain(label), plain, NEAREST, 0.6)
            hint = f" (nearest: {', '.join(plain[name] for name in near)})" if near else ""
            problems.append(f"{label!r} is not one of them{hint}")
        more = "" if len(lost) <= NAMED else f", and {len(lost) - NAMED} more"
        shown = ", ".join(classes[:8]) + (", ..." if len(classes) > 8 else "")
        raise UserError(
            f"{owner} has {len(classes)} classes ({shown}); of the labels of the test, "
            f"{'; '.join(problems)}{more}. Say what its classes are called with "
            "model.classes=FILE: a line for each logit, with the label or the WordNet id of its "
            "class"
        )
    first: dict[int, str] = {}
    for label, number in zip(labels, numbers, strict=True):
        other = first.setdefault(number, label)
        if other != label:
            raise UserError(
                f"the labels {other!r} and {label!r} are both the class {classes[number]!r} of "
                f"{owner}: say what its classes are called with model.classes=FILE"
            )
    return np.array(numbers, np.int64)


def _names_imagenet(labels: Sequence[str], classes: Sequence[str]) -> bool:
    """Return whether ImageNet's names, which take a second to read, may help."""
    many = len(classes) >= len(imagenet_names())
    return many or any(wordnet_id(name) for name in (*labels, *classes))


class _ClassNames:
    """Classes by their names, and by each of several names separated by commas."""

    def __init__(self, classes: Sequence[str], form: Callable[[str], str]) -> None:
        self._form = form
        self._whole = _places((form(name), n) for n, name in enumerate(classes))
        self._parts = _places(
            (form(part.strip()), n) for n, name in enumerate(classes) for part in name.split(",")
        )

    def __call__(self, label: str) -> set[int]:
        form = self._form(label)
        return set(self._whole.get(form) or self._parts.get(form) or ())


class _ImageNet:
    """Classes by WordNet id, whatever names both sides use."""

    def __init__(self, classes: Sequence[str]) -> None:
        self._by_id = _places((wnid, n) for n, wnid in enumerate(imagenet_ids(classes)) if wnid)

    def __call__(self, label: str) -> set[int]:
        wnid = wordnet_id(label)
        ids = ids_of_name(label) if wnid is None else {wnid}
        return {n for wnid in ids for n in self._by_id.get(wnid, ())}


def imagenet_ids(classes: Sequence[str]) -> list[str | None]:
    """Return the WordNet id of each class of a model, ``None`` where it is uncertain.

    A thousand classes with ImageNet's names, in the order of their ids, are ImageNet's even if
    single names are ambiguous: two are "crane" in every list.
    """
    ids = [wordnet_id(name) for name in classes]
    if any(ids):
        return ids
    ordered = list(imagenet_names())
    if len(classes) == len(ordered):
        names = imagenet_aliases()
        alike = sum(
            not {_plain(part) for part in (name, *name.split(","))}.isdisjoint(names[wnid])
            for name, wnid in zip(classes, ordered, strict=True)
        )
        if alike >= ALIKE * len(ordered):
            return list(ordered)
    candidates = (ids_of_name(name) for name in classes)
    return [next(iter(wnids)) if len(wnids) == 1 else None for wnids in candidates]


def ids_of_name(name: str) -> set[str]:
    """Return the WordNet ids of the ImageNet classes that have this name in some list."""
    table = _aliases_to_ids()
    whole = table.get(_plain(name))
    return set(whole or (wnid for part in name.split(",") for wnid in table.get(_plain(part), ())))


@lru_cache(maxsize=1)
def _aliases_to_ids() -> dict[str, set[str]]:
    return _places((alias, wnid) for wnid, names in imagenet_aliases().items() for alias in names)


@lru_cache(maxsize=1)
def imagenet_aliases() -> Mapping[str, frozenset[str]]:
    """Return the names of ImageNet's classes in CLIP, torchvision and WordNet, by WordNet id."""
    from timm.data import ImageNetInfo
    from torchvision.models import ResNet18_Weights

    lemmas: Any = ImageNetInfo("imagenet-1k").label_descriptions(as_dict=True)
    categories = ResNet18_Weights.IMAGENET1K_V1.meta["categories"]
    aliases = {}
    for (wnid, name), category in zip(imagenet_names().items(), categories, strict=True):
        aliases[wnid] = frozenset(map(_plain, [name, category, *str(lemmas[wnid]).split(",")]))
    return aliases


def _plain(name: str) -> str:
    """Return a name as lower-case words, to compare names of several lists.

    >>> _plain("Dog_Sled"), _plain("jack-o'-lantern")
    ('dog sled', 'jack o lantern')
    """
    words = class_words(name) if not WNID.fullmatch(name) else name
    return " ".join(re.sub(r"[^\w]+", " ", words.replace("_", " ").casefold()).split())


def _places(pairs: Iterable[tuple[str, int]] | Iterable[tuple[str, str]]) -> dict[str, set]:
    by_name = defaultdict[str, set](set)
    for name, value in pairs:
        by_name[name].add(value)
    return dict(by_name)


# A classifier's answers to images whose class is known: hits, ranks, probabilities.

SHOWN = 5
"""Number of most probable classes kept for each image, as in LANCE's figures."""
AT_ONCE = 4096
"""Images whose probabilities of all classes are held in memory at a time."""


@dataclass(frozen=True)
class Answers:
    """A classifier's answers to images, in the order of the images.

    Attributes:
        hits: {``acc1``: 1 or 0, float64 (images,)}, and ``acc5`` if there are five classes or more.
        rank: 1 + the number of classes with a larger logit than the true one, int64 (images,).
        p: probability of each image's true class, float64 (images,).
        top: names of the most probable classes, text (images, up to 5).
        top_p: probabilities of the most probable classes, float64 (images, up to 5).
        number: column of each image's true class in the logits, int64 (images,).
        class_name: the model's name of each image's true class, text (images,).
    """

    hits: Mapping[str, np.ndarray]
    rank: np.ndarray
    p: np.ndarray
    top: np.ndarray
    top_p: np.ndarray
    number: np.ndarray
    class_name: np.ndarray


def judge(
    logits_MC: np.ndarray,
    places: np.ndarray,
    truth: np.ndarray,
    classes: Sequence[str],
) -> Answers:
    """Compare logits with the truth.

    Args:
        logits_MC: logits of the distinct images, (distinct images, classes).
        places: the row of ``logits_MC`` that belongs to each image, integers (images,).
        truth: column of each image's true class, integers (images,).
        classes: class names in the order of the logits.
    """
    named = np.array(classes, dtype=object)
    hits: list[Mapping[str, np.ndarray]] = []
    rank, p, top, top_p = [], [], [], []
    for start in range(0, len(places), AT_ONCE):
        labels = truth[start : start + AT_ONCE]
        logits = logits_MC[places[start : start + AT_ONCE]]
        every = softmax(logits)
        best, best_p = top_classes(every, SHOWN)
        hits.append(hits_at(logits, labels))
        rank.append(1 + (logits > logits[np.arange(len(labels)), labels][:, None]).sum(axis=1))
        p.append(truth_probability(every, labels))
        top.append(named[best])
        top_p.append(best_p)
    return Answers(
        hits={name: np.concatenate([hit[name] for hit in hits]) for name in hits[0]},
        rank=np.concatenate(rank),
        p=np.concatenate(p),
        top=np.concatenate(top),
        top_p=np.concatenate(top_p),
        number=truth,
        class_name=named[truth],
    )
