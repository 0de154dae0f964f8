"""The entailment benchmark against one pair at a time, and against scikit-learn's scores."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.protocols import Benchmark
from cfaug.core.types import ENTAILMENT, CounterfactualSet, Member
from cfaug.data.index import open_index
from cfaug.data.shards.shards import read_sets, write_shards
from cfaug.evaluation.cached_model import CachedEntailer
from cfaug.evaluation.context import EvaluationContext
from cfaug.evaluation.text_pairs.entailment import Entailment
from cfaug.evaluation.text_pairs.entailment_items import (
    SCORES,
    EntailmentItems,
    entailment_document,
    score_drops,
)
from cfaug.models.task_specs import FlavaEntailment, TextEntailment, ViltEntailment
from cfaug.report.document import to_markdown
from cfaug.report.items import Items, write_items
from cfaug.stats.classification import confusion_matrix, macro_scores
from tests.evaluation.joined import picture
from tests.evaluation.text_pairs.asking import context, rows
from tests.evaluation.text_sets import text_set
from tests.models import tiny

SPECS = {"vilt": ViltEntailment, "flava": FlavaEntailment}
WORDS = {"xmai": "green", "eda": "red"}


@pytest.fixture(scope="module")
def entailers(tmp_path_factory):
    """Random models whose answers differ from text to text."""
    shelf = tmp_path_factory.mktemp("weights")
    by_name = {}
    for name, spec in SPECS.items():
        entailer = spec(str(tiny.SAVERS[name](shelf / name))).load_to_train(seed=2)
        with torch.no_grad():
            entailer.model.classifier[3].weight.mul_(20)
            texts = ["a red ball on the beach", "a cube", "the sand", "a star"]
            entailer.model.classifier[3].bias.sub_(entailer.logits(tiny.pixels(4), texts).mean(0))
        by_name[name] = entailer.eval()
    return by_name


def labelled(number, kind):
    """Every third text is unchanged; the oracle says that one method changed every fourth label."""
    label = ENTAILMENT[number % 3]
    after = (number + (number % 4 == 0)) % 3
    scores = {"entailment_0": float(number % 3), "entailment_1": float(after)}
    word = "" if number % 3 == 1 and number > 3 else WORDS[kind]
    return text_set(number, word, kind, label, scores if kind == "xmai" else {})


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    place = tmp_path_factory.mktemp("entailment")
    for kind in WORDS:
        write_shards([labelled(n, kind) for n in range(12)], place / kind)
    members = [Member(text, "0", "p", None, label) for text, label in
               zip(("a ball", "a cube", "the sand"), ENTAILMENT, strict=True)]  # fmt: skip
    photos = [
        CounterfactualSet(f"photo-{n}", f"photo-{n}", tuple(members), {"0": picture(1, n)})
        for n in range(4)
    ]
    write_shards(photos, place / "ve")
    return place


def ask(root, data=None, **settings):
    data = {kind: str(root / kind) for kind in WORDS} if data is None else data
    (opened,) = Entailment(data=data, **settings).open(context(root))
    assert isinstance(opened, Benchmark)
    return opened


def alone(entailer, image, text):
    pixels = torch.from_numpy(entailer.transform(decode_image(image, "it"))[None].copy())
    with torch.inference_mode():
        return entailer.entail([""], [text], pixels)[0].numpy()


@pytest.mark.parametrize(("name", "batch_size"), [("vilt", 3), ("flava", 64)])
def test_every_item_is_what_one_pair_at_a_time_gives(root, entailers, name, batch_size):
    entailer = entailers[name]
    evaluation = ask(root, batch_size=batch_size).run(entailer)
    items, said = rows(evaluation), set()
    for kind in WORDS:
        for number, pair in enumerate(read_sets(root / kind)):
            row = items.pop(f"{kind}/{pair.key}")
            label = ENTAILMENT[number % 3]
            for part, member in zip(("_original", ""), pair.members, strict=True):
                shares = alone(entailer, pair.images["0"], member.text)
                answer = ENTAILMENT[int(shares.argmax())]
                said.add(answer)
                given = [row[f"p_{name}{part}"] for name in ENTAILMENT]
                assert given == pytest.approx(shares.tolist(), abs=1e-4)
                assert row[f"predicted{part}"] == answer
                assert row[f"accuracy{part}"] == float(answer == label)
            assert row["accuracy_drop"] == row["accuracy_original"] - row["accuracy"]
            assert (row["label"], row["method"], row["key"]) == (label, kind, pair.key)
            changed = pair.members[0].text != pair.members[1].text
            assert row["changed"] == float(changed)
            kept = "kept" if not changed or number % 4 else "changed"
            assert row["label_kept"] == (kept if kind == "xmai" or not changed else "unknown")
            follows = label == row["predicted_original"] == "entailment"
            violated = float(row["predicted"] == "contradiction") if follows else np.nan
            assert np.array_equal(row["axiom_violations"], violated, equal_nan=True)
    assert not items
    assert len(said) > 1


def test_outcomes_are_scikit_learns_by_method_label_and_right_answers_kept(root, entailers):
    benchmark = ask(root)
    evaluation = benchmark.run(entailers["vilt"])
    items, seen = list(rows(evaluation).values()), set()
    macro = {"precision_macro": 0, "recall_macro": 1, "f1_macro": 2}
    for outcome in evaluation.outcomes:
        chosen = [
            row for row in items if all(row[name] == value for name, value in outcome.by.items())
        ]
        truth = [row["label"] for row in chosen]
        values = {}
        for part in ("_original", ""):
            answers = [row[f"predicted{part}"] for row in chosen]
            scores = precision_recall_fscore_support(
                truth, answers, average="macro", zero_division=0
            )
            values |= {f"{name}{part}": scores[at] for name, at in macro.items()}
            values[f"accuracy{part}"] = accuracy_score(truth, answers)
        for name in ("accuracy", *macro):
            values[f"{name}_drop"] = values[f"{name}_original"] - values[name]
        if outcome.metric in values:
            seen.add((outcome.metric, tuple(sorted(outcome.by))))
            assert outcome.value == pytest.approx(values[outcome.metric])
            assert outcome.n == len(chosen)
            assert outcome.better == ("lower" if outcome.metric.endswith("drop") else "higher")
        elif outcome.metric == "axiom_violations":
            counted = [row[outcome.metric] for row in chosen if not np.isnan(row[outcome.metric])]
            assert (outcome.value, outcome.n) == (pytest.approx(np.mean(counted)), len(counted))
    names = [
        f"{name}{part}" for name in ("accuracy", *macro) for part in ("_original", "", "_drop")
    ]
    for by in (("method",), ("label_kept", "method")):
        assert all((name, by) in seen for name in names)
    assert ("accuracy_drop", ("label", "method")) in seen
    assert {outcome.by.get("label") for outcome in evaluation.outcomes} == {None, *ENTAILMENT}
    assert len(benchmark.summarise(evaluation)) == 2


def test_hypotheses_that_nobody_changed_are_asked_before_alone(root, entailers, tmp_path):
    benchmark = ask(root, str(root / "ve"))
    evaluation = benchmark.run(entailers["flava"])
    assert benchmark.name == "ve_entailment"
    assert len(evaluation.items["item"]) == 12
    assert len(set(evaluation.items["cluster"])) == 4
    assert {outcome.metric for outcome in evaluation.outcomes} == {
        "accuracy_original", "precision_macro_original", "recall_macro_original",
        "f1_macro_original",
    }  # fmt: skip
    assert "predicted" not in evaluation.items
    for row in rows(evaluation).values():
        image = next(photo for photo in read_sets(root / "ve") if row["key"].startswith(photo.key))
        shares = alone(entailers["flava"], image.images["0"], row["text"])
        assert row["predicted_original"] == ENTAILMENT[int(shares.argmax())]
    write_items(tmp_path, Items(benchmark.name, "w", "d", evaluation.items))
    text = benchmark.write_page(tmp_path, "m").read_text()
    assert "| ve " in text
    assert "after" not in text


def test_a_hypothesis_that_stands_twice_about_a_photo_counts_once(entailers, tmp_path):
    texts = [("a ball", "neutral"), ("a ball", "entailment"), ("a cube", "neutral")]
    members = tuple(Member(text, "0", "p", None, label) for text, label in texts)
    photos = [
        CounterfactualSet(f"photo-{n}", f"photo-{n}", members, {"0": picture(1, n)})
        for n in range(2)
    ]
    write_shards(photos, tmp_path / "ve")
    evaluation = ask(tmp_path, str(tmp_path / "ve")).run(entailers["vilt"])
    assert evaluation.items["key"] == ["photo-0_0", "photo-0_2", "photo-1_0", "photo-1_2"]
    assert evaluation.items["label"] == ["neutral"] * 4


def test_what_a_run_held_out_is_asked(root, entailers):
    index = open_index(str(root / "ve"), root / "index")
    held = EvaluationContext(
        open=context(root).open, has_world=False, held_out=lambda: (index, np.arange(3, 9))
    )
    (benchmark,) = Entailment().open(held)
    assert benchmark.name == "heldout_entailment"
    evaluation = benchmark.run(entailers["vilt"])
    assert evaluation.items["key"] == [index.key(row) for row in range(3, 9)]
    with pytest.raises(UserError, match=r"benchmark\.data=FOLDER.*data\.holdout=0\.1"):
        Entailment().open(context(root))


def snli_ve(place):
    """Four photos with a hypothesis each, as SNLI-VE's list and folder of photos."""
    (place / "images").mkdir(parents=True)
    rows = []
    for n, text in enumerate(("a ball", "a cube", "the sand", "a ball")):
        (place / "images" / f"{n}.jpg").write_bytes(picture(1, n))
        rows.append({
            "Flickr30K_ID": str(n), "captionID": f"{n}.jpg#0", "pairID": f"{n}.jpg#0r1",
            "gold_label": ENTAILMENT[n % 3], "sentence1": f"premise {n}", "sentence2": text,
        })  # fmt: skip
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (place / "snli_ve_test.jsonl").write_text(lines)
    return rows


