"""Suites: what is asked, what is missing and how it is said; single benchmarks on folders."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.protocols import Benchmark, LanguageModel
from cfaug.core.types import Evaluation, Outcome
from cfaug.data.index import open_index
from cfaug.data.mixture.leakage import withhold
from cfaug.data.shards.shards import write_shards
from cfaug.evaluation.benchmark import SourceBenchmark, cluster_rows, fingerprint, name_rows
from cfaug.evaluation.choices.pairs import PairMatching
from cfaug.evaluation.classification import Classification
from cfaug.evaluation.context import EvaluationContext
from cfaug.evaluation.label_frequency import label_frequencies, subjects_of_pairs
from cfaug.evaluation.retrieval import Matching, Retrieval
from cfaug.evaluation.suites import Auto, HeldOut, Suite, check_member, open_member
from cfaug.worlds.shapescapes import WorldSettings, ensure
from cfaug.worlds.shapescapes.labels import WorldClassification, ensure_labels
from cfaug.worlds.shapescapes.settings import COLOURS, PLACES, SUBJECTS
from tests.data.making import noise_image, pair

WORLD = WorldSettings(seed=3, style="drawing", id_scenes=40, ood_pairs=14, counterfactual_pairs=20)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("world")


@pytest.fixture(scope="module")
def context(root):
    def opened(name):
        if not name.startswith("shapescapes:"):
            return open_index(name, root / "index")
        return open_index(ensure(WORLD, name.removeprefix("shapescapes:"), root), root / "index")

    return EvaluationContext(
        open=opened,
        has_world=True,
        held_out=lambda: (opened("shapescapes:id"), np.arange(10)),
        labels=lambda name: ensure_labels(WORLD, name.removeprefix("shapescapes:"), root),
    )


def asked(suite, context):
    return [benchmark.name for benchmark in suite.open(context)]


def test_a_suite_asks_the_world_or_the_folders(context, tmp_path):
    photos = photographs(tmp_path / "photos")
    suite = Suite(
        world={
            "a_pairs": PairMatching("shapescapes:ood_pairs", "a"),
            "b_retrieval": Retrieval("shapescapes:ood_pairs", "b"),
        },
        folders={"c_retrieval": Retrieval(str(photos), "c")},
    )
    elsewhere = replace(context, has_world=False)
    assert asked(suite, context) == ["a_pairs", "b_retrieval"]
    assert asked(suite, elsewhere) == ["c_retrieval"]
    assert asked(replace(suite, where="folders"), context) == ["c_retrieval"]
    assert asked(replace(suite, where="world"), elsewhere) == ["a_pairs", "b_retrieval"]
    assert asked(replace(suite, only=["b_retrieval"]), context) == ["b_retrieval"]
    assert asked(replace(suite, skip=["b_retrieval"]), context) == ["a_pairs"]
    elsewhere_only = replace(suite, only=["c_retrieval"])
    with pytest.raises(UserError, match=r"no test is left.*benchmark\.where=folders"):
        elsewhere_only.open(context)
    both = Auto(world=suite, own=HeldOut())
    assert asked(both, elsewhere) == ["heldout_retrieval"]


def test_a_run_that_learnt_from_hypotheses_is_asked_about_hypotheses(context):
    usual = Retrieval("shapescapes:ood_pairs", "usual")
    taught = {"hypotheses_world": Retrieval("shapescapes:id", "world"), "hypotheses": HeldOut()}
    both = Auto(world=usual, own=usual, **taught)
    learnt = replace(context, has_hypotheses=True)
    assert asked(both, context) == ["usual_retrieval"]
    assert asked(both, learnt) == ["world_retrieval"]
    assert asked(both, replace(learnt, has_world=False)) == ["heldout_retrieval"]
    assert asked(Auto(world=usual, own=usual), learnt) == ["usual_retrieval"]


def test_what_was_held_out_of_class_folders_is_classified(context, tmp_path):
    """Every image of a class has the same caption: none is another's wrong answer."""
    for name, count in (("polar_bear", 5), ("cat", 4)):
        (tmp_path / "classes" / name).mkdir(parents=True)
        for i in range(count):
            (tmp_path / "classes" / name / f"{i}.png").write_bytes(noise_image(10 * count + i))
    index = open_index(tmp_path / "classes", tmp_path / "index")
    rows = np.array([0, 2])
    given = replace(context, held_out=lambda: (index, rows))
    (benchmark,) = HeldOut().open(given)
    assert benchmark.name == "heldout_classification"
    assert benchmark.class_names == ["cat", "polar bear"]
    photos = open_index(photographs(tmp_path / "photos"), tmp_path / "index")
    given = replace(context, held_out=lambda: (photos, np.arange(4)))
    assert asked(HeldOut(), given) == ["heldout_retrieval"]
    given = replace(context, held_out=lambda: None, validation=lambda: (index, rows))
    assert asked(HeldOut(), given) == ["validation_classification"]
    with pytest.raises(UserError, match=r"data\.holdout=0.*benchmark=retrieval"):
        HeldOut(validation=False).open(given)


