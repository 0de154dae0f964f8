"""Results of a small made-up experiment, and pairs with their pictures."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import yaml
from PIL import Image, ImageDraw
from rich.console import Console

from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.planning.build import build
from cfaug.report.arms import read_arms
from cfaug.report.comparison import ComparisonSettings, Headline
from cfaug.report.document import Entry, to_latex, to_markdown
from cfaug.report.experiment_report import write_report
from cfaug.report.layout import (
    benchmark_parts,
    comparisons_csv,
    float_document,
    table_document,
)
from cfaug.report.records import Run
from cfaug.report.results import Result
from cfaug.report.significance_rows import Table
from cfaug.report.terminal import print_table
from tests.files_of_settings import settings_file

SEEDS = (11, 12, 13, 14, 15)
OOD, ID = "shapescapes_ood_classification", "shapescapes_id_classification"
MEANS = {  # out of distribution, in distribution
    "before": (0.355, 0.352),
    "real": (0.396, 0.716),
    "more_real": (0.438, 0.819),
    "counterfactual": (0.578, 0.725),
    "unbiased": (0.593, 0.740),
}
CONF = Path(__file__).resolve().parents[2] / "conf"
USUAL: ComparisonSettings = build(yaml.safe_load(settings_file("comparison/usual").read_text()))
LABELS = USUAL.labels
SOURCES = {
    "counterfactual": "shapescapes:counterfactual",
    "counterfactual_paired": "shapescapes:counterfactual",
    "generated": "shards/generated",
    "generated_paired": "shards/generated",
    "generated_sources": "shards/generated",
    "unbiased": "shapescapes:unbiased",
}
RATIOS = {"real": 0.0, "more_real": 0.0, "counterfactual": 0.5, "unbiased": 0.5}


def results(means=MEANS, seeds=SEEDS, noise=0.02, more=()) -> list[Result]:
    """Rows of every arm and seed on two classification benchmarks and ``more``."""
    rng = np.random.default_rng(0)
    rows = []
    luck = {seed: rng.normal(0, noise) for seed in seeds}
    for arm, levels in means.items():
        for seed in seeds:
            cells = [(OOD, "acc1"), (ID, "acc1"), *more]
            for (benchmark, metric), level in zip(
                cells, [*levels, *[levels[0]] * len(more)], strict=True
            ):
                value = float(np.clip(level + luck[seed] + rng.normal(0, noise / 2), 0, 1))
                run = f"demo/{arm}/seed={seed}"
                rows.append(Result(run, arm, seed, benchmark, metric, value, 800, f"{arm} {seed}"))
    return rows


def runs(rows: list[Result], ratios=RATIOS, sources=SOURCES, **fields) -> list[Run]:
    """The run of every arm and seed in rows; ``fields`` are added to each record."""
    records = [
        {
            "state": "done", "experiment": "demo", "arm": arm, "seed": seed,
            "cf_ratio": ratios.get(arm, 0.0), "steps": 0 if arm == "before" else 150,
            "counts": {"real": 500, "counterfactual": 500, "total": 1000, "train": 1000,
                       "seen": 9600},
            "wall_s": 10.5, "hardware": {"cpu": "Example <CPU>", "cores": 2}, "threads": 2,
            "versions": {"torch": "2.15.0"},
            "sources": {"counterfactual": {"source": sources.get(arm, f"own:{arm}")}},
            "identity": {
                "seed": seed, "data.cf_ratio": ratios.get(arm, 0.0), "content.weights": arm,
                "data.counterfactual_members": "unedited" if arm.endswith("_sources") else "all",
                "data.pairs_in_batch": arm.endswith("_paired"),
            },
            **fields,
        }
        for arm, seed in dict.fromkeys((row.arm, row.seed) for row in rows)
    ]  # fmt: skip
    return [Run(Path("demo") / record["arm"], "demo", record["arm"], record) for record in records]


def headline(rows: list[Result], ratios=RATIOS, baseline="real", **changes) -> Headline:
    """What a report of these rows is about, without labels."""
    about = USUAL.headline(rows, read_arms(runs(rows, ratios)), baseline, {})
    return replace(about, **changes)


def markdown(table: Table) -> str:
    return to_markdown(table_document(table))


def latex(table: Table) -> str:
    return to_latex(float_document(table))


def csv_lines(table: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(comparisons_csv(table))))


def printed(table: Table, width: int = 80, **settings) -> str:
    """The table as a terminal shows it."""
    console = Console(file=io.StringIO(), width=width, **settings)
    print_table(table, console)
    return console.file.getvalue()


def report_page(folder: Path, rows, runs, table: Table, headline: Headline) -> str:
    """The text of the page of an experiment without samples."""
    page, *_ = write_report(
        folder, title="x", rows=rows, runs=runs, samples=[], config_text="", table=table,
        headline=headline,
    )  # fmt: skip
    return page.read_text(encoding="utf-8")


def entries(table: Table, benchmark: str) -> dict[str, tuple[Entry, ...]]:
    """The printed cells of a benchmark by the arm's label."""
    [part] = [part for part in benchmark_parts(table) if part.title == benchmark]
    return {arm: cells for (arm,), cells in part.rows}


def picture(subject: str, colour: str, size: int = 32, kind: str = "PNG") -> bytes:
    """A subject on a noisy sea, the same noise every time."""
    noise = np.random.default_rng(1).integers(90, 130, (size, size, 3), dtype=np.uint8)
    noise[..., 2] += 80
    image = Image.fromarray(noise)
    box = [size * 0.3, size * 0.35, size * 0.75, size * 0.8]
    draw = ImageDraw.Draw(image)
    draw.ellipse(box, fill=colour) if subject == "ball" else draw.rectangle(box, fill=colour)
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def pair(key: str, before: str = "ball", after: str = "cube", **drawing) -> CounterfactualSet:
    """A counterfactual pair that differs in its subject."""
    captions = [f"a red {what} on the sea" for what in (before, after)]
    return CounterfactualSet(
        key=key,
        group=key,
        members=(
            Member(captions[0], "a", key, label=before),
            Member(captions[1], "b", key, edit=Edit("subject", before, after), label=after),
        ),
        images={"a": picture("ball", "red", **drawing), "b": picture("cube", "red", **drawing)},
    )


HOSTILE = (
    "a cat</script><script>document.title='owned'</script><img src=//x.example/y.png> &amp; <!--"
)


def generated(number: int, *, members: int = 2, kind: str = "noun") -> CounterfactualSet:
    draw = {"seed": str(2**63 + number), "p": round(0.1 + 0.01 * (number * 7 % 80), 4), "cfg": 9.0}
    nouns = ["cat", *(f"{w}{number % 5}" for w in ("dog", "fish", "horse", "bird", "cow"))]
    return CounterfactualSet(
        key=f"pair-{number:04d}",
        group=f"g{number}",
        members=tuple(
            Member(f"a {nouns[i]} on mat {number}", str(i), "s",
                   Edit(kind, "cat", nouns[i]) if i else None, extra=draw)
            for i in range(members)
        ),
        images={str(i): picture("ball", "red") for i in range(members)},
        scores={"sim_direction": round(0.1 + (number * 13 % 50) / 100, 4), "sim_image": 0.8},
    )  # fmt: skip


def notes(figure: ElementTree.Element) -> list[str]:
    """Return what a page shows where things of a figure are pointed at."""
    return [title.text or "" for title in figure.iter("title")]


def data_of(file: Path) -> dict:
    """Return the data that a page of items shows."""
    (data,) = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', file.read_text(), re.DOTALL
    )
    return json.loads(data)
