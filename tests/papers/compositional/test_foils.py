"""Numbers of the sets of foils against their released files, read and scored by plain loops."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.data.index import open_index
from cfaug.evaluation.choices.caption_choice import CaptionChoice
from cfaug.evaluation.choices.pairs import PairMatching
from cfaug.evaluation.retrieval import Retrieval
from tests.data import foils
from tests.data.compositional import sugarcrepe
from tests.scripts import ROOT

CONF = ROOT / "cfaug" / "papers" / "compositional" / "conf" / "benchmark"
Member = tuple[Path, str, bool]
"""A photo, a caption, and whether it is true of the photo."""
Raw = tuple[str, list[Member], dict[str, str]]
"""The category of an item, its members, the groups in which it counts together with others."""


def load(file: Path) -> Any:
    return json.loads(file.read_text())


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as handle:
        return list(csv.DictReader(handle))


def half_truths(folder: Path) -> list[Raw]:
    """Write the photos beside the lists, and return the items of all lists."""
    items = []
    for file in sorted((folder / "data").glob("*.parquet")):
        for row in pq.read_table(file).to_pylist():
            photo = folder.parent / f"{row['id']}.png"
            photo.write_bytes(row["image"]["bytes"])
            texts = [row["anchor"], row["full_truth"]], [row["half_truth"]]
            items.append((row["triplet_type"], foiled(photo, *texts), {}))
    return items


def foiled(photo: Path, true: list[str], false: list[str]) -> list[Member]:
    return [*((photo, text, True) for text in true), *((photo, text, False) for text in false)]


def negbench(folder: Path) -> list[Raw]:
    items = []
    for category, name, home in (
        ("coco", "COCO_val_mcq_llama3.1_rephrased", "val2017"),
        ("voc2007", "VOC2007_mcq_llama3.1_rephrased", "voc2007"),
        ("chexpert", "chexpert_binary_mcq", "CheXpert/valid/p1"),
    ):
        for row in rows(folder / "images" / f"{name}.csv"):
            texts = [row[f"caption_{i}"] for i in range(4) if f"caption_{i}" in row]
            right = texts.pop(int(row["correct_answer"]))
            photo = folder / home / Path(row["image_path"]).name
            items.append((category, foiled(photo, [right], texts), {}))
    return items


def ccneg(folder: Path) -> list[Raw]:
    records = map(json.loads, (folder / "ccneg.jsonl").read_text().splitlines())
    return [
        ("", foiled(folder / r["image_path"], [r["caption"]], [r["negative_caption"]]), {})
        for r in records
    ]


def whatsup(folder: Path) -> list[Raw]:
    """Read as ``evaluate_scores`` of the release does: places by the words of a photo's name."""
    items = []
    for part, name in (("A", "controlled_images"), ("B", "controlled_clevr")):
        for record in load(folder / f"{name}_dataset.json"):
            file = Path(record["image_path"]).name
            words = file.removesuffix(".jpeg").split("_")
            things = (part, words[0], words[-1])
            across = words[1] in ("left", "right")
            groups = {"four": str(things), "pair": f"{things} {across}"}
            true, *false = record["caption_options"]
            items.append((part, foiled(folder / name / file, [true], false), groups))
    for part, name, home in (
        ("coco_one", "coco_qa_one_obj", "val2017"), ("coco_two", "coco_qa_two_obj", "val2017"),
        ("vg_one", "vg_qa_one_obj", "vg_images"), ("vg_two", "vg_qa_two_obj", "vg_images"),
    ):  # fmt: skip
        for number, true, false in load(folder / f"{name}.json"):
            file = f"{str(number).zfill(12) if home == 'val2017' else number}.jpg"
            items.append((part, foiled(folder / home / file, [true], [false]), {}))
    return items


def valse(folder: Path) -> list[Raw]:
    return [
        (part, foiled(folder / "val2017" / e["image_file"], [e["caption"]], [e["foil"]]), {})
        for part in ("existence", "actant-swap")
        for e in load(folder / "data" / f"{part}.json").values()
        if e["mturk"]["caption"] >= 2
    ]


