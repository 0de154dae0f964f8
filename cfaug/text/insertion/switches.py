"""Named switches for the differences between XMAI's paper, its released code and a correct version.

The letters are those under which ``docs/xmai.md`` lists the deviations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Literal

from cfaug.errors import UserError
from cfaug.validation import check_fields

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
    """Choices of an insertion where its descriptions differ; ``None`` is the value of ``compat``.

    The released code is ``XMAI/xmai_generate.py`` and ``XMAI/utils.py``; sections are of Ramshetty
    et al. (2023).

    Args:
        normalise: how the three scores of a mask's candidates are made comparable (a). ``sum``
            divides by their sum (section 3). ``min_max`` maps the least to 0 and the greatest to 1,
            as the released code does; it is the default too, because after division by the sum the
            cosine distances of three captions that differ in one word are all about a third, and
            lambda_3 decides nothing. ``released`` is ``min_max`` with the code's treatment of equal
            scores, which are divided by the greatest, or by 1e-12 where that is negative.
        padding: whether probabilities of fewer than k candidates are filled up with zeros before
            they are normalised (b), as in the released code.
        context: what the language model sees in place of masks to the left (c of the algorithm's
            text, d of the list): ``sequential``, the words inserted there (section 3); ``masks``,
            their mask tokens, as in the released code; or ``alone``, nothing, neither in the
            language model nor in CLIP. With ``alone``, choices are independent, and ablations over
            lambda, k and t share all answers of the models; it is an approximation of ours.
        special_tokens: tokens around the caption in the language model (e): the tokenizer's
            ``usual`` ones, or two ``unknown`` ones, which the released code's empty strings become.
        neighbours: which words near the mask are not candidates (f): three on ``both`` sides
            ("3-hop neighborhood", section 3), or three tokens to the ``left``, as in the released
            code; a mask with fewer than three tokens before it has none.
        later_masks: whether the captions that CLIP compares contain the masks to the right (g):
            ``remove``, or ``keep`` them as the word "[MASK]", as in the released code.
        fallback: which nouns are compared with the detected objects (h): every ``noun`` that is not
            a direct match; those of a ``text`` without any direct match (section 3 and the released
            code); ``never`` any; or ``only`` nouns, without direct matches. The last two are the
            released code's ``--mask_method direct`` and ``sim``.
        matching: what a direct match is (i): the object's ``words`` in any case and at any place;
            or the object's first occurrence as characters, with ``spaces`` around it, in the same
            case and not at the beginning, as in the released code.
        stop_words: whether stop words are not candidates in ``any_case``, or in ``lower_case``
            only, so that "The" and "Some" are inserted (j), as in the released code.
        candidates: whole ``words`` of letters, or any ``tokens``, word pieces and signs too (k), as
            in the released code.
        output: how the rest of the caption is written (k): its ``characters`` stay, or it is
            rebuilt from its word pieces (``tokens``), as in the released code.
        attributes: how a mask finds its attributes (l): those of its ``object``; or by the
            ``token`` that follows, which finds none for objects of several tokens such as
            "t-shirt", and the wrong mention's if two objects begin with the same word, as in the
            released code.
        spelling: whether "a" right before an insertion becomes "an" if the word needs it, and a
            word that begins the caption is capitalised like the noun (``right``); or nothing is
            adapted (``keep``), as in paper and code.

        compounds: where a word is inserted if other nouns directly precede the mention: ``before``
            all of them ("a wooden dining table"), or ``within``, right before the noun that was
            matched ("a dining wooden table"), as in paper and code.

    Raises:
        UserError: naming a switch that is invalid, with the choices.
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

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor.switches")

    def resolve(self, compat: Compat) -> Switches:
        """Return the switches with ``compat``'s value for every one that is ``None``.

        Raises:
            UserError: if ``compat`` is invalid.
        """
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
which takes whole numbers only."""
