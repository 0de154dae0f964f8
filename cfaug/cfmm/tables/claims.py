"""Quantities derived from Tables 2 and 3 of CFMM, and the claims of its text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from cfaug.cfmm.answering import phi_from_margins
from cfaug.report.document import Entry, Part, rules_of
from cfaug.report.published import published

ZERO_SHOT, ICL = "0-shot", "1-shot ICL"
"""Prompts as the paper prints them."""

Setting = tuple[str, str]
"""The printed names of a model and a prompt."""

DERIVED_NOTE = (
    "Drop: acc_b minus acc_c of Table 3, in points. Consistency: the total of acc+ divided by that "
    "of acc_b. phi: computed for each category from its three percentages (Table 2), then averaged "
    "over categories. Its margins are over pairs: below 0, a right basic answer goes with a wrong "
    "counterfactual one."
)
TEXT_NOTE = (
    "Right: the same from the printed tables. 105.75 is neither the average of the 0-shot rows nor "
    "that of all rows."
)


def cells() -> dict[Setting, dict[str, tuple[float, float, float]]]:
    """Return Table 2: acc_b, acc_c and acc+ of each category by model and prompt, per cent."""
    found = published("cfmm_2")
    return {
        (row["model"], row["prompt"]): {
            name: _three(row["values"][3 * place : 3 * place + 3])
            for place, name in enumerate(found["categories"])
        }
        for row in found["rows"]
    }


def totals() -> dict[Setting, tuple[float, float, float]]:
    """Return Table 3: the totals of acc_b, acc_c and acc+ by model and prompt, of up to 600."""
    return {
        (row["model"], row["prompt"]): _three(row["values"]) for row in published("cfmm_3")["rows"]
    }


def _three(values: Sequence[float]) -> tuple[float, float, float]:
    acc_b, acc_c, acc_plus = values
    return acc_b, acc_c, acc_plus


def drop(setting: Setting) -> float:
    """Return the total of basic questions minus that of counterfactual ones, in points."""
    acc_b, acc_c, _ = totals()[setting]
    return acc_b - acc_c


def mean_phi(setting: Setting) -> float:
    """Return the correlation of right answers by the margins, averaged over categories."""
    return fmean(
        phi_from_margins(*(value / 100 for value in own)) for own in cells()[setting].values()
    )


def derived_part() -> Part:
    """Return quantities derived from the paper's percentages, a row per model and prompt."""
    rows = []
    for (model, prompt), (acc_b, _, acc_plus) in totals().items():
        lost, phi = drop((model, prompt)), mean_phi((model, prompt))
        both = acc_plus / acc_b
        cells_ = (
            Entry(f"{lost:.2f}", numbers={"value": lost}),
            Entry(f"{100 * both:.1f}", numbers={"value": both}),
            Entry(f"{phi:+.3f}", numbers={"value": phi}),
        )
        rows.append(((model, prompt), cells_))
    return Part(
        "Derived from the paper's tables", ("Model", "Prompt"), (),
        ("drop", "consistency, %", "phi"), tuple(rows), rules_of([one[0][0] for one in rows]),
        (DERIVED_NOTE,), ours=False,
    )  # fmt: skip


def text_part() -> Part:
    """Return the claims of the paper's text beside the values from its tables."""
    found = published("cfmm_text")
    rows = tuple(
        ((row["what"], row["section"]), (Entry(f"{row['values'][0]:g}"), Entry(_says(row["key"]))))
        for row in found["rows"]
    )
    return Part(
        "The paper's text against its tables", ("Of", "Section"), (),
        ("text", "tables"), rows, notes=(found["note"], TEXT_NOTE), ours=False,
    )  # fmt: skip


def _says(key: str) -> str:
    return SAID[key]()


def _cell(model: str, category: str, place: int) -> str:
    return f"{cells()[model, ZERO_SHOT][category][place]:.2f}"


def _mean_and_range(place: int, prompts: tuple[str, ...]) -> str:
    values = [
        one[place]
        for (_, prompt), own in cells().items()
        if not prompts or prompt in prompts
        for one in own.values()
    ]
    return f"{fmean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _drops() -> str:
    zero = [drop(one) for one in totals() if one[1] == ZERO_SHOT]
    return f"{fmean(zero):.2f} (all rows: {fmean(map(drop, totals())):.2f})"


def _gains(model: str) -> str:
    first, other = (totals()[model, prompt] for prompt in (ZERO_SHOT, ICL))
    gains = [f"{name} {b - a:+.2f}" for name, a, b in zip(NAMES, first, other, strict=True)]
    return ", ".join(gains)


NAMES = ("acc_b", "acc_c", "acc+")
"""The three percentages, as printed."""

SAID: Mapping[str, Callable[[], str]] = {
    "llava_count_c": lambda: _cell("LLaVA", "Count", 1),
    "llava_count_b": lambda: _cell("LLaVA", "Count", 0),
    "infmllm_color_b": lambda: _cell("InfMLLM", "Color", 0),
    "all_b": lambda: _mean_and_range(0, ()),
    "all_c": lambda: _mean_and_range(1, (ZERO_SHOT,)),
    "drop": _drops,
    "qwen_icl": lambda: _gains("Qwen-VL"),
}
