"""Exports, read back by those they are for: datasets, CLIP_benchmark, open_clip."""

from __future__ import annotations

import functools
import importlib.util
import io
import json
import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from cfaug.core import cards
from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.export import (
    PublisherStatements,
    export_clip_benchmark,
    export_hub,
    hub,
)
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from cfaug.data.sources import import_sets
from tests.data.making import noise_image, pair

ABOUT = PublisherStatements("Cats into dogs", license="cc-by-4.0", description="Pairs for a test.")


def generated(number: int, members: int = 2) -> CounterfactualSet:
    """Return a set as ``generate.py`` leaves it."""
    draw = {"seed": str(2**63 + number), "p": 0.1 * (number % 9 + 1), "cfg": 9.5, "candidate": 4}
    kinds = ("PNG", "JPEG", "WEBP")
    return CounterfactualSet(
        key=f"cat-{number:04d}",
        group=f"photo-{number // 2}",
        members=tuple(
            Member(
                f"a {'cat' if i == 0 else f'dog {i}'} on mat {number}", str(i), f"c{number}",
                Edit("noun", "cat", f"dog {i}") if i else None, extra=draw,
            )
            for i in range(members)
        ),
        images={str(i): noise_image(9 * number + i, (10, 8), kinds[i % 3]) for i in range(members)},
        scores={"sim_0": 0.25, "sim_1": 0.26, "sim_image": 0.8, "sim_direction": 0.01 * number,
                "report_direction": 0.3},
        provenance={"recipe": "coco_cf", "zoo": "shape|scapes", "caption": {"rank": 3},
                    "models": {"scorer": {"weights": "clip-0", "dtype": "float32"}}},
    )  # fmt: skip


def shared(number: int) -> CounterfactualSet:
    """Return a photo with three captions, one of them over several lines."""
    texts = ("a cat", "the\tcat\u2028on a mat ", "cat\r\nmat")
    members = tuple(Member(text, "photo", f"p{number}") for text in texts)
    images = {"photo": noise_image(number, kind="JPEG")}
    return CounterfactualSet(f"photo-{number}", f"g{number}", members, images)


# Hugging Face parquet.


@pytest.mark.slow
@pytest.mark.parametrize("members", [2, 5])
def test_an_export_holds_everything(tmp_path, members):
    sets = [generated(n, members) for n in range(230)]
    facts = export_hub(iter(sets), tmp_path / "hub", ABOUT)
    assert list(import_sets(tmp_path / "hub")) == sets
    bare = [shared(0), shared(1), pair(3)]  # sets that share an image, and say little
    export_hub(bare, tmp_path / "bare", ABOUT)
    assert list(import_sets(tmp_path / "bare")) == bare
    assert (facts.sets, facts.members, len(facts.groups)) == (230, 230 * members, 115)
    index = open_index(tmp_path / "hub", tmp_path / "cache")
    assert (index.kind, len(index)) == ("pairs" if members == 2 else "members", 230 * members)


def test_columns_are_what_people_read(tmp_path):
    export_hub([generated(n) for n in range(3)], tmp_path / "hub", ABOUT, split="test")
    (file,) = (tmp_path / "hub" / "data").iterdir()
    assert file.name == "test-00000-of-00001.parquet"
    row = pq.read_table(file).to_pylist()[2]
    assert json.loads(row.pop("about"))["scores"]["report_direction"] == 0.3
    images = [row.pop(f"image_{i}") for i in (0, 1)]
    assert [image["path"] for image in images] == ["cat-0002_0.png", "cat-0002_1.jpg"]
    assert [image["bytes"] for image in images] == list(generated(2).images.values())
    assert row == {
        "id": "cat-0002", "group": "photo-1", "caption_0": "a cat on mat 2",
        "caption_1": "a dog 1 on mat 2", "edit_kind": "noun", "edit_before": "cat",
        "edit_after": "dog 1", "sim_0": 0.25, "sim_1": 0.26, "sim_image": 0.8,
        "sim_direction": 0.02, "report_direction": 0.3, "p": 0.1 * 3, "cfg": 9.5,
        "seed": str(2**63 + 2),
    }  # fmt: skip


