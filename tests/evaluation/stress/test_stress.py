"""The stress test on hand-laid sets, against one image at a time and plain Python."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.protocols import Benchmark
from cfaug.core.types import Edit
from cfaug.data.index import open_index
from cfaug.data.shards.shards import read_sets, write_shards
from cfaug.evaluation.context import EvaluationContext
from cfaug.evaluation.stress.stress import Stress
from cfaug.evaluation.stress.stress_sets import read_joined
from cfaug.models.task_specs import ImageClassification
from cfaug.report.items import Items, write_items
from tests.evaluation.drawn_questions import rows
from tests.evaluation.joined import CLASSES, joined_set, joined_sets, picture, random_sets
from tests.models import tiny


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tiny.save_classifier(tmp_path_factory.mktemp("weights") / "classifier")
    return ImageClassification(str(folder)).load()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("stress")
    write_shards(joined_sets(), root / "lance")
    write_shards(random_sets(), root / "lance_r")
    return root


def opener(root):
    return EvaluationContext(
        open=lambda name: open_index(name, root / "index"), has_world=False, held_out=lambda: None
    )


@pytest.fixture(scope="module")
def stress(folders):
    node = Stress(str(folders / "lance"), random=str(folders / "lance_r"), parts=["kind", "class"])
    (opened,) = node.open(opener(folders))
    return opened


@pytest.fixture(scope="module")
def evaluated(stress, classifier):
    return stress.run(classifier)


class Twin:
    """What the items should be: every image by itself, nothing vectorised."""

    def __init__(self, model):
        self.model = model

    def probabilities(self, encoded):
        pixels = self.model.transform(decode_image(encoded, "it"))[None].copy()
        with torch.inference_mode():
            logits = self.model.classify(torch.from_numpy(pixels))[0].double().tolist()
        top = max(logits)
        raised = [math.exp(value - top) for value in logits]
        return {c: r / sum(raised) for c, r in zip(self.model.classes, raised, strict=True)}

    def describe(self, encoded, label):
        p = self.probabilities(encoded)
        rank = 1 + sum(value > p[label] for value in p.values())
        best = sorted(p, key=p.get, reverse=True)[:5]
        return {"p": p[label], "rank": rank, "acc1": rank <= 1, "acc5": rank <= 5, "top": best}


def test_every_item_is_what_one_image_at_a_time_gives(folders, stress, evaluated, classifier):
    assert isinstance(stress, Benchmark)
    assert isinstance(classifier, stress.needs)
    items, twin, seen = rows(evaluated), Twin(classifier), set()
    for folder, named in (("lance", "edited"), ("lance_r", "random")):
        for photo_set in read_sets(folders / folder):
            said = [
                twin.describe(photo_set.images[m.image_name], m.label) for m in photo_set.members
            ]
            for n, member in enumerate(photo_set.members):
                part = ("original", "reconstruction")[n] if n < 2 else named
                if folder == "lance_r" and n < 2:
                    continue
                row = items[f"{part}/{photo_set.key}_{n}"]
                seen.add(row["item"])
                assert row["set"] == part
                assert row["photo"] == f"original/{photo_set.key}_0"
                assert row["photos"] == ("edited" if len(photo_set.members) > 2 else "unedited")
                assert (row["class"], row["class_name"]) == (member.label, member.label)
                assert (row["text_before"], row["text"]) == (photo_set.members[0].text, member.text)
                assert (row["key"], row["member"]) == (photo_set.key, n)
                edit = member.edit or Edit("original", "", "")
                assert [row[k] for k in ("kind", "before", "after")] == [
                    edit.kind, edit.before, edit.after,
                ]  # fmt: skip
                for name in ("p", "rank", "acc1", "acc5"):
                    assert row[name] == pytest.approx(float(said[n][name]), abs=1e-5)
                assert [row[f"top{k}"] for k in range(1, 6)] == said[n]["top"]
                assert sum(row[f"top{k}_p"] for k in range(1, 6)) == pytest.approx(1)
                if n == 0:
                    assert math.isnan(row["p_photo"])
                    assert math.isnan(row["paired_drop1"])
                    continue
                assert row["p_photo"] == pytest.approx(said[0]["p"], abs=1e-5)
                assert row["p_reconstruction"] == pytest.approx(said[1]["p"], abs=1e-5)
                assert row["p_drop"] == row["p_photo"] - row["p"]
                assert row["delta_p"] == abs(row["p_drop"])
                for k in (1, 5):
                    hits = [float(answer[f"acc{k}"]) for answer in said]
                    assert row[f"photo_acc{k}"] == hits[0]
                    assert row[f"paired_drop{k}"] == hits[0] - hits[n]
                    net = row[f"net_drop{k}"]
                    assert math.isnan(net) if n == 1 else net == hits[1] - hits[n]
                assert row["f"] == member.extra.get("p") or n < 2
    assert seen == set(items)
    assert {row["acc1"] for row in items.values()} == {0.0, 1.0}
    assert {row["prompt"] for row in items.values()} == {None, "weather"}


def test_outcomes_are_means_of_the_items_and_say_what_is_better(evaluated):
    items = list(rows(evaluated).values())
    kinds = set()
    for outcome in evaluated.outcomes:
        chosen = [r for r in items if all(r[k] == v for k, v in outcome.by.items())]
        assert outcome.better == (
            "higher" if "acc" in outcome.metric or outcome.metric == "p" else "lower"
        )
        kinds.add(tuple(outcome.by))
        if outcome.metric in ("drop1", "drop5"):
            name = outcome.metric.replace("drop", "acc")
            photos = [r[name] for r in items if r["set"] == "original" and r["photos"] == "edited"]
            expected = sum(photos) / len(photos) - sum(r[name] for r in chosen) / len(chosen)
            assert outcome.value == pytest.approx(expected)
            assert outcome.n == len(chosen)
            continue
        values = [r[outcome.metric] for r in chosen if not math.isnan(r[outcome.metric])]
        assert (outcome.value, outcome.n) == (pytest.approx(sum(values) / len(values)), len(values))
    assert kinds == {("set",), ("set", "photos"), ("set", "kind"), ("set", "class")}
    by_set = {o.by["set"]: o.n for o in evaluated.outcomes if o.metric == "acc1" and len(o.by) == 1}
    assert by_set == {"original": 9, "reconstruction": 9, "edited": 16, "random": 7}
    (t,) = {o.n for o in evaluated.outcomes if o.by == {"set": "original", "photos": "edited"}}
    assert t == 7  # photos 0 and 5 have no edit


def test_each_distinct_image_is_classified_once(folders, tmp_path, classifier):
    """The photos of both folders, and an edit that shows the photo itself, are one image each."""
    write_shards([joined_set(1, [("adjective", "red", "same")])], tmp_path / "same")
    node = Stress(str(folders / "lance"), more={"again": str(folders / "lance"),
                                                "same": str(tmp_path / "same")})  # fmt: skip

    class Counting:
        transform, classes, seen = classifier.transform, classifier.classes, 0
        training = False

        def classify(self, pixels):
            self.seen += len(pixels)
            return classifier.classify(pixels)

    model = Counting()
    (opened,) = node.open(opener(folders))
    evaluation = opened.run(model)
    assert model.seen == 9 + 9 + 16
    items = rows(evaluation)
    assert items["same/photo-1_2"]["delta_p"] == 0
    assert items["again/photo-1_2"]["p"] == items["edited/photo-1_2"]["p"]


def test_a_restricted_choice(folders, classifier, evaluated):
    def asked(**settings):
        (benchmark,) = Stress(str(folders / "lance"), **settings).open(opener(folders))
        return benchmark, rows(benchmark.run(classifier))

    usual, _ = asked()
    restricted, few = asked(restrict=True)
    assert usual.data_hash != restricted.data_hash
    free = rows(evaluated)
    changed = 0
    for name, row in few.items():
        three = {free[name][f"top{k}"]: free[name][f"top{k}_p"] for k in range(1, 6)}
        three = {c: p for c, p in three.items() if c in ("ball", "cube", "star")}
        assert row["p"] == pytest.approx(three[row["class"]] / sum(three.values()))
        assert "acc5" not in row
        assert row["rank"] <= free[name]["rank"]
        changed += row["acc1"] != free[name]["acc1"]
    assert changed


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ([joined_set(0, []), joined_set(1, [])], "none of its 4 images is edited"),
        ([joined_set(0, [("domain", "photo", "sketch")], label="dog")], "'dog' is not one of them"),
    ],
)
def test_what_cannot_be_asked_is_said(sets, said, tmp_path, classifier):
    write_shards(sets, tmp_path / "sets")
    with pytest.raises(UserError, match=said):
        Stress(str(tmp_path / "sets")).open(opener(tmp_path))[0].run(classifier)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"parts": ["colour"]}, r"parts\[0\]=colour: choose from kind, class"),
        ({"more": {"random": "x"}}, r"the name 'random' is taken"),
        ({"templates": []}, r"benchmark\.templates is empty"),
        ({"templates": ["a photo"]}, r"'a photo' has no {c}, where the class name goes"),
        ({"control": "nothing"}, r"control=nothing: no edit is of that kind; there are adj.*, dom"),
    ],
)
def test_invalid_settings_are_refused(folders, settings, said):
    with pytest.raises(UserError, match=said):
        Stress(str(folders / "lance"), **settings).open(opener(folders))


def test_photos_that_only_another_folder_has_edits_of_are_items_too(tmp_path, classifier):
    """LANCE-R made of more photos than LANCE: the page shows them, and no drop is another."""
    write_shards(joined_sets(6), tmp_path / "lance")
    outcomes = {}
    for photos in (6, 12):
        write_shards(random_sets(photos), tmp_path / str(photos))
        node = Stress(str(tmp_path / "lance"), random=str(tmp_path / str(photos)))
        (benchmark,) = node.open(opener(tmp_path))
        evaluation = benchmark.run(classifier)
        outcomes[photos] = {(o.metric, *o.by.items()): (o.value, o.n) for o in evaluation.outcomes}
    items = rows(evaluation)
    new = [name for name in items if name.startswith("original/") and int(name[15:-2]) > 5]
    assert [name[9:] for name in new] == [f"photo-{n}_0" for n in range(6, 10)]  # the edited ones
    assert {items[name]["photos"] for name in new} == {"unedited"}
    assert all(items[row["photo"]]["set"] == "original" for row in items.values())
    edited = {key for key in outcomes[6] if ("set", "edited") in key or len(key) > 2}
    assert len(edited) > 10
    for key in edited - {key for key in outcomes[6] if ("set", "random") in key}:
        assert outcomes[6][key] == outcomes[12][key], key
    write_items(tmp_path / "run", Items(benchmark.name, "w", benchmark.data_hash, evaluation.items))
    assert "original/photo-9_0" not in benchmark.write_page(tmp_path / "run", "net").read_text()
    assert "random/photo-9_2" in (tmp_path / "run" / "stress.html").read_text()


def test_folders_of_different_photos_are_refused(tmp_path):
    write_shards(joined_sets(3), tmp_path / "lance")
    edits = [("random", "beach", "table")]
    write_shards([joined_set(1, edits, label="star")], tmp_path / "other")
    node = Stress(str(tmp_path / "lance"), more={"other": str(tmp_path / "other")})
    with pytest.raises(UserError, match=r"photo-1_0 is of the class 'cube' in .*lance, and of 'st"):
        node.open(opener(tmp_path))


def test_sets_without_a_photo_or_a_class_are_refused(tmp_path):
    whole = joined_set(0, [("domain", "photo", "sketch")])
    headless = replace(whole, members=whole.members[1:])
    unlabelled = replace(whole, members=tuple(replace(m, label=None) for m in whole.members))
    for n, (broken, said) in enumerate(
        [
            (headless, "1 of 1 sets do not have exactly one photo"),
            (unlabelled, "photos have no class"),
        ]
    ):
        write_shards([broken], tmp_path / str(n))
        index = open_index(tmp_path / str(n), tmp_path / "index")
        with pytest.raises(UserError, match=said):
            read_joined("edited", index, None, "reconstruction")


def listed_sets(folder, columns, edits=2):
    """Write photos with their edits and a list of them, a line a set."""
    lines = []
    for number in range(4):
        names = [f"{number}-{i}.png" for i in range(edits + 1)]
        for i, name in enumerate(names):
            (folder / "images").mkdir(parents=True, exist_ok=True)
            (folder / "images" / name).write_bytes(picture(number, i))
        texts = [f"a {CLASSES[number % 3]}{' at night' * i}" for i in range(edits + 1)]
        lines.append(columns(names, texts) | {"label": CLASSES[number % 3]})
    (folder / "sets.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("kind", [None, "background"])
def test_a_list_of_photos_and_edits_is_read(tmp_path, classifier, kind, capsys):
    """The first image is the photo, whatever a column says about the line."""

    def numbered(names, texts):
        columns = {f"image_{i}": name for i, name in enumerate(names)}
        columns |= {f"caption_{i}": text for i, text in enumerate(texts)}
        return columns if kind is None else {**columns, "edit_kind": kind}

    listed_sets(tmp_path / "x", numbered)
    (benchmark,) = Stress(str(tmp_path / "x")).open(opener(tmp_path))
    assert "of each set the first image is taken as the photo" in capsys.readouterr().err
    evaluation = benchmark.run(classifier)
    items = rows(evaluation)
    assert len([name for name in items if name.startswith("original/")]) == 4
    assert len([name for name in items if name.startswith("edited/")]) == 8
    assert {row["class"] for row in items.values()} == set(CLASSES)


def test_a_list_of_pairs_is_read_and_its_classes_count(tmp_path):
    def pairs(names, texts):
        return {"image": names[0], "caption": texts[0], "cf_image": names[1],
                "cf_caption": texts[1]}  # fmt: skip

    hashes = set()
    for label in ("cube", "star"):
        listed_sets(tmp_path / label, pairs, edits=1)
        file = tmp_path / label / "sets.jsonl"
        file.write_text(file.read_text().replace('"label": "ball"', f'"label": "{label}"'))
        (benchmark,) = Stress(str(tmp_path / label)).open(opener(tmp_path))
        hashes.add(benchmark.data_hash)
    assert len(hashes) == 2


def test_captions_of_a_photo_are_not_its_edits(tmp_path):
    lines = [{"image": f"{n}.png", "captions": ["a ball", "a red ball"]} for n in range(2)]
    (tmp_path / "x").mkdir()
    for n in range(2):
        (tmp_path / "x" / f"{n}.png").write_bytes(picture(n))
    (tmp_path / "x" / "captions.json").write_text(json.dumps(lines))
    with pytest.raises(UserError, match=r"2 of 2 sets do not have exactly.*image_0 \(the"):
        Stress(str(tmp_path / "x")).open(opener(tmp_path))


def test_without_a_reconstruction_nothing_is_netted(tmp_path, classifier):
    edits = [("adjective", "red", "blue")]
    write_shards([joined_set(n, edits, control=False) for n in range(3)], tmp_path / "sets")
    (benchmark,) = Stress(str(tmp_path / "sets")).open(opener(tmp_path))
    evaluation = benchmark.run(classifier)
    assert np.isnan(evaluation.items["net_drop1"]).all()
    assert {o.metric for o in evaluation.outcomes} >= {"paired_drop1", "drop1", "delta_p"}
    assert not any(o.metric.startswith("net") for o in evaluation.outcomes)


def test_what_a_dual_encoder_is_prompted_with(folders, tmp_path):
    def prompted(**settings):
        return Stress(str(folders / "lance"), **settings).open(opener(folders))[0]

    default = prompted()
    assert list(default.prompted.labels) == ["ball", "cube", "star"]
    assert list(default.prompted.templates) == ["A photo of a {c}"]
    imagenet = prompted(classes="imagenet").prompted
    assert (len(imagenet.labels), imagenet.labels[0], imagenet.names[0]) == (
        1000, "n01440764", "tench",
    )  # fmt: skip
    (tmp_path / "names").write_text("polar_bear\nball\ncube\nstar\n")
    named = prompted(classes=str(tmp_path / "names"), templates=["the {c}"])
    assert (named.prompted.labels[0], named.prompted.names[0]) == ("polar_bear", "polar bear")
    assert named.data_hash != default.data_hash
    with pytest.raises(UserError, match="cannot be read"):
        prompted(classes=str(tmp_path / "none"))


def test_photos_that_were_trained_on_are_left_out_with_all_that_was_made_of_them(folders):
    index = open_index(folders / "lance", folders / "index")
    trained = np.array([row for row in range(len(index)) if index.key(row) == "photo-2_0"])
    context = replace(opener(folders), training=lambda: [(index, trained)])
    for without, photos in ((False, 9), (True, 8)):
        node = Stress(str(folders / "lance"), random=str(folders / "lance_r"),
                      without_leaks=without)  # fmt: skip
        (benchmark,) = node.open(context)
        assert [len(set(sets.photos.tolist())) for sets in benchmark._sets] == [photos, photos]
        left = {
            sets.index.key(int(row)).split("_")[0] for sets in benchmark._sets for row in sets.rows
        }
        assert ("photo-2" in left) is not without
