"""Named switches for the differences between XMAI's paper, its released code and a correct version.

The letters are those of the deviations in ``docs/xmai.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from cfaug.core.errors import UserError
from cfaug.core.read_with import ReadWith
from cfaug.core.validation import check_fields

Compat = Literal["fixed", "paper", "code"]

Normalise = Literal["sum", "min_max", "released"]
Context = Literal["sequential", "masks", "alone"]
SpecialTokens = Literal["usual", "unknown"]
Neighbours = Literal["both", "left"]
LaterMasks = Literal["remove", "keep"]
Fallback = Literal["noun", "text", "never", "only"]
Matching = Literal["words", "spaces"]
StopWords = Literal["any_case", "lower_case"]
Candidates = Literal["words", "tokens"]
Output = Literal["characters", "tokens"]
Attributes = Literal["object", "token"]
Spelling = Literal["right", "keep"]
Compounds = Literal["before", "within"]


@dataclass(frozen=True)
class Switches:
    """Choices where the descriptions of an insertion differ; ``None`` takes that of ``compat``.

    The released code is ``XMAI/xmai_generate.py`` and ``XMAI/utils.py``; sections are of Ramshetty
    et al. (2023).

    Args:
        normalise: the method that makes the three scores of a mask's candidates comparable (a).
            ``sum`` divides by their sum (section 3). ``min_max`` maps the least to 0 and the
            greatest to 1, as the released code does; it is also the default, because after division
            by the sum the cosine distances of three captions that differ in one word are all about
            a third, so that lambda_3 has no effect. ``released`` is ``min_max`` with the code's
            treatment of equal scores, which are divided by the greatest, or by 1e-12 if that is
            negative.
        padding: whether probabilities of fewer than k candidates are filled up with zeros before
            they are normalised (b), as in the released code.
        context: the language model's input in place of masks to the left (c of the algorithm's
            text, d of the list): ``sequential``, the words inserted there (section 3); ``masks``,
            their mask tokens, as in the released code; or ``alone``, no text, neither in the
            language model nor in CLIP. With ``alone``, choices are independent, and ablations over
            lambda, k and t share all answers of the models; it is an approximation of ours.
        special_tokens: the tokens around the caption in the language model (e): the tokenizer's
            ``usual`` ones, or two ``unknown`` ones, which the released code's empty strings become.
        neighbours: the words near the mask that are not candidates (f): three on ``both`` sides
            ("3-hop neighborhood", section 3), or three tokens to the ``left``, as in the released
            code; for a mask with fewer than three tokens before it there are none.
        later_masks: the treatment of masks to the right in the captions that CLIP compares (g):
            ``remove`` them, or ``keep`` them as the word "[MASK]", as in the released code.
        fallback: the nouns to compare with the detected objects (h): every ``noun`` that is not a
            direct match; those of a ``text`` without any direct match (section 3 and the released
            code); ``never`` any; or ``only`` nouns, without direct matches. The last two are the
            released code's ``--mask_method direct`` and ``sim``.
        matching: the definition of a direct match (i): the object's ``words`` in any case and at
            any place; or the object's first occurrence as characters, with ``spaces`` around it, in
            the same case and not at the beginning, as in the released code.
        stop_words: the stop words that are not candidates (j): those in ``any_case``, or only those
            in ``lower_case``, so that "The" and "Some" are inserted, as in the released code.
        candidates: the guesses that are candidates (k): whole ``words`` of letters, or all
            ``tokens``, also word pieces and signs, as in the released code.
        output: the treatment of the rest of the caption (k): its ``characters`` stay, or it is
            rebuilt from its word pieces (``tokens``), as in the released code.
        attributes: the source of a mask's attributes (l): its ``object``; or the ``token`` that
            follows, which finds no attributes for objects of several tokens such as "t-shirt", and
            those of the wrong mention if two objects begin with the same word, as in the released
            code.
        spelling: ``right`` turns "a" before an insertion into "an" if the word needs it, and
            capitalises a word that begins the caption like the noun; ``keep`` adapts neither, as in
            paper and code.
        compounds: the place of an insertion if other nouns directly precede the mention: ``before``
            all of them ("a wooden dining table"), or ``within``, right before the noun that was
            matched ("a dining wooden table"), as in paper and code.

    Raises:
        UserError: if a switch is invalid; it names the switch and the choices.
    """

    normalise: Normalise | None = None
    padding: bool | None = None
    context: Context | None = None
    special_tokens: SpecialTokens | None = None
    neighbours: Neighbours | None = None
    later_masks: LaterMasks | None = None
    fallback: Fallback | None = None
    matching: Matching | None = None
    stop_words: StopWords | None = None
    candidates: Candidates | None = None
    output: Output | None = None
    attributes: Attributes | None = None
    spelling: Spelling | None = None
    compounds: Compounds | None = None

    read_with: ClassVar[ReadWith] = {
        "matching": {"fallback": (None, "noun", "text", "never")},
        "spelling": [{"output": (None, "characters")}, {"spelling": ("keep",)}],
    }

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor.switches")

    def resolve(self, compat: Compat) -> Switches:
        """Return the switches with the values of ``compat`` in place of ``None``."""
        if compat not in PRESETS:
            raise UserError(
                f"recipe.editor.compat={compat} is invalid: choose from {', '.join(PRESETS)}"
            )
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        given = {name: value for name, value in own.items() if value is not None}
        return Switches(**{**PRESETS[compat], **given})

    @property
    def needing_tokens(self) -> tuple[str, ...]:
        """The switches with values that need a masked language model's own tokens."""
        wanted = {
            "context": "masks",
            "special_tokens": "unknown",
            "candidates": "tokens",
            "output": "tokens",
        }
        return tuple(
            f"{name}={value}" for name, value in wanted.items() if getattr(self, name) == value
        )


_FIXED: dict[str, Any] = {
    "normalise": "min_max",
    "padding": False,
    "context": "sequential",
    "special_tokens": "usual",
    "neighbours": "both",
    "later_masks": "remove",
    "fallback": "noun",
    "matching": "words",
    "stop_words": "any_case",
    "candidates": "words",
    "output": "characters",
    "attributes": "object",
    "spelling": "right",
    "compounds": "before",
}

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "fixed": _FIXED,
        # Where the paper is silent (e, g, i to l), the correct choice.
        "paper": {
            **_FIXED,
            "normalise": "sum",
            "fallback": "text",
            "spelling": "keep",
            "compounds": "within",
        },
        "code": {
            "normalise": "released",
            "padding": True,
            "context": "masks",
            "special_tokens": "unknown",
            "neighbours": "left",
            "later_masks": "keep",
            "fallback": "text",
            "matching": "spaces",
            "stop_words": "lower_case",
            "candidates": "tokens",
            "output": "tokens",
            "attributes": "token",
            "spelling": "keep",
            "compounds": "within",
        },
    }
)
"""The values that ``compat`` sets."""

LAMBDAS: Mapping[str, tuple[float, float, float]] = MappingProxyType(
    {"fixed": (1.0, 5.0, 5.0), "paper": (1.0, 5.0, 5.0), "code": (1.0, 1.0, 1.0)}
)
"""lambda_1, lambda_2 and lambda_3 (c): section 4.4, and the defaults of the released command line,
which takes only integers."""
