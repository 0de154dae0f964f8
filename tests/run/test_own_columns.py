"""``data.fields`` and ``data.reader`` of every command, from words to a number."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

import cfaug
from cfaug.core.errors import UserError
from cfaug.report.results import RESULTS, read_results
from tests.data.layouts import TEXTS, edited, images, jsonl, table
from tests.run.conftest import (
    Place,
    Plan,
    commands_of,
    compose,
    output_of,
    refusal,
    refuse_as_unread,
)
from tests.scripts import ROOT

FIELDS = "data.fields={caption: headline, image: file}"
FEW = ("data.holdout=0", "data.validation=0", "trainer.checkpoint=last", "data.batch_size=4")
PAGE = ROOT / "docs" / "data.md"


@pytest.fixture
def plan(plan: Plan) -> Plan:
    return plan.of("data=folder", *FEW)


def photos(folder: Path, start: int = 0, columns: tuple[str, str] = ("file", "headline")) -> Path:
    images(folder, start=start)
    table(folder / "my.csv", columns, [(f"{name}.png", text) for name, text in TEXTS.items()])
    return folder / "my.csv"


def pairs(folder: Path) -> Path:
    images(folder, start=20)
    images(folder / "edits", start=30)
    rows = [{"image": f"{name}.png", "caption": text, "new": f"edits/{name}.png",
             "made": {"text": edited(text)}} for name, text in TEXTS.items()]  # fmt: skip
    jsonl(folder / "pairs.jsonl", rows)
    return folder / "pairs.jsonl"


def test_a_dry_run_says_which_columns_were_read_as_what(plan: Plan, tmp_path: Path) -> None:
    real = photos(tmp_path / "real")
    (described,), said = plan(f"data.real={real}", FIELDS, "data.cf_ratio=0")
    assert "columns read by data.fields: caption=headline, image=file" in said
    assert described["sources"]["real"]["renamed"] == ["caption=headline", "image=file"]
    assert described["sources"]["real"]["columns"] == ["file", "headline"]


def test_a_field_may_be_of_one_source_alone(plan: Plan, tmp_path: Path) -> None:
    real, cf = photos(tmp_path / "real"), pairs(tmp_path / "cf")
    words = [f"data.real={real}", f"data.counterfactual={cf}"]
    some = "cf_image: new, cf_caption: made.text, image: file, caption: headline"
    refused = plan.refused(*words, "data.cf_ratio=0.5", f"data.fields={{ignored: x, {some}}}")
    assert f"data.fields: no column 'x'; {real} has file, headline; {cf} has image, " in refused
    both = f"data.fields={{{some}}}"
    (described,), _ = plan(*words, "data.cf_ratio=0.5", both)
    assert described["counts"]["counterfactual"] > 0
    # An arm that does not read the pairs has their columns on its command line as well.
    (_,), said = plan(*words, "data.cf_ratio=0", both)
    assert f"note: data.fields: no column 'new' and none 'made.text'; {real} has" in said
    assert f"({cf} is not read by this run)" in said


def test_what_no_source_has_is_refused(plan: Plan, tmp_path: Path) -> None:
    real = photos(tmp_path / "real")
    words = [f"data.real={real}", "data.cf_ratio=0"]
    refused = plan.refused(*words, "data.fields={caption: headlin, image: file}")
    assert f"no column 'headlin' (did you mean headline?); {real} has headline, file" in refused
    assert "did you mean caption?" in plan.refused(*words, "data.fields={captoin: headline}")
    world = plan.of("data=shapescapes", "data.world.real_scenes=40", "data.cf_ratio=0")
    assert "data.fields would have no effect" in world.refused("data.fields={caption: title}")
    photos(tmp_path / "usual", columns=("image", "caption"))
    reader = "data.reader={_target_: tests.data.test_own_rows.Joined}"
    images(tmp_path / "classes/cat")
    images(tmp_path / "classes/dog", start=9)
    refused = plan.refused(f"data.real={tmp_path / 'classes'}", "data.cf_ratio=0", reader)
    assert "data.reader would have no effect: Joined recognises none of the sources" in refused


@pytest.mark.parametrize("target", ["os.system", "torch.load", "torch.nn.Linear", "pathlib.Path"])
def test_a_reader_is_a_class_of_readers(plan: Plan, tmp_path: Path, target: str) -> None:
    words = [f"data.real={photos(tmp_path / 'real')}", "data.cf_ratio=0"]
    assert "Nothing was called" in plan.refused(*words, f"data.reader={{_target_: {target}}}")


def test_only_what_reads_them_takes_them(tmp_path: Path) -> None:
    source = photos(tmp_path / "real")
    words = ["recipe=substitution", "stage=captions"]
    compose("generate", *words, "zoo=captions", f"data.source={source}", FIELDS)
    world = ["zoo=shapescapes", "data.source=shapescapes:real"]
    refuse_as_unread("generate", [*words, *world, FIELDS], "with a list, parquet or tars")
    reader = "data.reader={_target_: tests.data.test_own_rows.Joined}"
    compose("evaluate", "benchmark=retrieval", f"benchmark.data={source}", FIELDS, reader)


def test_python_opens_a_source_by_its_names(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    real = photos(tmp_path / "real")
    index = cfaug.open_source(real, {"data.fields": {"caption": "headline", "image": "file"}})
    assert [index.text(row) for row in range(3)] == list(TEXTS.values())
    with pytest.raises(UserError, match=r"no column 'nope'; .*my\.csv has file, headline"):
        cfaug.open_source(
            real, {"data.fields": {"group": "nope", "image": "file", "text": "headline"}}
        )


@pytest.mark.slow
def test_captions_are_generated_from_a_list_with_names_of_its_own(generate, tmp_path) -> None:
    source = tmp_path / "mine.jsonl"
    jsonl(source, [{"en": {"says": f"a red circle and {n} blue squares"}} for n in ("two", "six")])
    words = ["zoo=captions", "stage=captions", f"data.source={source}"]
    made, said = generate(*words, "data.fields={caption: en.says}", "dry_run=json")
    assert made["captions"] == 2
    assert "captions: 2 of" in said
    assert "columns read by data.fields: caption=en.says" in said
    assert "no column 'fr.says'" in generate.refused(*words, "data.fields={caption: fr.says}")


@pytest.mark.slow
def test_a_run_is_tested_by_its_names_and_by_those_of_the_command(
    place: Place, tmp_path: Path, monkeypatch
) -> None:
    real = photos(tmp_path / "real")
    usual = photos(tmp_path / "usual", columns=("image", "caption"))
    words = ["data=folder", *place.paths, "data.cf_ratio=0", *FEW, "trainer.max_steps=1", "seed=1"]

    def train(*more: str, code: int = 0) -> tuple[str, str]:
        return output_of(place.script("train"), [*words, *more], code=code)

    train(f"data.real={real}", FIELDS, "arm=own")
    train(f"data.real={usual}", "arm=usual")
    record = json.loads((place.root / "main/own/seed=1/run.json").read_text())
    assert record["identity"]["data.fields.caption"] == "headline"
    plain = json.loads((place.root / "main/usual/seed=1/run.json").read_text())
    assert (plain["identity"]["data.fields"], plain["identity"]["data.reader"]) == ({}, None)
    same = ("data.fields.caption", "data.fields.image")
    identity = {k: v for k, v in record["identity"].items() if k not in same}
    assert {**identity, "data.fields": {}} == plain["identity"]  # the same content

    test = photos(tmp_path / "test", 40, columns=("pic", "words"))
    ask = ["benchmark=retrieval", f"benchmark.data={test}", *place.paths, "name=main"]
    evaluate = place.script("evaluate")
    assert "none of the columns" in refusal(evaluate, ask)
    fields = "data.fields={caption: words, image: pic}"
    said = output_of(evaluate, [*ask, fields])[1]
    assert "columns read by data.fields: image=pic, caption=words" in said.replace(
        "caption=words, image=pic", "image=pic, caption=words"
    )
    rows = [read_results(place.root / f"main/{arm}/seed=1" / RESULTS) for arm in ("own", "usual")]
    assert [row.value for row in rows[0]] == [row.value for row in rows[1]]
    # A run's own source has the run's names, whatever the command says.
    ask[1] = f"benchmark.data={real}"
    output_of(evaluate, [*ask, "arm=own"])
    assert "no column 'nope'" in refusal(
        evaluate, [*ask[:1], f"benchmark.data={test}", *place.paths, "name=main",
                   "data.fields={caption: words, image: pic, group: nope}"])  # fmt: skip


def posts(folder: Path) -> Path:
    images(folder)
    rows = [{"id": name, "file": f"{name}.png", "post": {"headline": text, "place": "Rome"}}
            for name, text in TEXTS.items()]  # fmt: skip
    jsonl(folder / "POSTS.jsonl", rows)
    return folder / "POSTS.jsonl"


@pytest.mark.slow
def test_the_commands_of_the_page(place: Place, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    source = posts(tmp_path)
    photos(tmp_path, columns=("picture", "words")).rename("TEST.csv")
    first, second = [c for c in commands_of(PAGE) if any("data.fields" in word for word in c[1])]
    few = [*FEW, *place.paths]
    train, evaluate = place.script("train"), place.script("evaluate")
    said = output_of(train, [*first[1], *few])[1]
    assert "caption=post.headline, image=file; other columns kept: id, post" in said

    words = ["trainer.max_steps=1", "seed=1", *few]
    output_of(train, [*(word for word in first[1] if "dry_run" not in word), *words])
    said = output_of(evaluate, [*second[1], *place.paths])[1]
    assert "test: 3 images of TEST.csv" in said
    assert "columns read by data.fields: caption=words, image=picture" in said

    (text,) = re.findall(r"```python\n(from cfaug.core.types.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/posts.py").write_text(text)
    (by_class,) = re.findall(r"`(--config-dir mine 'data.reader=.*?)`", PAGE.read_text())
    words += ["data=folder", "data.cf_ratio=0", "name=posts", "arm=own", f"data.real={source}"]
    assert "read by posts.Posts" in output_of(train, [*words, *shlex.split(by_class)])[1]
    record = json.loads((place.root / "posts/own/seed=1/run.json").read_text())
    assert record["identity"]["data.reader._target_"] == "posts.Posts"
    ask = ["benchmark=retrieval", f"benchmark.data={source}", *place.paths, "name=posts"]
    assert "'data.reader={_target_:posts.Posts}'" in refusal(evaluate, ask)
    said = output_of(evaluate, [*ask, *shlex.split(by_class)])[1]
    assert "first: 'a dog, running (Rome)'" in said