def test_columns_follow_the_names_of_the_scores(tmp_path):
    """Of the first set; a name that a column has already stays where everything is."""
    sets = [replace(generated(0), scores={"fluency": -3.5, "caption_0": 1.0}), generated(1)]
    export_hub(sets, tmp_path / "hub", ABOUT)
    (file,) = (tmp_path / "hub" / "data").iterdir()
    rows = pq.read_table(file).to_pylist()
    assert [row["fluency"] for row in rows] == [-3.5, None]
    assert "sim_0" not in rows[0]
    assert rows[0]["caption_0"] == "a cat on mat 0"
    assert list(import_sets(tmp_path / "hub")) == sets
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "| `fluency` | float64 | a score of the set" in card


def features(card: str) -> dict[str, object]:
    return yaml.safe_load(card.split("---\n")[1])


@pytest.mark.parametrize("layout", ["pairs", "members"])
def test_datasets_loads_it_as_the_card_and_the_schema_say(tmp_path, layout):
    import datasets

    sets = [generated(n) for n in range(5)]
    export_hub(sets, tmp_path / "hub", ABOUT, layout=layout)
    loaded = datasets.load_dataset(str(tmp_path / "hub"), cache_dir=str(tmp_path / "cache"))
    table = loaded["train"]
    listed = features((tmp_path / "hub" / "README.md").read_text())["dataset_info"]["features"]
    assert table.features == datasets.Features._from_yaml_list(listed)
    (file,) = (tmp_path / "hub" / "data").iterdir()
    assert table.features == datasets.Features.from_arrow_schema(pq.read_schema(file))
    pairs = layout == "pairs"
    image, caption = ("image_1", "caption_1") if pairs else ("image", "caption")
    rows = list(table) if pairs else list(table)[1::2]
    assert table.features[image] == datasets.Image()
    assert [row[caption] for row in rows] == [cf_set.members[1].text for cf_set in sets]
    theirs, ours = rows[1][image], Image.open(io.BytesIO(sets[1].images["1"]))
    assert list(theirs.convert("RGB").getdata()) == list(ours.convert("RGB").getdata())


def test_files_are_cut_by_size_and_the_same_again(tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "BYTES_PER_FILE", 1)
    sets = [generated(n) for n in range(250)]
    for name in ("a", "b"):
        export_hub(iter(sets), tmp_path / name, ABOUT)
    files = sorted((tmp_path / "a" / "data").iterdir())
    assert [f.name for f in files] == [f"train-{n:05d}-of-00003.parquet" for n in range(3)]
    for file in (tmp_path / "a").rglob("*.*"):
        assert file.read_bytes() == (tmp_path / "b" / file.relative_to(tmp_path / "a")).read_bytes()
    assert list(import_sets(tmp_path / "a")) == sets