def test_lists_without_photos_find_them_by_premise_and_hypothesis(entailers, tmp_path):
    """As the csv files of XMAI's authors, of which one row is of another part of SNLI-VE."""
    rows = snli_ve(tmp_path / "snli")
    head = "label,original,hypothesis,modified\n"
    lines = [f"{r['gold_label']},{r['sentence1']},{r['sentence2']},red {r['sentence2']}"
             for r in reversed(rows)]  # fmt: skip
    file = tmp_path / "eda.csv"
    file.write_text(head + "\n".join([*lines, "neutral,another,a star,a star"]) + "\n")
    with pytest.raises(UserError, match=r"without photos.*benchmark\.photos=SNLI_VE:test"):
        ask(tmp_path, str(file))
    photos = str(tmp_path / "snli" / "snli_ve_test.jsonl")
    evaluation = ask(tmp_path, str(file), photos=photos).run(entailers["vilt"])
    by_digest = {row["image"]: row for row in rows_of_photos(evaluation)}
    assert len(by_digest) == len(rows) == 4
    for n, row in enumerate(reversed(list(rows_of_photos(evaluation)))):
        assert row["text"] == f"red {rows[n]['sentence2']}"
        assert row["label"] == rows[n]["gold_label"]
        shares = alone(entailers["vilt"], picture(1, n), row["text"])
        given = [row[f"p_{name}"] for name in ENTAILMENT]
        assert given == pytest.approx(shares.tolist(), abs=1e-4)
    file.write_text(head + "neutral,another,a star,a star\n")
    with pytest.raises(UserError, match="none of its 1 hypotheses"):
        ask(tmp_path, str(file), photos=photos)
    write_shards([labelled(0, "eda")], tmp_path / "sets")
    with pytest.raises(UserError, match="no premises"):
        ask(tmp_path, str(file), photos=str(tmp_path / "sets"))