def bla(folder: Path) -> list[Raw]:
    items = []
    for part in ("active_passive", "coordination"):
        for entry in load(folder / "annotations" / f"{part}_captions.json"):
            group = entry["caption_group"][0]
            true, false = ([group[f"{kind}{i}"] for i in (1, 2)] for kind in ("True", "False"))
            photo = folder / "images" / f"{entry['image_id']}.jpg"
            items.append((part, foiled(photo, true, false), {}))
    return items


def vl_checklist(folder: Path) -> list[Raw]:
    items = []
    for file in sorted((folder / "data").rglob("*.json")):
        category = file.relative_to(folder / "data").with_suffix("").as_posix()
        home = folder / ("vg" if "/vg/" in f"/{category}/" else "swig")
        for name, texts in load(file):
            items.append((category, foiled(home / name, texts["POS"][:1], texts["NEG"][:1]), {}))
    return items


def spec(folder: Path) -> list[Raw]:
    items = []
    for subset in ("absolute_size", "existence"):
        for e in load(folder / subset / "image2text.json"):
            texts = list(e["keys"])
            true = [texts.pop(e["label"])]
            items.append((subset, foiled(folder / subset / e["query"], true, texts), {}))
    return items


def spec_images(folder: Path) -> list[Raw]:
    return [
        (
            subset,
            [(folder / subset / name, e["query"], i == e["label"])
             for i, name in enumerate(e["keys"])],
            {},
        )
        for subset in ("absolute_size", "existence")
        for e in load(folder / subset / "text2image.json")
    ]  # fmt: skip


def svo_probes(folder: Path) -> list[Raw]:
    items = []
    for row in rows(folder / "svo_probes.csv"):
        words = {"subject": "subj_neg", "verb": "verb_neg", "object": "obj_neg"}
        (kind,) = (word for word, column in words.items() if row[column] == "True")
        photos = [folder / "images" / f"{row[f'{k}_image_id']}.jpg" for k in ("pos", "neg")]
        members = [(photos[0], row["sentence"], True), (photos[1], row["sentence"], False)]
        items.append((kind, members, {}))
    return items


CHOICES: dict[str, tuple[Callable[[Path], Path], Callable[[Path], list[Raw]]]] = {
    "negbench": (foils.negbench, negbench),
    "ccneg": (foils.ccneg, ccneg),
    "half_truths": (foils.half_truths, half_truths),
    "whatsup": (foils.whatsup, whatsup),
    "valse": (foils.valse, valse),
    "bla": (foils.bla, bla),
    "vl_checklist": (foils.vl_checklist, vl_checklist),
    "spec": (lambda folder: foils.spec(folder, images=False), spec),
    "spec_images": (lambda folder: foils.spec(folder, text=False), spec_images),
    "svo_probes": (foils.svo_probes, svo_probes),
}


def scorer(encoder: Any) -> Callable[[Path, str], float]:
    def unit(vector: Any) -> np.ndarray:
        array = vector[0].double().numpy()
        return array / np.linalg.norm(array)

    @torch.inference_mode()
    def score(photo: Path, text: str) -> float:
        pixels = encoder.transform(decode_image(photo.read_bytes(), str(photo)))
        image = unit(encoder.encode_image(torch.from_numpy(pixels[None].copy())))
        return float(image @ unit(encoder.encode_text(encoder.tokenize([text]))))

    return score


def settings(name: str) -> dict[str, Any]:
    """Return the settings of a shipped benchmark that are about its number."""
    content = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    return {key: content[key] for key in ("tags", "together", "details") if key in content}


@pytest.mark.parametrize("name", CHOICES)
def test_accuracy_by_plain_loops(name, encoder, tmp_path):
    lay, read = CHOICES[name]
    raw = read(lay(tmp_path / name))
    index = open_index(tmp_path / name, tmp_path / "cache")
    assert index.kind == name
    benchmark = CaptionChoice(name=name, blind=None, **settings(name)).use(index)
    evaluation = benchmark.run(encoder)
    ours = {(o.metric, *o.by.items()): o.value for o in evaluation.outcomes}
    score = scorer(encoder)
    hits = []
    for _, members, _ in raw:
        scores = {True: [], False: []}
        for photo, text, true in members:
            scores[true].append(score(photo, text))
        hits.append(min(scores[True]) > max(scores[False]))
    assert ours["accuracy",] == pytest.approx(mean(hits))
    assert len(evaluation.items["item"]) == len(raw)
    assert np.asarray(evaluation.items["accuracy"]).tolist() == hits
    for category in {category for category, _, _ in raw} - {""}:
        of = [hit for hit, (part, _, _) in zip(hits, raw, strict=True) if part == category]
        assert ours["accuracy", ("category", category)] == pytest.approx(mean(of))
    for group in ("four", "pair") if name == "whatsup" else ():
        for part in (None, "A", "B"):
            together: dict[str, list[bool]] = {}
            for hit, (category, _, groups) in zip(hits, raw, strict=True):
                if groups and part in (None, category):
                    together.setdefault(groups[group], []).append(hit)
            by = [] if part is None else [("category", part)]
            expected = mean(map(all, together.values()))
            assert ours[f"accuracy_all_{group}", *by] == expected
            said = f"every item of its {group} right {100 * expected:.1f} %"
            assert part is not None or said in "\n".join(benchmark.summarise(evaluation))