def test_every_folder_that_is_missing_is_named_with_the_way_out(context, tmp_path):
    suite = Suite(
        folders={
            "photos_retrieval": Retrieval(str(photographs(tmp_path / "photos"))),
            "flickr_retrieval": Retrieval(str(tmp_path / "flickr")),
            "cifar_classification": Classification(str(tmp_path / "cifar")),
        },
        where="folders",
    )
    with pytest.raises(UserError) as caught:
        suite.open(context)
    said = str(caught.value)
    assert f"no folder {tmp_path / 'flickr'}" in said
    assert f"no folder {tmp_path / 'cifar'}" in said
    assert "benchmark.skip=[flickr_retrieval,cifar_classification]" in said


def test_a_name_the_suite_has_not_is_refused():
    with pytest.raises(UserError, match=r"benchmark\.skip.*there are a_retrieval"):
        Suite(world={"a_retrieval": Retrieval("x", "a")}, skip=["b"])
    with pytest.raises(UserError, match=r"benchmark\.where=moon"):
        Suite(where="moon")


@dataclass
class Opens:
    """A member that gives what it was told to."""

    found: object

    def open(self, context):
        return self.found


class Lazy:
    """A benchmark whose hash costs more than a look may."""

    needs = object
    name = "lazy"

    @property
    def data_hash(self):
        raise AssertionError("computed")

    def run(self, model): ...


@dataclass
class Named:
    name: object
    needs = object
    data_hash = "d"

    def run(self, model): ...


def test_what_is_no_member_of_a_suite_is_named_before_anything_is_opened():
    for make in (
        lambda: Suite(folders={"a": Named("a")}),
        lambda: Auto(world=Named("a"), own=HeldOut()),
        lambda: Auto(world=HeldOut(), own=Named("a")),
        lambda: check_member(Named("a")),
    ):
        with pytest.raises(UserError, match=r"^benchmark\S*: \S*Named has no open\(context\)"):
            make()


@pytest.mark.parametrize(
    ("benchmarks", "said"),
    [
        (None, "Opens.open should return a list of benchmarks, not builtins.NoneType"),
        (Named("a"), r"Opens.open should return a list of benchmarks, not \S*Named"),
        ([object()], "object is not a benchmark, as it has no name, needs, data_hash, run"),
        ([Named("own [edit=a]")], r"Named: name='own \[edit=a\]' is invalid"),
        ([Named(None)], "Named: name=None is invalid"),
    ],
)
def test_what_a_member_may_not_open_is_named(context, benchmarks, said):
    with pytest.raises(UserError, match=said):
        open_member(Opens(benchmarks), context)
    suite = Suite(folders={"own": Opens(benchmarks)}, where="folders")
    with pytest.raises(UserError, match=rf"own: .*{said}[\s\S]*benchmark\.skip=\[own\]"):
        suite.open(context)