def rows_of_photos(evaluation):
    return rows(evaluation).values()


class Counting:
    """Counts what an entailer looks at and is asked."""

    def __init__(self, entailer, monkeypatch):
        self.looks = self.texts = 0
        look, answer = entailer.encode_images, entailer.entail_encoded

        def encode_images(pixels):
            self.looks += len(pixels)
            return look(pixels)

        def entail_encoded(images, texts):
            self.texts += len(texts)
            return answer(images, texts)

        monkeypatch.setattr(entailer, "encode_images", encode_images)
        monkeypatch.setattr(entailer, "entail_encoded", entail_encoded)


def test_a_photo_is_looked_at_once_and_a_pair_asked_once(root, entailers, monkeypatch, tmp_path):
    entailer = entailers["flava"]
    counted = Counting(entailer, monkeypatch)
    plain = ask(root).run(entailer)
    sets = [counterfactual for kind in WORDS for counterfactual in read_sets(root / kind)]
    pairs = {
        (counterfactual.images["0"], member.text)
        for counterfactual in sets
        for member in counterfactual.members
    }
    assert counted.looks == len({counterfactual.images["0"] for counterfactual in sets})
    assert counted.texts == len(pairs) < 2 * len(sets)

    def cached(load):
        return CachedEntailer(load, "weights", "settings", tmp_path, 10**9)

    first = ask(root, data=str(root / "eda")).run(cached(lambda: entailer))
    asked = counted.texts
    second = ask(root).run(cached(lambda: entailer))  # the texts of one method alone are new
    assert counted.texts == len(pairs) * 2
    assert counted.texts > asked

    def load():
        raise AssertionError("loaded")

    again = ask(root).run(cached(load))
    for name, values in plain.items.items():
        if name.startswith("p_"):
            assert second.items[name] == pytest.approx(values, abs=1e-5)
        assert np.array_equal(again.items[name], second.items[name], equal_nan=name in NUMBERS)
    assert len(first.items["item"]) == 12


