"""Every command of docs/sets.md runs, in order, on hand-laid copies of every set."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cfaug.data.index import open_index
from cfaug.report.document import read_document
from cfaug.report.results import read_results
from tests.data import foils
from tests.data.coco_labels import PHOTOS, cxc, eccv, karpathy
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
from tests.data.question_files import naturalbench_row, vlms_are_biased, write_parquet
from tests.data.released import coco_counterfactuals
from tests.models.tiny_vlm import save_llava
from tests.run.conftest import commands_of
from tests.scripts import ROOT

PAGE = ROOT / "docs" / "sets.md"

LAID: dict[str, Callable[[Path], Path]] = {
    "winoground": winoground, "bivlc": bivlc, "vismin": vismin, "mmvp_vlm": mmvp,
    "naturalbench_retrieval": naturalbench, "coco_counterfactuals": coco_counterfactuals,
    "sugarcrepe": sugarcrepe, "sugarcrepe_pp": sugarcrepe_pp, "aro": aro,
    "hard_positives": hard_positives, "cola": foils.cola, "colorswap": foils.colorswap,
    "ccneg": foils.ccneg, "half_truths": foils.half_truths, "whatsup": foils.whatsup,
    "valse": foils.valse, "bla": foils.bla,
    "vl_checklist": foils.vl_checklist, "spec": foils.spec, "svo_probes": foils.svo_probes,
    "negbench": lambda folder: foils.negbench(foils.negbench_retrieval(folder)),
}  # fmt: skip

BENCHMARKS = {
    "winoground_pairs", "bivlc_pairs", "vismin_pairs", "mmvp_vlm_pairs",
    "naturalbench_retrieval_pairs", "coco_counterfactuals_pairs", "sugarcrepe_choice",
    "sugarcrepe_pp_choice", "aro_relation_choice", "aro_attribution_choice",
    "hard_positives_choice", "cola_pairs", "colorswap_pairs", "negbench_choice", "ccneg_choice",
    "half_truths_choice", "whatsup_choice", "valse_choice", "bla_choice", "vl_checklist_choice",
    "spec_choice", "spec_images_choice", "svo_probes_choice",
}  # fmt: skip


def lay_files(folder: Path) -> None:
    for name, lay in LAID.items():
        lay(folder / "DATA" / name)
    coco_photos(folder / "COCO" / "val2017")
    for name in ("coco_karpathy", "flickr30k"):
        karpathy(folder / "DATA" / name, (*PHOTOS, 1, 2, 3, 4))
    eccv(folder / "DATA" / "eccv_caption")
    cxc(folder / "DATA" / "sits_test.csv")
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
    vlms_are_biased(folder / "DATA" / "vlms_are_biased")
    questions = [naturalbench_row(i, ("yes_no", "multiple_choice")[i % 2]) for i in range(3)]
    write_parquet(folder / "DATA" / "naturalbench" / "test-00000-of-00001.parquet", questions)
    save_llava(folder / "MODEL")
    (folder / "conf").symlink_to(ROOT / "conf")


def test_the_lines_of_the_page_write_the_list_of_cc_neg(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    foils.ccneg(tmp_path / "laid")
    laid = [json.loads(line) for line in Path("laid/ccneg.jsonl").read_text().splitlines()]
    annotations = [
        {"json": {"caption": r["caption"]}, "sop_data": {"negative-prompt": r["negative_caption"]}}
        for r in laid
    ]
    annotations[0] |= annotations[0].pop("json")  # as in another copy
    paths = [f"/home/them/{Path(r['image_path']).name}" for r in laid]
    torch.save({"image_paths": paths, "annotations": annotations}, "ccneg_preprocessed.pt")
    (lines,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(lines, str(PAGE), "exec"), {})
    (tmp_path / "laid" / "ccneg.jsonl").rename("first.jsonl")
    expected = open_index(foils.ccneg(tmp_path / "again"), tmp_path / "cache")
    (tmp_path / "ccneg.jsonl").rename(tmp_path / "laid" / "ccneg.jsonl")
    index = open_index(tmp_path / "laid", tmp_path / "cache")
    for row in range(len(expected)):
        assert index.text(row) == expected.text(row).replace(",", "")
        assert index.read_image(row) == expected.read_image(row)


@pytest.mark.slow
def test_every_command_of_the_page_runs(tmp_path, monkeypatch, script, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    lay_files(tmp_path)
    commands = commands_of(PAGE)
    assert len(commands) == 40
    for name, words in commands:
        typed = [word.replace("model=clip_vit_b32", "weights=zoo:clip-0") for word in words]
        typed += ["max_indistinct=1"] if typed != words or "model=vlm" in words else []
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
    by_model = {
        results.parent.parent.name: read_results(results)
        for results in (tmp_path / "runs").glob("weights/*/seed=0/results.jsonl")
    }
    (vlm,) = (name for name in by_model if "MODEL" in name)
    answers = {(row.benchmark, row.metric) for row in by_model.pop(vlm)}
    assert answers >= {
        ("vlms_are_biased_main_vqa", "bias_ratio_macro"),
        ("vlms_are_biased_main_vqa_written", "bias_ratio"),
        ("naturalbench_vqa", "g_acc"), ("winoground_pairs", "group_score"),
        ("sugarcrepe_choice", "blind_model"),
    }  # fmt: skip
    (rows,) = by_model.values()
    assert {row.benchmark for row in rows} >= {
        *BENCHMARKS, "imagenet_r_classification", "cifar10_classification",
    }  # fmt: skip
    (part,) = read_document(tmp_path / "runs" / "tables" / "compositional.json").parts
    assert len({labels[0] for labels, _ in part.rows}) == len(BENCHMARKS)
