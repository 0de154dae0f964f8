"""Hand-laid sets of two texts on one photo, as the methods that change texts make them."""

from __future__ import annotations

from cfaug.core.types import CounterfactualSet, Edit, Member
from tests.evaluation.joined import picture

CAPTIONS = ("a photo of a red ball on the beach", "a photo of a dog on the grass",
            "a photo of a cat in the snow", "a photo of a car by the sea")  # fmt: skip


def text_set(number, word="", kind="insertion", label=None, scores=None, photo=None):
    """The set of caption ``number`` with ``word`` inserted before the noun; none is unchanged."""
    caption = CAPTIONS[number % len(CAPTIONS)]
    photo = number // 2 if photo is None else photo  # two captions a photo
    changed = caption.replace(" of a ", f" of a {word} ") if word else caption
    edit = Edit(kind, "", word) if word else None
    members = (
        Member(caption, "0", f"caption-{number}", None, label),
        Member(changed, "0", f"caption-{number}", edit, label, {"changes": []}),
    )
    image = {"0": picture(1, photo)}
    return CounterfactualSet(f"caption-{number}", f"photo-{photo}", members, image, scores or {})


def text_sets(count=8, word="small", kind="insertion", unchanged=()):
    """Captions with a word inserted, but for some where nothing could be done."""
    words = dict.fromkeys(unchanged, "")
    return [text_set(n, words.get(n, word), kind) for n in range(count)]
