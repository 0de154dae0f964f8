"""``evaluate.py annotate=...``: pages for annotators, their answers read back, or simulated."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cfaug.errors import UserError
from cfaug.messages import say
from cfaug.run.build import build
from cfaug.run.launch import DONE
from cfaug.run.readings import say_source

if TYPE_CHECKING:
    from cfaug.annotation.answers import Answer
    from cfaug.annotation.assignment import Assignment, Item
    from cfaug.annotation.findings import Findings
    from cfaug.data.index import Index

LABELS = "labels.jsonl"


@dataclass(frozen=True)
class Source:
    """The pairs that people are asked about.

    Attributes:
        name: what pages and tables call them: the part of the world, or the folder's own name.
        index: of its rows.
        oracle: gives the file of what a perfect annotator says; refuses where there is none.
    """

    name: str
    index: Index
    oracle: Callable[[], Path]

    def items(self) -> list[Item]:
        """Return every image."""
        from cfaug.annotation.assignment import items_of

        return items_of(self.index)


def annotation(
    node: Mapping[str, Any],
    data: Mapping[str, Any],
    seed: int,
    paths: Mapping[str, Any],
) -> int:
    """Do what a node of ``conf/annotate`` describes, with the pairs of ``data.counterfactual``.

    Args:
        node: the node.
        data: the node of the data.
        seed: of the world, where the data names none.
        paths: ``shards``, ``cache`` and ``image_roots``.

    Raises:
        UserError: if there are no pairs to ask about, and what the node's own part refuses.
    """
    from cfaug.run.sources import label_file, open_source, permitted_roots
    from cfaug.world_source import is_world

    if "_target_" not in node:
        raise UserError("annotate=... is one of export, taxonomy, read, simulate")
    settings = build(data)
    settings = settings if settings.seed is not None else replace(settings, seed=seed + 1)
    name, shards = settings.counterfactual, Path(paths["shards"])
    if name is None:
        raise UserError("annotate=... asks about the pairs of data.counterfactual: name a folder")

    def oracle() -> Path:
        if not is_world(name):
            raise UserError(
                f"annotate=simulate asks the embedded world's oracle, who knows nothing of {name}: "
                "leave data.counterfactual as it is, or let people answer (annotate=export)"
            )
        return label_file(name, settings.world, settings.seed, shards)

    cache, roots = Path(paths["cache"]), permitted_roots(paths)
    index = open_source(name, settings.world, settings.seed, shards, cache, roots)
    say_source("pairs", name, index)
    source = Source(
        name=name if is_world(name) else Path(name).resolve().name,
        index=index,
        oracle=oracle,
    )
    build(node).run(source)
    return DONE


@dataclass(frozen=True)
class Export:
    """Write the page that asks annotators the paper's question (COCO-CFs, section 4.1, figure 4).

    Args:
        out: the page.
        annotators: how many people answer.
        overlap: share of the images that several of them answer.
        raters: how many those are.
        sample: ask about so many images only; ``None`` is all.
        seed: of who answers what, and in which order.
        pages: ``one`` for everybody, or ``each`` their own, with their number in its name.
        side: longest side of the pictures, in pixels.

    Raises:
        UserError: naming what is out of range.
    """

    out: str
    annotators: int
    overlap: float
    raters: int
    sample: int | None
    seed: int
    pages: Literal["one", "each"]
    side: int

    def __post_init__(self) -> None:
        if self.pages not in ("one", "each"):
            raise UserError(f"annotate.pages={self.pages!r}: choose from one, each")
        if Path(self.out).suffix != ".html":
            raise UserError(f"annotate.out={self.out}: the page is an .html file")

    def run(self, source: Source) -> None:
        """Write the page or pages, and say how many questions there are."""
        from cfaug.annotation.page import which_caption, write_questions

        plan = _assignment(self)
        items = plan.drawn(source.items())
        questions = which_caption(items, plan, f"Which caption? {source.name}")
        out = Path(self.out)
        pages: list[tuple[Path, list[str] | None]] = [(out, None)]
        if self.pages == "each":
            pages = [(out.with_stem(f"{out.stem}-{who}"), [who]) for who in questions.orders]
        for file, people in pages:
            written = write_questions(
                questions, file, source.index.read_image, side=self.side, annotators=people
            )
            say(f"wrote {written} ({written.stat().st_size / 2**20:.1f} MiB)", sys.stdout)
        asked, several = sum(map(len, questions.orders.values())), len(plan.overlapping(items))
        say(
            f"{asked:,} questions about {len(items):,} images, {several:,} of them to "
            f"{plan.raters} people, for {plan.annotators} annotators",
            sys.stdout,
        )


@dataclass(frozen=True)
class Taxonomy:
    """Write the page on which errors are sorted into the paper's categories (COCO-CFs, A.3.1).

    Args:
        out: the page.
        answers: files of answers, or patterns of their names.
        sample: errors to sort, drawn at random.
        seed: of the draw.
        side: longest side of the pictures, in pixels.
    """

    out: str
    answers: Sequence[str]
    sample: int
    seed: int
    side: int

    def run(self, source: Source) -> None:
        """Write the page."""
        from cfaug.annotation.page import why_wrong, write_questions
        from cfaug.annotation.record import said_of

        findings = _findings(self.answers, source.items())
        errors = [
            (findings.items[i], f"The marked image was labelled: {said_of(findings, i)}.")
            for i in findings.sampled_errors(self.sample, self.seed)
        ]
        questions = why_wrong(errors, f"Why not? {source.name}")
        written = write_questions(
            questions, Path(self.out), source.index.read_image, side=self.side
        )
        say(f"wrote {written}: {len(errors):,} of {len(findings.errors):,} errors", sys.stdout)


@dataclass(frozen=True)
class Read:
    """Read answers back: labels, Tables 1 and 7 to 10, agreement, and a page that shows them.

    Args:
        out: the folder for ``labels.jsonl`` (for ``data.human_labels``), ``annotation.json`` (for
            the tables) and ``annotation.html``.
        answers: files of answers, or patterns of their names.
        categories: the same of sorted errors; none is no Table 7.
        at_least: errors that altered subjects must have to be listed (20 in Table 10).
        wordnet_senses: look up so many senses of the altered subjects in WordNet, and tell apart
            those that are kinds of each other; ``None`` does not look.
    """

    out: str
    answers: Sequence[str]
    categories: Sequence[str]
    at_least: int
    wordnet_senses: int | None

    def run(self, source: Source) -> None:
        """Write everything, and print what was found."""
        from cfaug.annotation.answers import answer_files, read_answers
        from cfaug.annotation.page import CATEGORIES
        from cfaug.annotation.record import record_of, write_record
        from cfaug.annotation.report import sentences, write_report
        from cfaug.text.wordnet import Hyponymy

        findings = _findings(self.answers, source.items())
        files = answer_files("categories", self.categories)
        choices: list[Answer] = (
            read_answers(files, findings.items, field="category", choices=CATEGORIES)
            if files
            else []
        )
        related = None if self.wordnet_senses is None else Hyponymy(self.wordnet_senses).related
        record = record_of(
            findings, choices, source.name, self.at_least, source.index.read_image, related
        )
        out = Path(self.out)
        written = [
            _write_lines(out / LABELS, findings.label_lines()),
            write_record(record, out),
            write_report(record, findings, out),
        ]
        for line in sentences(record):
            say(line, sys.stdout)
        say("wrote " + ", ".join(map(str, written)), sys.stdout)


@dataclass(frozen=True)
class Simulate:
    """Write answers of annotators that are none, from the world's oracle, to try the tool.

    Args:
        out: the folder for ``answers-simulated-<n>.jsonl`` and ``categories-simulated-1.jsonl``.
        annotators: as for ``Export``.
        overlap: as for ``Export``.
        raters: as for ``Export``.
        sample: as for ``Export``.
        seed: of who answers what, of mistakes, and of the errors that are sorted.
        mistakes: share of the answers that are wrong.
        sorted_errors: errors that are sorted into categories.
    """

    out: str
    annotators: int
    overlap: float
    raters: int
    sample: int | None
    seed: int
    mistakes: float
    sorted_errors: int

    def run(self, source: Source) -> None:
        """Write the files."""
        from cfaug.annotation import simulate

        plan = _assignment(self)
        items = plan.drawn(source.items())
        truth = simulate.read_truth(source.oracle(), items)
        mistakes = simulate.Mistakes(self.mistakes, self.seed)
        answers = simulate.simulated_answers(items, truth, plan, mistakes)
        out = Path(self.out)
        files = [
            _write_lines(out / f"answers-{who}.jsonl", lines) for who, lines in answers.items()
        ]
        findings = _findings(list(map(str, files)), items)
        known = {item.name: label for item, label in zip(items, truth, strict=True)}
        sampled = findings.sampled_errors(self.sorted_errors, self.seed)
        lines = simulate.simulated_categories(findings, known, sampled)
        files.append(_write_lines(out / "categories-simulated-1.jsonl", lines))
        say("wrote " + ", ".join(map(str, files)), sys.stdout)


def _assignment(settings: Export | Simulate) -> Assignment:
    from cfaug.annotation.assignment import Assignment

    names = ("annotators", "overlap", "raters", "sample", "seed")
    return Assignment(**{name: getattr(settings, name) for name in names})


def _findings(patterns: Sequence[str], items: Sequence[Item]) -> Findings:
    from cfaug.annotation.answers import answer_files, read_answers
    from cfaug.annotation.assignment import CHOICES
    from cfaug.annotation.findings import Findings

    files = answer_files("answers", patterns)
    if not files:
        raise UserError(
            f"no file is called {', '.join(patterns) or 'anything'}: put what annotators "
            "downloaded there, or name the files in annotate.answers=[...]"
        )
    return Findings(items, read_answers(files, items, field="label", choices=CHOICES))


def _write_lines(file: Path, lines: Iterable[Mapping[str, Any]]) -> Path:
    from cfaug.report.page import write_page

    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    return write_page(file, text)