NUMBERS = {"axiom_violations"}


def test_the_tables_say_what_the_items_say(root, entailers, tmp_path):
    benchmark = ask(root)
    evaluation = benchmark.run(entailers["vilt"])
    answers = EntailmentItems("<m|x>", Items(benchmark.name, "w", "d", evaluation.items))
    document = entailment_document(answers)
    titles = [part.title for part in document.parts]
    assert titles == [
        "All texts", "Texts whose right answer was kept", "Right answers", "Labels",
        "Answers: xmai, before", "Answers: xmai, after", "Answers: eda, after",
    ]  # fmt: skip
    whole, kept = document.parts[:2]
    for (method,), cells in whole.rows:
        chosen = [row for row in rows(evaluation).values() if row["method"] == method]
        texts = [cell.text for cell in cells]
        assert texts[:2] == ["12", "6"]
        before, after = (
            100 * np.mean([row[f"accuracy{part}"] for row in chosen]) for part in ("_original", "")
        )
        assert texts[2:4] == [f"{before:.2f}", f"{after:.2f}"]
        assert texts[4].startswith(f"{before - after:+.1f} [")
        violations = [row["axiom_violations"] for row in chosen]
        counted = [value for value in violations if not np.isnan(value)]
        assert texts[-1] == f"{int(sum(counted))} of {len(counted)}"
    assert [labels for labels, _ in kept.rows] == [("xmai",)]
    assert document.parts[2].rows[0][1][1].text == "2"  # texts 0 and 8; 4 is unchanged
    assert sum(int(cell.text) for _, cells in document.parts[4].rows for cell in cells) == 12
    page = to_markdown(document)
    assert "<m|x>" not in page


def test_what_cannot_be_asked_is_refused(root, entailers, tmp_path):
    write_shards(
        [text_set(n, "red", "xmai", "dog" if n else None) for n in range(5)], tmp_path / "a"
    )
    with pytest.raises(UserError, match=r"5 of 5 hypotheses have no label.*has no label"):
        ask(tmp_path, data=str(tmp_path / "a"))
    write_shards([text_set(n, "red", "xmai", "dog") for n in range(5)], tmp_path / "b")
    with pytest.raises(UserError, match="has the label 'dog'"):
        ask(tmp_path, data=str(tmp_path / "b"))
    reader = TextEntailment(str(tiny.save_entailer(tmp_path / "reader"))).load()
    for model in (reader, CachedEntailer(lambda: reader, "w", "s", tmp_path / "kept", 10**9)):
        with pytest.raises(UserError, match=r"reads texts only.*vilt_entailer"):
            ask(root).run(model)