@pytest.mark.parametrize("name", ["own [a]", "own=a", "[a=b] own", "own"])
def test_a_member_is_opened_as_it_is(context, name):
    benchmarks = [Named(name), Lazy()]
    assert open_member(Opens(benchmarks), context) == benchmarks
    with pytest.raises(UserError, match=r"member own has the name .*, lazy$"):
        Suite(folders={"own": Opens(benchmarks)}, where="folders").open(context)


def photographs(folder, count=3, captions=2):
    folder.mkdir(parents=True)
    lines = []
    for i in range(1, count + 1):
        (folder / f"{i:012d}.png").write_bytes(noise_image(i))
        texts = [f"photo {i}, {c}" for c in range(captions)]
        lines.append(json.dumps({"image": f"{i:012d}.png", "captions": texts}))
    (folder / "captions.jsonl").write_text("\n".join(lines))
    return folder


def rows_of(benchmark):
    return benchmark._rows.tolist()


def test_withheld_sets_are_asked_of_runs_that_did_not_train_on_them(context):
    source = "shapescapes:counterfactual"
    member = Retrieval(source, "cf", counterfactual_holdout=0.3)
    [benchmark] = member.open(context)
    assert rows_of(benchmark) == withhold(context.open(source), 0.3).rows.tolist()
    assert len(rows_of(benchmark)) == 12
    trained = replace(context, trained_on=frozenset({source}))
    with pytest.raises(
        UserError,
        match=r"data\.counterfactual_holdout=0\.0.*train with data\.counterfactual_holdout=0\.3",
    ):
        member.open(trained)
    assert member.open(replace(trained, counterfactual_holdout=0.3))


def test_a_source_is_the_one_trained_on_by_whatever_path(context, tmp_path):
    photos = photographs(tmp_path / "photos", count=10)
    (tmp_path / "link").symlink_to(photos)
    run = replace(context, trained_on=frozenset({str(tmp_path / "link"), "shapescapes:ood"}))
    member = Retrieval(str(photos), "cf", counterfactual_holdout=0.3)
    with pytest.raises(UserError, match=r"train with data\.counterfactual_holdout=0\.3"):
        member.open(run)
    assert member.open(replace(run, counterfactual_holdout=0.3))
    with pytest.raises(UserError, match="has none, only single images"):
        member.open(replace(run, trained_on=frozenset({"shapescapes:ood"})))


def test_validated_images_only(context):
    source = "shapescapes:ood_pairs"
    [benchmark] = Retrieval(source, "cf", human_labels=source).open(context)
    assert len(rows_of(benchmark)) == 28 - round(0.2682 * 28)
    with pytest.raises(UserError, match="exclude each other"):
        Retrieval(source, "cf", human_labels=source, counterfactual_holdout=0.3)


def test_only_the_captions_that_were_edited(context, tmp_path):
    from PIL import Image

    real = photographs(tmp_path / "real", count=4, captions=1)
    pairs = tmp_path / "pairs"
    (pairs / "data/images").mkdir(parents=True)
    lines = []
    for i in (2, 4):
        stems = [f"{i}_0_img_{j}" for j in (0, 1)]
        for stem in stems:
            Image.new("RGB", (8, 8)).save(pairs / f"data/images/{stem}.png")
        line = {"id": f"{i}_0", "image_0": stems[0], "image_1": stems[1]}
        line |= {"caption_0": f"Photo {i} 0.", "caption_1": f"Picture {i} 0."}
        lines.append(json.dumps(line))
    (pairs / "data/examples.jsonl").write_text("\n".join(lines))
    # The group of a pair is the id of its photo.
    listed = [json.loads(line) for line in (real / "captions.jsonl").read_text().splitlines()]
    with_group = [json.dumps(entry | {"image_id": int(entry["image"][:12])}) for entry in listed]
    (real / "captions.jsonl").write_text("\n".join(with_group))
    folders = replace(context, has_world=False)
    [benchmark] = Retrieval(str(real), edited_by=str(pairs)).open(folders)
    index = context.open(str(real))
    assert [index.text(row) for row in rows_of(benchmark)] == ["photo 2, 0", "photo 4, 0"]