def cola(folder: Path) -> list[tuple[Path, str, Path, str]]:
    entries = load(folder / "data" / "COLA_multiobjects_matching_benchmark.json")
    home = folder / "images"
    return [
        (home / first.rsplit("/")[-1], text_0, home / second.rsplit("/")[-1], text_1)
        for first, text_0, second, text_1 in entries
    ]


def colorswap(folder: Path) -> list[tuple[Path, str, Path, str]]:
    return [
        (folder / "data" / e["image_1"], e["caption_1"], folder / "data" / e["image_2"],
         e["caption_2"])
        for e in load(folder / "data" / "test.json")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "lay", "read"),
    [("cola", foils.cola, cola), ("colorswap", foils.colorswap, colorswap)],
)
def test_pairs_by_plain_loops(name, lay, read, encoder, tmp_path):
    raw = read(lay(tmp_path / name))
    index = open_index(tmp_path / name, tmp_path / "cache")
    evaluation = PairMatching(name=name, **settings(name)).use(index).run(encoder)
    ours = {o.metric: o.value for o in evaluation.outcomes if not o.by}
    score = scorer(encoder)
    text, image = [], []
    for first, text_0, second, text_1 in raw:
        of_first, of_second = (
            [score(photo, t) for t in (text_0, text_1)] for photo in (first, second)
        )
        text.append(of_first[0] > of_first[1] and of_second[1] > of_second[0])
        image.append(of_first[0] > of_second[0] and of_second[1] > of_first[1])
    assert ours["text_score"] == pytest.approx(mean(text))
    assert ours["image_score"] == pytest.approx(mean(image))  # COLA's number
    both = [left and right for left, right in zip(text, image, strict=True)]
    assert ours["group_score"] == pytest.approx(mean(both))


def test_false_captions_are_no_answers_of_a_retrieval(tmp_path):
    index = open_index(sugarcrepe(tmp_path / "sugarcrepe"), tmp_path / "cache")
    with pytest.raises(UserError, match="holds SugarCrepe, whose false captions would count as ri"):
        Retrieval(data="sugarcrepe").use(index)


def test_a_half_truth_is_worse_than_the_short_truth(encoder, tmp_path):
    """HT of the released script: the anchor strictly above the half-truth, by kind of detail."""
    raw = half_truths(foils.half_truths(tmp_path / "set"))
    score = scorer(encoder)
    for part, some in (("", raw), (":coco_qwen", raw[3:]), (":cc3m_qwen", raw[:3])):
        index = open_index(f"{tmp_path / 'set'}{part}", tmp_path / "cache")
        assert index.kind == "half_truths"
        evaluation = CaptionChoice(name="h", blind=None).use(index).run(encoder)
        ours = {(o.metric, *o.by.items()): o.value for o in evaluation.outcomes}
        for kind in ("entity", "relation"):
            of_kind = [members for category, members, _ in some if category == kind]
            hits = [
                score(photo, anchor) > score(photo, half)
                for (photo, anchor, _), _, (_, half, _) in of_kind
            ]
            assert ours["original_accuracy", ("category", kind)] == pytest.approx(mean(hits))
        whole = [score(*m[0][:2]) > score(*m[2][:2]) for _, m, _ in some]
        assert ours["original_accuracy",] == pytest.approx(mean(whole))
    with pytest.raises(UserError, match="has no split 'coco'"):
        open_index(f"{tmp_path / 'set'}:coco", tmp_path / "cache")
