"""Every command of docs/sets.md runs, in order, on hand-laid copies of every set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cfaug.report.document import read_document
from cfaug.report.results import read_results
from tests.data.compositional import (
    aro,
    bivlc,
    coco_photos,
    hard_positives,
    mmvp,
    naturalbench,
    photo,
    put,
    sugarcrepe,
    sugarcrepe_pp,
    vismin,
    winoground,
)
from tests.data.making import write_tar
from tests.data.released import coco_counterfactuals
from tests.run.conftest import commands_of
from tests.scripts import ROOT

PAGE = ROOT / "docs" / "sets.md"

LAID: dict[str, Callable[[Path], Path]] = {
    "winoground": winoground, "bivlc": bivlc, "vismin": vismin, "mmvp_vlm": mmvp,
    "naturalbench_retrieval": naturalbench, "coco_counterfactuals": coco_counterfactuals,
    "sugarcrepe": sugarcrepe, "sugarcrepe_pp": sugarcrepe_pp, "aro": aro,
    "hard_positives": hard_positives,
}  # fmt: skip

BENCHMARKS = {
    "winoground_pairs", "bivlc_pairs", "vismin_pairs", "mmvp_vlm_pairs",
    "naturalbench_retrieval_pairs", "coco_counterfactuals_pairs", "sugarcrepe_choice",
    "sugarcrepe_pp_choice", "aro_relation_choice", "aro_attribution_choice",
    "hard_positives_choice",
}  # fmt: skip


def lay_files(folder: Path) -> None:
    for name, lay in LAID.items():
        lay(folder / "DATA" / name)
    coco_photos(folder / "COCO" / "val2017")
    classes = {f"s{i:07d}": photo(i) for i in range(3)}
    members = {f"{key}.jpg": content for key, content in classes.items()}
    members |= {f"{key}.cls": str(i).encode() for i, key in enumerate(classes)}
    imagenet = folder / "DATA" / "imagenet_r"
    write_tar(imagenet / "test" / "0.tar", dict(sorted(members.items())))
    put(imagenet, {
        "test/nshards.txt": b"1", "classnames.txt": b"ball\ncube\nstar\n",
        "zeroshot_classification_templates.txt": b"a photo of a {c}.\na drawing of a {c}.\n",
    })  # fmt: skip
    names = ("cat", "dog", "cat", "dog", "cat", "dog")
    cifar = {f"train/{name}/{i}.jpg": photo(10 + i) for i, name in enumerate(names)}
    cifar |= {f"test/{name}/{i}.jpg": photo(i) for i, name in enumerate(names[:2])}
    put(folder / "DATA" / "cifar10", cifar)
    (folder / "conf").symlink_to(ROOT / "conf")


@pytest.mark.slow
def test_every_command_of_the_page_runs(tmp_path, monkeypatch, script, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    lay_files(tmp_path)
    commands = commands_of(PAGE)
    assert len(commands) == 15
    for name, words in commands:
        typed = [word.replace("model=clip_vit_b32", "weights=zoo:clip-0") for word in words]
        typed += ["max_indistinct=1"] if typed != words else []
        assert script(name)(typed) == 0, words
        said = capfd.readouterr()
        if "benchmark=compositional" in words:
            assert "are not run" not in said.err
        if "benchmark=robustness" in words:
            assert "4 of 5 tests are not run" in said.err
            assert (
                "imagenet_a_classification: there is no DATA/imagenet_a: clip-benchmark/"
                in said.err
            )
    (results,) = (tmp_path / "runs").glob("weights/*/seed=0/results.jsonl")
    rows = read_results(results)
    assert {row.benchmark for row in rows} >= {
        *BENCHMARKS, "imagenet_r_classification", "cifar10_classification",
    }  # fmt: skip
    (part,) = read_document(tmp_path / "runs" / "tables" / "compositional.json").parts
    assert len({labels[0] for labels, _ in part.rows}) == len(BENCHMARKS)