@pytest.mark.slow
def test_photographs_that_were_trained_on_are_reported_or_left_out(context, tmp_path):
    test = photographs(tmp_path / "test", count=5)
    trained = context.open(str(photographs(tmp_path / "trained", count=2)))
    run = replace(context, training=lambda: [(trained, np.arange(2))])  # two captions of photo 1
    [benchmark] = Retrieval(str(test)).open(run)
    assert (benchmark.leaks.images, benchmark.leaks.total) == (1, 5)
    assert len(rows_of(benchmark)) == 10
    [clean] = Retrieval(str(test), without_leaks=True).open(run)
    assert rows_of(clean) == list(range(2, 10))
    assert clean.data_hash != benchmark.data_hash
    [unknown] = Retrieval(str(test)).open(context)
    assert unknown.leaks is None


@pytest.mark.parametrize("member", [Classification, Matching])
def test_a_test_that_is_the_training_data_is_said_and_left_out(context, tmp_path, member):
    write_shards([pair(i) for i in range(6)], tmp_path / "all")
    test, trained = str(tmp_path / "all"), context.open(str(tmp_path / "all"))
    copy = shutil.copytree(tmp_path / "all", tmp_path / "copy")

    run = replace(context, training=lambda: [(context.open(str(copy)), np.arange(12))])
    [benchmark] = member(test).open(run)
    assert str(benchmark.leaks) == "all 12 test images were trained on"
    with pytest.raises(UserError, match="were trained on; without_leaks=true leaves nothing"):
        member(test, without_leaks=True).open(run)

    some = replace(context, training=lambda: [(trained, np.array([0, 1, 5]))])
    [whole] = member(test).open(some)
    assert (whole.leaks.images, whole.leaks.total) == (3, 12)
    [clean] = member(test, without_leaks=True).open(some)
    pairs = member is Matching  # of which none is parted: the third loses both
    assert (clean.leaks.images, clean.leaks.total) == (0, 8 if pairs else 9)
    assert len({clean.data_hash, whole.data_hash}) == 2
    [unknown] = member(test).open(context)
    assert (unknown.leaks, unknown.data_hash) == (None, whole.data_hash)


@pytest.mark.parametrize(
    ("factor", "classes"),
    [("subject", SUBJECTS), ("colour", tuple(COLOURS)), ("background", tuple(PLACES))],
)
def test_the_worlds_factors_are_classes(context, factor, classes):
    member = WorldClassification("shapescapes:ood_pairs", "w", factor=factor)
    [benchmark] = member.open(context)
    index = context.open("shapescapes:ood_pairs")
    from cfaug.data.shards.shards import read_sets

    shown = [
        m.extra[factor] for cf_set in read_sets(ensure(WORLD, "ood_pairs", index.folder.parents[1]))
        for m in cf_set.members
    ]  # fmt: skip
    assert [classes[label] for label in benchmark._labels] == shown
    assert benchmark.name == "w_classification"
    few = WorldClassification("shapescapes:ood_pairs", "w", factor=factor, among=classes[:3])
    [fewer] = few.open(context)
    assert len(fewer._labels) == sum(value in classes[:3] for value in shown)


def test_a_factor_the_world_has_not_is_refused():
    with pytest.raises(UserError, match="factor=size"):
        WorldClassification("shapescapes:ood", "w", factor="size")
    with pytest.raises(UserError, match="zebra"):
        WorldClassification("shapescapes:ood", "w", among=["zebra"])