def sklearn_scores(truth, said):
    macro = precision_recall_fscore_support(truth, said, average="macro", zero_division=0)
    return [accuracy_score(truth, said), *macro[:3]]


def test_scores_of_nothing_are_refused():
    with pytest.raises(ValueError, match="no items"):
        macro_scores(np.zeros((3, 3), int))
    rng = np.random.default_rng(0)
    nothing = np.array([], int)
    with pytest.raises(ValueError, match="not 0 items"):
        score_drops(nothing, nothing, nothing, [], rng, classes=3)
    single = np.array([0])
    with pytest.raises(ValueError, match="one value per item"):
        score_drops(single, single, np.array([0, 1]), ["a"], rng, classes=3)
    with pytest.raises(ValueError, match="outside 0 to 2"):
        score_drops(single, single, np.array([3]), ["a"], rng, classes=3)


def sample(seed, count=40, photos=6):
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=count)
    before = np.where(rng.random(count) < 0.9, truth, rng.integers(3, size=count))
    after = np.where(rng.random(count) < 0.6, truth, rng.integers(3, size=count))
    return truth, before, after, rng.integers(photos, size=count)


def test_permutations_are_those_of_whole_photos():
    """All 2 ** photos exchanges of before and after, one item at a time."""
    truth, before, after, photos = sample(1, photos=5)
    observed = np.subtract(sklearn_scores(truth, before), sklearn_scores(truth, after))
    count = np.zeros(len(SCORES))
    turns = list(itertools.product([False, True], repeat=len(set(photos))))
    for turn in turns:
        exchanged = np.array([turn[photo] for photo in photos])
        first, second = np.where(exchanged, after, before), np.where(exchanged, before, after)
        drop = np.subtract(sklearn_scores(truth, first), sklearn_scores(truth, second))
        count += np.abs(drop) >= np.abs(observed) - 1e-12
    drops = score_drops(truth, before, after, photos, np.random.default_rng(0), classes=3)
    assert [score.drop for score in drops] == pytest.approx(observed)
    for score, expected in zip(drops, count / len(turns), strict=True):
        assert score.p == pytest.approx(expected, abs=0.02)


def test_intervals_are_of_a_bootstrap_that_draws_photos():
    truth, before, after, photos = sample(2, photos=9)
    rng = np.random.default_rng(5)

    def scores(rows, said):
        macro = macro_scores(confusion_matrix(truth[rows], said[rows], 3))
        return [macro.accuracy, macro.precision, macro.recall, macro.f1]

    drops = []
    for _ in range(1500):
        drawn = rng.integers(9, size=9)
        rows = np.concatenate([np.flatnonzero(photos == photo) for photo in drawn])
        drops.append(np.subtract(scores(rows, before), scores(rows, after)))
    low, high = np.quantile(drops, [0.025, 0.975], axis=0)
    tested = score_drops(truth, before, after, photos, np.random.default_rng(0), classes=3)
    assert [score.low for score in tested] == pytest.approx(low, abs=0.03)
    assert [score.high for score in tested] == pytest.approx(high, abs=0.03)


def test_the_same_state_gives_the_same_numbers_and_one_photo_none(monkeypatch):
    truth, before, after, photos = sample(3)
    whole, again = (
        score_drops(truth, before, after, photos, np.random.default_rng(0), classes=3)
        for _ in range(2)
    )
    assert whole == again
    same = score_drops(truth, before, before, photos, np.random.default_rng(0), classes=3)
    assert all(score.p == 1 and score.low == score.high == 0 for score in same)
    alone = score_drops(truth, before, after, [0] * 40, np.random.default_rng(0), classes=3)
    assert all(math.isnan(value) for score in alone for value in (score.low, score.high, score.p))
    monkeypatch.setattr(
        "cfaug.evaluation.text_pairs.entailment_items.DRAWN_AT_ONCE", 60
    )  # in many small pieces
    pieces = score_drops(
        truth, before, after, photos, np.random.default_rng(0), classes=3, resamples=200
    )
    assert [score.drop for score in pieces] == [score.drop for score in whole]
    assert all(score.low <= score.drop <= score.high for score in pieces)