@pytest.mark.slow
def test_few_images_are_held(tmp_path):
    """A million sets pass through the memory of a row group."""
    import tracemalloc

    data = noise_image(1, (256, 256))

    def many() -> Iterator[CounterfactualSet]:
        for number in range(400):
            copied = bytearray(data)  # a copy each; the tail of a PNG may hold anything
            yield replace(pair(number), images={f"image{i}": bytes(copied) for i in (0, 1)})

    tracemalloc.start()
    export_hub(many(), tmp_path / "hub", ABOUT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.6 * 800 * len(data)


def test_the_card_says_what_is_known_and_marks_the_rest(tmp_path):
    export_hub([generated(n) for n in range(4)], tmp_path / "hub", ABOUT)
    card = (tmp_path / "hub" / "README.md").read_text()
    head = features(card)
    assert head["license"] == "cc-by-4.0"
    assert head["size_categories"] == ["n<1K"]
    assert head["configs"][0]["data_files"] == [{"split": "train", "path": "data/train-*.parquet"}]
    assert head["dataset_info"]["splits"][0]["num_examples"] == 4
    assert "4 sets with 8 image-text pairs, from 2 groups" in card
    assert "| `coco_cf, shape\\|scapes` | 4 |" in card
    assert "clip-0" in card
    assert "| `sim_direction` | 4 | 0.000 | 0.015 | 0.030 |" in card
    assert "**To be written:** where they came from" in card
    sheet = (tmp_path / "hub" / "DATASHEET.md").read_text()
    for part in ("Motivation", "Composition", "Collection process", "Preprocessing", "Uses",
                 "Distribution", "Maintenance"):  # fmt: skip
        assert f"## {part}" in sheet
    assert "Pairs for a test." in sheet
    assert "scores are logged beside the shards" in sheet
    assert "`noun` (4)" in sheet
    assert "**Who funded the creation of the dataset?**\n\n**To be written.**" in sheet


def test_a_card_without_anything_known(tmp_path):
    export_hub([shared(0)], tmp_path / "hub", PublisherStatements("Photos"))
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "license" not in features(card)
    assert "**To be written:** choose one." in card
    assert "the sets do not say how they were made" in card
    assert "selected the sets" not in card
    assert "synthetic" not in features(card)["tags"]
    sheet = (tmp_path / "hub" / "DATASHEET.md").read_text()
    assert "logged beside the shards" not in sheet
    assert "**Is the software available?**\n\n**To be written.**" in sheet


@pytest.mark.parametrize(
    "name", ["---", "a\n---\nb: c", "{{ 7 * 7 }}", "{% raw %}", "`|\n# x", "<script>", "y: ["]
)
def test_no_name_breaks_the_metadata_the_markdown_or_the_template(tmp_path, name):
    """The publisher's name, and names in the sets: recipes, models, scores, kinds of edits."""
    from huggingface_hub import DatasetCard

    about = replace(ABOUT, name=name)
    sets = []
    for kind, cf_set in (("plain", generated(0)), ("hostile", generated(0))):
        text = "plain" if kind == "plain" else name
        members = (cf_set.members[0], replace(cf_set.members[1], edit=Edit(text, "cat", "dog")))
        provenance = {"recipe": text, "models": {text: text}}
        sets.append(replace(cf_set, members=members, scores={text: 0.5}, provenance=provenance))
    export_hub(sets[:1], tmp_path / "plain", replace(about, name="plain"))
    export_hub(sets[1:], tmp_path / "hub", about)
    card = DatasetCard.load(tmp_path / "hub" / "README.md")
    assert card.data.pretty_name == name
    assert card.data.size_categories == ["n<1K"]
    assert name in [feature["name"] for feature in card.data.dataset_info["features"]]
    for file in ("README.md", "DATASHEET.md"):
        said, plain = ((tmp_path / f / file).read_text() for f in ("hub", "plain"))
        line, code = " ".join(name.split()), cards.code(name)
        body = said.rpartition("\n---\n\n")[2].replace(code, "`plain`")
        assert body.replace(f" {line}\n", " plain\n") == plain.rpartition("\n---\n\n")[2]


def test_every_name_of_a_template_is_given(tmp_path, monkeypatch):
    """Jinja prints nothing for a name that it does not know."""
    import jinja2
    from jinja2 import meta

    from cfaug.data.export import dataset_card as card

    given = []
    render = jinja2.Template.render

    def noting(template, **values):
        given.append(values)
        return render(template, **values)

    monkeypatch.setattr(jinja2.Template, "render", noting)
    export_hub([generated(0)], tmp_path / "hub", ABOUT)
    assert len(given) == 2
    for values in given:
        name = "card" if "todo" in values else "datasheet"
        text = (card.TEMPLATES / f"{name}.md").read_text()
        assert meta.find_undeclared_variables(jinja2.Environment().parse(text)) <= set(values)


def test_what_cannot_be_exported(tmp_path):
    with pytest.raises(UserError, match="nothing to export"):
        export_hub([], tmp_path / "a", ABOUT)
    with pytest.raises(UserError, match=r"cat-0001.*3 members.*export\.layout=members"):
        export_hub([generated(0), generated(1, 3)], tmp_path / "b", ABOUT)
    theirs = tmp_path / "theirs/notes.txt"
    theirs.parent.mkdir()
    theirs.write_text("years")
    for export in (lambda f: export_hub([pair(0)], f, ABOUT),
                   lambda f: export_clip_benchmark([pair(0)], f)):  # fmt: skip
        assert not (tmp_path / "b").exists()
        with pytest.raises(UserError, match=r"holds what cfaug did not write.*notes\.txt"):
            export(theirs.parent)
    assert theirs.read_text() == "years"
    with pytest.raises(UserError, match="nothing to export"):
        export_clip_benchmark([], tmp_path / "c")


# CLIP_benchmark.


def test_clip_benchmark_reads_its_folder(tmp_path, monkeypatch):
    from clip_benchmark.datasets import builder

    from cfaug.data.export import hub as clip_benchmark

    monkeypatch.setattr(clip_benchmark, "IMAGES_PER_SHARD", 5)
    sets = [generated(n, 3) for n in range(3)] + [shared(n) for n in range(2)]
    counts = export_clip_benchmark(iter(sets), tmp_path / "wds")
    assert counts == {"images": 11, "captions": 15, "shards": 3}
    theirs = builder.build_dataset(
        "wds/cats", root=str(tmp_path / "wds"), transform=lambda image: image.convert("RGB"),
        split="test", task="zeroshot_retrieval",
    )  # fmt: skip
    read = list(theirs)
    texts = [[m.text] for cf_set in sets[:3] for m in cf_set.members]
    assert [text for _, text in read] == texts + 2 * [["a cat", "the cat on a mat", "cat mat"]]
    images = [data for cf_set in sets for data in cf_set.images.values()]
    for (image, _), data in zip(read, images, strict=True):
        assert image.tobytes() == Image.open(io.BytesIO(data)).convert("RGB").tobytes()


def test_our_reader_takes_it_too_and_keeps_the_groups(tmp_path):
    sets = [generated(n) for n in range(4)] + [shared(0)]
    export_clip_benchmark(sets, tmp_path / "wds")
    write_shards(sets, tmp_path / "shards")
    index = open_index(tmp_path / "wds", tmp_path / "cache")
    ours = open_index(tmp_path / "shards", tmp_path / "cache")
    assert index.kind == "clip_benchmark"
    assert index.groups.tolist() == ours.groups.tolist()
    assert [index.read_image(r) for r in range(11)] == [ours.read_image(r) for r in range(11)]


# open_clip's own loader, on our shards as they are.


def open_clip_data() -> types.ModuleType:
    """Import ``open_clip_train.data``; pandas, which it wants for CSV lists only, may be absent."""
    for name in ("torchvision.datasets", "webdataset"):  # they ask for pandas in ways of their own
        importlib.import_module(name)
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("pandas") is None:
            patch.setitem(sys.modules, "pandas", types.ModuleType("pandas"))
        return importlib.import_module("open_clip_train.data")


def open_clip_arguments(shards: Path, **changes: object) -> types.SimpleNamespace:
    files = str(shards / "{00000..00002}.tar")
    return types.SimpleNamespace(
        **{"train_data": files, "val_data": files, "train_num_samples": 18, "val_num_samples": 18,
           "train_data_upsampling_factors": None, "dataset_resampled": False, "batch_size": 3,
           "workers": 0, "world_size": 1, "seed": 0} | changes
    )  # fmt: skip


def test_open_clip_reads_our_shards(tmp_path, monkeypatch):
    """Every example comes once, as its image and caption.

    Since WebDataset 0.2.96, a shard ends with a marker that open_clip's training loader takes for a
    file (KeyError 'fname'; webdataset issue 384, open_clip issue 935). ``eof_value=None`` is the
    way round it that those issues give; the shards have no part in it.
    """
    data = open_clip_data()
    sets = [generated(n) for n in range(9)]
    write_shards(sets, tmp_path / "shards", sets_per_shard=3)
    expander = functools.partial(data.tar_file_expander, eof_value=None)
    monkeypatch.setattr(data, "tar_file_expander", expander)
    import torch

    info = data.get_wds_dataset(
        open_clip_arguments(tmp_path / "shards"),
        lambda image: torch.tensor(list(image.convert("RGB").tobytes())),
        is_train=True,
        tokenizer=lambda text: [text],
    )
    samples = [
        (text, bytes(image.tolist()))
        for images, texts in info.dataloader
        for image, text in zip(images, texts, strict=True)
    ]
    wanted = [
        (m.text, Image.open(io.BytesIO(cf_set.images[m.image_name])).convert("RGB").tobytes())
        for cf_set in sets
        for m in cf_set.members
    ]
    assert sorted(samples) == sorted(wanted)


def test_a_failed_export_leaves_nothing_and_a_finished_one_stays(tmp_path):
    folder = tmp_path / "hub"
    with pytest.raises(UserError, match="grids of two attributes"):
        export_hub([generated(0)], folder, ABOUT, layout="grid")
    assert not folder.exists()
    export_hub([generated(0)], folder, ABOUT)
    with pytest.raises(UserError, match="holds an export for the Hub already"):
        export_hub([generated(0)], folder, ABOUT)
    export_hub([generated(0)], folder, ABOUT, replace=True)
    reading = open_index(folder, tmp_path / "cache").reading
    assert reading is not None
    assert {"id", "group", "about"} <= set(reading.used)