def test_label_frequencies_count_pairs_of_altered_classes(context):
    pairs = context.open("shapescapes:counterfactual")
    altered = subjects_of_pairs(pairs)
    assert len(altered) == 20
    assert all({before, after} <= set(SUBJECTS) for before, after in altered)
    benchmarks = [
        *WorldClassification("shapescapes:ood_pairs", "all").open(context),
        *WorldClassification("shapescapes:ood_pairs", "few", among=["cat", "fish"]).open(context),
        *PairMatching("shapescapes:ood_pairs", "p").open(context),
    ]
    expected = sum("cat" in pair or "fish" in pair for pair in altered)
    assert label_frequencies(pairs, benchmarks, "words") == {
        "all_classification": 20,
        "few_classification": expected,
    }


# A benchmark of one's own: one class, the node of a YAML and, opened, the benchmark.


@dataclass
class CaptionLength(SourceBenchmark):
    """How long captions are, by the colour they name; shorter is better."""

    colours: tuple[str, ...] = ("red", "blue")

    kind: ClassVar[str] = "length"
    needs: ClassVar[type] = LanguageModel

    def prepare(self, world, index, rows):
        self._index, self._rows = index, np.arange(len(index)) if rows is None else rows

    @property
    def data_hash(self):
        return fingerprint(self._index.hash, self._rows, self.colours)

    def run(self, model):
        texts = [self._index.text(int(row)) for row in self._rows]
        lengths = np.array([len(text.split()) for text in texts], float)
        outcomes = []
        for colour in self.colours:
            some = lengths[[colour in text for text in texts]]
            by = {"colour": colour}
            outcomes.append(
                Outcome(self.name, "words", some.mean(), len(some), "lower", "words", by)
            )
        items = {"item": name_rows(self._index, self._rows), "words": lengths}
        return Evaluation(outcomes, items | {"cluster": cluster_rows(self._index, self._rows)})


@pytest.fixture
def world(opened):
    return EvaluationContext(open=lambda name: opened[name], has_world=False, held_out=lambda: None)


def test_one_class_is_a_node_and_a_benchmark(world, opened):
    node = CaptionLength("ood_pairs", colours=("red", "green"))
    [benchmark] = Suite(folders={"ood_pairs_length": node}).open(world)
    assert isinstance(benchmark, Benchmark)
    assert (benchmark.name, benchmark.needs) == ("ood_pairs_length", LanguageModel)
    evaluation = benchmark.run(None)
    assert [dict(outcome.by) for outcome in evaluation.outcomes] == [
        {"colour": "red"},
        {"colour": "green"},
    ]
    assert {outcome.better for outcome in evaluation.outcomes} == {"lower"}
    assert len(evaluation.items["item"]) == len(opened["ood_pairs"])


def test_a_node_is_opened_for_many_runs_and_stays_as_it_was(world):
    node = CaptionLength("id", "short")
    [first], [second] = node.open(world), node.open(world)
    assert (first.name, node.name, node.leaks) == ("short_length", "short", None)
    assert first is not second
    assert first.data_hash == second.data_hash
    assert not hasattr(node, "_index")
    with pytest.raises(UserError, match=r"benchmark=length needs benchmark\.data=FOLDER"):
        CaptionLength().open(world)
    with pytest.raises(UserError, match="without_leaks"):
        CaptionLength("id", without_leaks="no")


def test_a_mean_is_over_the_items_that_count():
    hits = {"a": np.array([1.0, np.nan, 0.0, 0.0]), "b": np.array([0.5, 0.5, 0.5, 1.0])}
    a, b = CaptionLength(name="x").mean_outcomes(hits)
    assert (a.metric, a.value, a.n, a.better) == ("a", pytest.approx(1 / 3), 3, "higher")
    assert (b.value, b.n) == (0.625, 4)


def test_rows_of_one_key_have_names_of_their_own(opened, monkeypatch):
    index = opened["id"]
    rows = np.array([3, 5])
    assert name_rows(index, rows) == [index.key(3), index.key(5)]
    monkeypatch.setattr(type(index), "keys", lambda self, rows: ["same"] * len(rows))
    assert name_rows(index, rows) == ["same#3", "same#5"]
