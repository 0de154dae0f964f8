"""The time of MaxSkew with 10,000 permutations on a data set of SocialCounterfactuals' shape.

Embeddings are given: 170,832 random ones of 512 numbers, in 7,936 sets of 12, 5,052 of 10 and 836
of 30 over 261 subjects; the images of a set are similar. Each question runs in its own process, to
measure its peak of memory; the embeddings themselves take 0.33 GiB of it. ``one labelling`` is
MaxSkew@K of all attributes together; ``usual labellings`` are the default of ``benchmark=skew``:
marginal, intersectional and conditional. All rows have their chance level, permutations, 2,000
resamples of sets, NDKL and paired gaps.

    python benchmarks/skew.py                 # one line per question
    python benchmarks/skew.py --permutations 100000
    python benchmarks/skew.py --quick         # a check of a few seconds that it runs
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import time
from typing import Any, cast

import numpy as np

from cfaug.papers.social.grid_sets import GridImages, GridSets
from cfaug.papers.social.skew import Skew

SUBJECTS, DIM = 261, 512
GRIDS: dict[str, tuple[int, dict[str, int]]] = {
    "race_gender": (7936, {"race": 6, "gender": 2}),
    "physical_gender": (5052, {"physical": 5, "gender": 2}),
    "physical_race": (836, {"physical": 5, "race": 6}),
}
"""The numbers of sets and of attribute values of every segment of SocialCounterfactuals."""

FEWER, FEW_PERMUTATIONS = 32, 100
"""With ``--quick``: by how much there are fewer sets, and the number of permutations."""

QUESTIONS = {
    "one labelling": list(GRIDS),
    "usual labellings": None,
}


class Keys:
    """The part of an index that a ranking needs: the names of rows."""

    source = "random"

    def keys(self, rows: np.ndarray) -> list[str]:
        """Return the names of rows."""
        return [f"{row:06d}" for row in rows.tolist()]


def lay_grid(name: str, sets: int, sizes: dict[str, int], first_row: int, first_set: int) -> Any:
    """Return the images of a grid, with its sets assigned to subjects in turn."""
    members = int(np.prod(list(sizes.values())))
    set_of_image = np.repeat(np.arange(sets), members)
    values = np.stack(np.unravel_index(np.arange(members), tuple(sizes.values())), axis=1)
    return GridImages(
        name,
        {a: tuple(f"{a}{n}" for n in range(count)) for a, count in sizes.items()},
        first_row + np.arange(len(set_of_image)),
        first_set + set_of_image,
        set_of_image % SUBJECTS,
        np.tile(values, (sets, 1)),
    )


def lay_sets(quick: bool) -> GridSets:
    """Return sets of the real shape, or a fraction of them."""
    grids, rows, sets = {}, 0, 0
    for name, (count, sizes) in GRIDS.items():
        count = count // FEWER if quick else count
        grids[name] = lay_grid(name, count, sizes, rows, sets)
        rows += len(grids[name].rows)
        sets += count
    subjects = tuple(f"subject {n}" for n in range(SUBJECTS))
    names = tuple(f"set {n}" for n in range(sets))
    kinds = ("occupation",) * SUBJECTS
    return GridSets(cast("Any", Keys()), grids, subjects, kinds, names, names, {})


def draw_embeddings(sets: GridSets) -> np.ndarray:
    """Return random embeddings of all grids; those of a set have most of their values in common."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(len(sets.set_names), DIM)).astype(np.float32)
    of_image = np.concatenate([grid.sets for grid in sets.grids.values()])
    images = common[of_image]
    for start in range(0, len(images), 4096):  # in chunks, without a second copy of all
        piece = images[start : start + 4096]
        piece += 0.5 * rng.standard_normal(piece.shape, np.float32)
    return images


def measure_question(name: str, permutations: int, quick: bool) -> str:
    """Measure one question; return its line."""
    sets = lay_sets(quick)
    images = draw_embeddings(sets)
    rng = np.random.default_rng(1)
    queries = {
        (grid, n): rng.normal(size=DIM).astype(np.float32)
        for grid in GRIDS
        for n in range(SUBJECTS)
    }
    benchmark = Skew(name="random", labellings=QUESTIONS[name], permutations=permutations)
    benchmark.sets = sets
    began, used = time.perf_counter(), time.process_time()
    evaluation = benchmark.judge(queries, images)
    seconds, processor = time.perf_counter() - began, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    p, level, holm = (evaluation.items[name] for name in ("p_permutation", "p_level", "p_holm"))
    counted = ~np.isnan(p)
    alarms = 100 * float((p[counted] <= 0.05).mean())
    return (
        f"{name}: {len(p):,} rows (subject, labelling, K), {int((~counted).sum()):,} left out, "
        f"{len(images):,} images, {permutations:,} permutations: {seconds:.1f} s by the clock, "
        f"{processor:.1f} s of the processor, peak {peak:.2f} GiB; of these random rankings "
        f"{alarms:.1f} % have p <= 0.05 ({100 * float(level[counted].mean()):.1f} % by chance), "
        f"the smallest p_holm is {float(holm[counted].min()):.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--permutations", type=int, default=10_000)
    parser.add_argument("--question", choices=list(QUESTIONS))
    parser.add_argument("--quick", action="store_true", help="few sets and permutations")
    given = parser.parse_args()
    permutations = FEW_PERMUTATIONS if given.quick else given.permutations
    if given.question:
        print(measure_question(given.question, permutations, given.quick), flush=True)
        return
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
          f"Python {platform.python_version()}, NumPy {np.__version__}", flush=True)  # fmt: skip
    for name in QUESTIONS:
        command = [sys.executable, __file__, "--question", name]
        more = ["--quick"] if given.quick else ["--permutations", str(permutations)]
        subprocess.run([*command, *more], check=True)


if __name__ == "__main__":
    main()
