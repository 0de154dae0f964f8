"""A list of images and classes is asked as classification."""

from __future__ import annotations

import json

import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.evaluation.classification import Classification
from cfaug.evaluation.context import EvaluationContext
from tests.data.making import noise_image


def lay(folder, lines, name="labels.csv", images=4):
    folder.mkdir(parents=True)
    for number in range(images):
        (folder / f"{number}.png").write_bytes(noise_image(number))
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder


CSV = [
    "image,label,site",
    "0.png,polar_bear,a",
    "1.png,zebra,b",
    "2.png,polar_bear,a",
    "3.png,zebra,a",
]


def test_every_image_has_its_class(tmp_path):
    index = open_index(lay(tmp_path / "own", CSV), tmp_path / "cache")
    assert index.kind == "label_list"
    assert [index.label(row) for row in range(4)] == ["polar_bear", "zebra"] * 2
    assert index.text(0) == "a photo of a polar bear"
    assert len(set(index.groups.tolist())) == 4
    assert index.extra_row(1) == {"site": "b"}
    lines = [json.dumps({"file_name": f"{n}.png", "class": "ab"[n % 2]}) for n in range(4)]
    index = open_index(lay(tmp_path / "other", lines, "metadata.jsonl"), tmp_path / "cache")
    assert [index.label(row) for row in range(4)] == ["a", "b"] * 2


def test_a_caption_beside_it_is_read_as_before(tmp_path):
    lines = ["image,label,caption", *(f"{n}.png,x,text {n}" for n in range(4))]
    index = open_index(lay(tmp_path / "own", lines, "captions.csv"), tmp_path / "cache")
    assert index.kind == "caption_list"
    assert index.text(3) == "text 3"


def test_numbers_are_read_and_refused_where_names_are_needed(tmp_path):
    """N6: ``0`` was refused here, ``0.0`` was not; a file of names may explain either."""
    lines = ["image,label", *(f"{n}.png,{n % 2}" for n in range(4))]
    index = open_index(lay(tmp_path / "own", lines), tmp_path / "cache")
    records = [json.dumps({"image": f"{n}.png", "label": n % 2}) for n in range(4)]
    same = open_index(lay(tmp_path / "two", records, "labels.jsonl"), tmp_path / "cache")
    assert same.hash == index.hash
    labels = [index.label(row) for row in range(4)]
    assert labels == ["0", "1", "0", "1"]
    asked = Classification(str(tmp_path / "own"))
    context = EvaluationContext(open=lambda name: index, has_world=False, held_out=tuple)
    with pytest.raises(UserError, match=r"2 classes are called by numbers \(0, 1\), not by names"):
        asked.open(context)
    (tmp_path / "own" / "classnames.txt").write_text("cat\ndog\n")
    [benchmark] = asked.open(context)
    assert benchmark.class_names == ["cat", "dog"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({2: "0.png,zebra,a"}, "duplicated image '0.png'"),
        ({2: "7.png,zebra,a"}, "7.png"),
        ({2: "../secret.png,zebra,a"}, "leads out of"),
        ({2: "1.png,,a"}, "the class is missing"),
        ({2: "1.png,polar_bear,a", 4: "3.png,polar_bear,a"}, "polar_bear"),
    ],
)
def test_what_is_wrong_is_named(changed, said, tmp_path):
    lines = [changed.get(number, line) for number, line in enumerate(CSV)]
    with pytest.raises(UserError, match=said):
        open_index(lay(tmp_path / "own", lines), tmp_path / "cache")


@pytest.mark.slow
def test_a_checkpoint_is_asked(tmp_path, script, capsys):
    lines = ["image,label", *(f"{n}.png,{'ball' if n % 2 else 'star'}" for n in range(4))]
    folder = lay(tmp_path / "own", lines)
    words = [f"paths.runs={tmp_path / 'runs'}", f"paths.shards={tmp_path / 'shards'}"]
    asked = ["weights=zoo:clip-0", "benchmark=classification", f"benchmark.data={folder}"]
    assert script("evaluate")([*words, *asked]) == 0
    assert "own_classification (n=4): acc1" in capsys.readouterr().out
