"""Compare models item by item, over all tasks that two folders, or files, of answers share.

cfaug compare A B
cfaug compare A B columns.cluster=doc.image_id
cfaug compare A/samples_TASK_DATE.jsonl B/samples_TASK_DATE.jsonl columns.filter=strict-match
cfaug compare A B plan=1
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cfaug.core.annotations import Keys, Means
from cfaug.core.errors import OutputSettings, UserError, Verbosity, say, verbosity
from cfaug.core.outputs import check_output
from cfaug.core.targets import Makes
from cfaug.core.validation import Node, PositiveNumber
from cfaug.planning.build import build
from cfaug.run.folder_names import clean_name, digest
from cfaug.run.launch import DONE, Jobs, Script, launch, report
from cfaug.settings.arguments import write_override

if TYPE_CHECKING:
    from cfaug.report.item_lists.item_tables import ItemColumns

SETTING = re.compile(r"[~+]{0,2}[\w./@-]+(:[\w.@-]+)?=|--|-[a-z]$")
"""How words begin that are settings or options, and no folders."""
TOP = ("places", "columns", "newest", "plan", "quiet", "verbose", "paths", "hydra")
"""The settings of ``conf/compare.yaml``; a folder may be called lr=0.1, and not plan=1."""


@dataclass(frozen=True, kw_only=True)
class CompareSettings(OutputSettings):
    """The settings of ``cfaug compare``."""

    places: Sequence[str] | None
    """two folders or files, or more, as typed: ``cfaug compare A B``"""
    columns: Annotated[Node, Makes("cfaug.report.item_lists.item_tables.ItemColumns")]
    """the roles of columns in files of items"""
    newest: bool
    """of several logs of one task take the newest"""
    plan: PositiveNumber | Annotated[None, Means("no plan")]
    """points of a difference: how large a test has to be to find it is told from these answers"""
    paths: Annotated[dict[str, str], Keys(("runs",))]
    """``runs``: the tables and the page are written into its folder ``compared``"""
    overrides: Sequence[str] = ()


def compare(settings: CompareSettings) -> int:
    """Compare the places on every task that they share; print one table, write it and a page."""
    from cfaug.report.document import read_document, write_document
    from cfaug.report.item_lists.comparison_page import (
        PAGE,
        explain,
        overview_document,
        plan_part,
        write_comparison_page,
    )
    from cfaug.report.item_lists.evaluation_folders import find_tasks
    from cfaug.report.item_lists.item_files import comparison_document
    from cfaug.report.item_lists.task_comparison import (
        compare_tasks,
        list_differences,
        pool,
        verdict,
    )
    from cfaug.report.terminal import bold_mark, print_document

    places = [Path(place).expanduser() for place in settings.places or ()]
    columns = build(settings.columns)
    shared = find_tasks(places, newest=settings.newest)
    results, left = compare_tasks(shared, columns)
    differences = list_differences(results)
    pooled = pool(differences)
    if left and verbosity() == Verbosity.QUIET:  # otherwise it is said with the reasons
        every = len({result.base for result in results}) + len(left)
        say(f"warning: {len(left)} of {every} tasks are not compared: {', '.join(left)}")
    notes = [
        *shared.notes,
        *left.values(),
        *(f"{r.task}: {note}" for r in results if len(results) > 1 for note in r.answers.notes),
    ]
    folder = Path(settings.paths["runs"]).expanduser() / "compared"
    chosen = [[str(p.resolve()) for p in places], asdict(columns), settings.plan]
    identity = digest([*chosen, "newest"] if settings.newest else chosen)
    task = results[0].answers.task if len(results) == 1 else ""
    name = _name(results[0].answers.names, task, columns, settings.plan)
    file = folder / f"{name}.json"
    if file.exists() and read_document(file).compared != identity:
        name = f"{name}-{identity}"
    overview = overview_document(name, "Models compared item by item", differences, pooled, notes)
    if settings.plan:
        plan = plan_part(differences, settings.plan)
        if plan.rows:
            overview = replace(overview, parts=(*overview.parts, plan))
        else:
            none = "There is no plan: no metric of right and wrong has two items or clusters."
            overview = replace(overview, notes=(*overview.notes, none))
    answer = verdict(differences, pooled)
    details = []
    for result in results:
        # The table of all tasks is corrected over its rows: only over the same ones are they alike.
        within = len(result.comparisons) != len(differences)
        document = comparison_document(result.answers, result.comparisons, name, within=within)
        details.append((result, document.parts[0]))
    tables = [replace(part, title=r.task) for r, part in details]
    whole = replace(overview, parts=(*overview.parts, *tables), compared=identity, answer=answer[0])
    # Before anything is written: a file of somebody else refuses all.
    page = folder / f"{name}.html"
    for kind in ("tex", "md", "csv", "json"):
        check_output(folder / f"{name}.{kind}", f"{name}.{kind}")
    check_output(page, PAGE)
    # Without styles, as in a log file, a star stands for what is bold.
    lines = explain(differences, pooled, bold_mark())
    printed = replace(overview, notes=(*lines, *overview.notes[len(lines) :]))
    if len(results) == 1:  # the cautions of a single task stand under its own table elsewhere
        printed = replace(printed, notes=(*printed.notes, *results[0].answers.notes))
    print_document(printed)
    paths = [
        *write_document(whole, folder),
        write_comparison_page(page, overview, answer, details, differences, pooled),
    ]
    say("wrote " + ", ".join(map(str, paths)), sys.stdout)
    for line in answer:
        say(line, sys.stdout)
    say(f"next: open {shlex.quote(str(paths[-1]))} in a browser")
    return DONE


def _name(names: Sequence[str], task: str, columns: ItemColumns, plan: float | None) -> str:
    """Return the name of a table: its task if there is one, the places, and the questions asked."""
    more = f"-and-{len(names) - 2}-more" if len(names) > 2 else ""
    places = "-against-".join(clean_name(name, extra="")[:50] for name in names[:2])
    questions = [
        f"{word}={'+'.join([values] if isinstance(values, str) else values)}"
        for word in ("filter", "cluster", "by", "metrics")
        if (values := getattr(columns, word))
    ]
    questions += ["common"] * columns.common + [f"plan={plan or 0:g}"] * (plan is not None)
    return clean_name("-".join([*[task] * bool(task), places + more, *questions]))


def _is_place(word: str) -> bool:
    """Return whether a word names a folder or file: such a name may hold an equals sign."""
    if not SETTING.match(word):
        return True
    key = re.split(r"[=.]", word.lstrip("~+"))[0]
    return "=" in word and key not in TOP and Path(word).expanduser().exists()


def run_jobs(jobs: Jobs) -> int:
    """Run every composed job, and return the worst exit code."""
    return max(compare(CompareSettings(**config, overrides=words)) for config, words in jobs)


SCRIPT = Script("compare", CompareSettings, run_jobs, __doc__ or "")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    places = [word for word in words if _is_place(word)]
    if places:
        settings = [word for word in words if not _is_place(word)]
        if any(word.startswith("places=") for word in settings):
            return report(UserError("compare: name folders as words or by places=[...], not both"))
        words = [write_override("places", places), *settings]
    return launch(SCRIPT, words)
