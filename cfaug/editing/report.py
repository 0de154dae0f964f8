"""A readable report of the caption stage: captions left after each filter, and random edits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cfaug.core.rng import generator
from cfaug.core.types import Edited, Proposal
from cfaug.editing.edit_measures import measure_edits, table_lines
from cfaug.editing.reconstruction import is_control


def caption_report(edited: Sequence[Edited], *, examples: int = 100, seed: int = 0) -> str:
    """Return a Markdown page: captions and candidates left by stage, and random edits.

    Args:
        edited: the result for every caption.
        examples: the largest number of edits to show, drawn without replacement.
        seed: the seed of the draw, which depends only on it and on the number of edits.
    """
    found = [proposal for one in edited for proposal in _edits(one)]
    with_one = sum(bool(_edits(one)) for one in edited)
    share = f" ({with_one / len(edited):.1%})" if edited else ""
    lines = [
        "# Caption edits",
        "",
        f"{with_one:,} of {len(edited):,} captions have an edit{share}.",
        "",
        *_stages(edited),
        "",
        *_rejected(edited),
        *_measures(edited),
        *_examples(found, examples, seed),
    ]
    return "\n".join(lines) + "\n"


def _edits(edited: Edited) -> list[Proposal]:
    """Return the proposals with a changed text."""
    return [one for one in edited.proposals if not is_control(one)]


def _rejected(edited: Sequence[Edited]) -> list[str]:
    """Return a table of the rejected edits by reason and kind, if the editor keeps them."""
    counts = Counter((lost.reason, lost.edit.kind) for one in edited for lost in one.rejected)
    if not counts:
        return []
    kinds = sorted({kind for _, kind in counts})
    lines = [
        "## Rejected edits",
        "",
        f"| reason | {' | '.join(map(_escape, kinds))} |",
        f"|---|{'---:|' * len(kinds)}",
    ]
    for reason in dict.fromkeys(reason for reason, _ in counts):
        row = " | ".join(f"{counts[reason, kind]:,}" for kind in kinds)
        lines.append(f"| {_escape(reason)} | {row} |")
    return [*lines, ""]


def _measures(edited: Sequence[Edited]) -> list[str]:
    """Return the measures of edits and guards, if checks judged the edits."""
    found = measure_edits(edited)
    if not found:
        return []
    said = "Every variation that changes something, before the guards; the filter is the label's."
    return ["## How good the edits are", "", said, "", *table_lines(found), ""]


def _stages(edited: Sequence[Edited]) -> list[str]:
    names = dict.fromkeys(name for one in edited for name in one.survivors)
    captions: Counter[str] = Counter()
    candidates: Counter[str] = Counter()
    for one in edited:
        for name, left in one.survivors.items():
            captions[name] += left > 0
            candidates[name] += left
    ended = Counter(one.rejected_by for one in edited)
    lines = [
        "| after | captions with a candidate | candidates | captions that ended here |",
        "|---|---:|---:|---:|",
    ]
    for name in names:
        lines.append(f"| {name} | {captions[name]:,} | {candidates[name]:,} | {ended[name]:,} |")
    chosen = [len(_edits(one)) for one in edited if _edits(one)]
    unchosen = ended["nothing chosen"]
    return [*lines, f"| choice | {len(chosen):,} | {sum(chosen):,} | {unchosen:,} |"]


def _examples(found: Sequence[Proposal], count: int, seed: int) -> list[str]:
    rows = generator(seed, "caption report").permutation(len(found))[:count]
    lines = [f"## {len(rows)} random edits", ""]
    for row in sorted(rows.tolist()):
        lines.extend(_show_proposal(found[row]))
    return lines


def _show_proposal(found: Proposal) -> list[str]:
    details = found.extra.get("edits", ())
    lines = [f"- `{found.key}` {_mark_source(found, 0)}"]
    for i, (edit, text) in enumerate(zip(found.edits[1:], found.texts[1:], strict=True)):
        if i < len(details):
            detail = details[i]
            text = _mark(text, detail["span_1"])
            scores = ", ".join(
                f"{name} {detail[name]:.4g}"
                for name in ("similarity", "perplexity_0", "perplexity_1")
                if name in detail
            )
        else:
            text, scores = _escape(text), ""
        what = f"{edit.before} → {edit.after}" if edit is not None else ""
        lines.append(f"  - {text} ({_escape(what)}{'; ' + scores if scores else ''})")
    return lines


def _mark_source(found: Proposal, detail: int) -> str:
    details = found.extra.get("edits", ())
    if detail >= len(details):
        return _escape(found.texts[0])
    return _mark(found.texts[0], details[detail]["span_0"])


def _mark(text: str, span: Sequence[int]) -> str:
    start, end = span
    if start == end:  # an insertion or a deletion
        return _escape(text)
    return f"{_escape(text[:start])}**{_escape(text[start:end])}**{_escape(text[end:])}"


def _escape(text: str) -> str:
    """Escape a caption, so that it is not read as Markdown or HTML."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{sign}" if sign in "\\`*_[]#|" else sign for sign in text)
