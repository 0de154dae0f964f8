"""Keep the answers behind docs/emoji.md: ``python -m tests.worlds.emoji.answers runs/emoji``.

``answers.json`` beside this file has, for each experiment, arm and test, a string of 0 and 1 for
each seed: which items were right, in the order of the test.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import yaml

from cfaug.report.items import read_items
from tests.files_of_settings import settings_file

FILE = Path(__file__).with_name("answers.json")
EXPERIMENTS = ("emoji", "shapescapes", "shapescapes_questions")
SEEDS = tuple(range(107, 112))


def read_answers(root: Path) -> dict[str, dict[str, dict[str, list[str]]]]:
    """Return the answers of finished and evaluated runs, {experiment: {arm: {column: seeds}}}."""
    answers: dict[str, dict[str, dict[str, list[str]]]] = {}
    for experiment in EXPERIMENTS:
        table = yaml.safe_load(settings_file(f"table/{experiment}").read_text(encoding="utf-8"))
        for arm in table["arms"]:
            for name, column in table["columns"].items():
                seeds = []
                for seed in SEEDS:
                    folder = root / experiment / arm / f"seed={seed}"
                    items = read_items(folder, column["benchmark"])
                    assert items is not None
                    right = items.columns[column["metric"]]
                    right = right[~np.isnan(right)]
                    assert set(right) <= {0.0, 1.0}
                    seeds.append("".join(str(int(value)) for value in right))
                answers.setdefault(experiment, {}).setdefault(arm, {})[name] = seeds
    return answers


if __name__ == "__main__":
    text = json.dumps(read_answers(Path(sys.argv[1])), indent=0)
    FILE.write_text(text + "\n", encoding="utf-8")
