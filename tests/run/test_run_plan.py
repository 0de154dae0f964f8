"""What a run would train on, from settings alone, and what is refused before a sweep begins."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import Index, open_index
from cfaug.data.mixture.mixture import plan_mixture
from cfaug.data.mixture.settings import NegativesData, RatioData
from cfaug.data.shards.shards import write_shards
from cfaug.planning.mixture_plan import (
    check_sets,
    content_trained_with,
    count_negatives,
    use_negatives,
)
from cfaug.planning.sources import Opened, check_negatives
from cfaug.planning.training import TrainSettings
from cfaug.run.arm_sizes import equal_data, unequal_sizes
from cfaug.run.dry_run import _seconds_per_step
from cfaug.run.identity import config_hash
from cfaug.run.run_folder import RunFolder
from cfaug.run.run_plan import plan_run
from cfaug.train.mixture_task import ContrastiveTask
from cfaug.train.settings import LoggerSettings, LossSettings, OptimSettings, TrainerSettings
from tests.data.layouts import captions_csv, negclip, table
from tests.data.making import Columns, pair
from tests.data.test_set_captions import neutral_set
from tests.run.conftest import SCENES, WORLD, jobs_of, lay_photos, refusal, stderr_of, stdout_of
from tests.scripts import load

WORLD_RATIOS = {
    # 80 real scenes and 40 pairs; the oracle matches all but 0.2682 x 80 images: 59.
    "data.cf_ratio=1 data.counterfactual_holdout=0.3": (0, 44),
    "data.cf_ratio=1 data.human_labels=shapescapes:counterfactual": (0, 47),
}


@pytest.mark.parametrize("asked", WORLD_RATIOS)
def test_ratios_of_chosen_sets_run_on_the_world(place, asked):
    counts = place.plan(*asked.split())["counts"]
    assert (counts["real"], counts["counterfactual"]) == WORLD_RATIOS[asked]


# What cannot work, or would not do what its name says, is refused before a sweep begins.


@pytest.mark.parametrize(
    ("words", "said"),
    [
        # N15: a typed warm-up that is longer than the run
        (["data.cf_ratio=0.5", "optim.warmup=400"], "the warm-up of 400 steps is as long as"),
        # N16: a contrastive batch of one has a loss of 0
        (["data.cf_ratio=0.5", "data.batch_size=1"], "the loss is 0 at every step"),
        # N27: what each run would only find at its start
        (["tuning=lora", "tuning.lora.targets=['nothing']"], "'nothing' matches none of"),
        (["data.validation=0"], "trainer.checkpoint=best needs a validation split"),
        (["data.drop_last=true", "data.batch_size=100000"], "leaves no batch"),
        (["trainer.num_nodes=2"], "needs its processes started"),
        # N31: a ratio of which nothing is left
        (["data.cf_ratio=1e-9"], "leaves no counterfactual example: write data.cf_ratio=0"),
        (["data.cf_ratio=0.999999"], "leaves no real example: write data.cf_ratio=1"),
        # sources from which nothing is drawn, but which were typed
        (["data.cf_ratio=0", "data.counterfactual=/nowhere"], "data.counterfactual=/nowhere does"),
        (["data.cf_ratio=0", "data.counterfactual=shapescapes:nothing"], "no part is called"),
        (["data.cf_ratio=1", "data.human_labels=shapescapes:ood_pairs"], "ood_pairs-000000_0"),
        (["data.counterfactual_members=singles"], "is for sources of single images"),
        (["+model.revision=abc"], "revision=abc names a commit of the Hub"),
        # N3: negatives that no source has
        (["data.cf_ratio=0.5", "loss=negatives"], "has no effect: no training example of"),
        (
            ["data.cf_ratio=0.5", "loss=negatives", "loss.negative_captions=ignored"],
            "loss.negative_captions=ignored has no effect",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_work_is_refused_before_a_sweep_starts(place, words, said):
    assert said in refusal(place.train, *words, "--multirun", "seed=1,2")
    assert not list(place.root.rglob("run.json"))


@pytest.mark.slow
def test_a_tuning_that_does_not_fit_a_task_is_refused_before_a_sweep(plan):
    """N27: freeze_text names no parameter of a vision-language model."""
    words = ["task=vqa", "tuning=freeze_text", "data.world.vqa_pairs=12", "data.size=20"]
    assert "tuning.freeze" in plan.refused(*words)


@pytest.mark.slow
def test_negatives_that_there_are_may_be_ignored(plan, tmp_path):
    folder = lay_photos(tmp_path / "photos", ["" for _ in range(40)])
    lines = [(f"{n}.png", f"a photo of thing {n}", f"a photo of no thing {n}") for n in range(40)]
    table(folder / "captions.csv", ("image", "caption", "neg_caption"), lines)
    words = ["data=folder", f"data.real={folder}", "data.cf_ratio=0", "loss=negatives"]
    plan(*words, "loss.negative_captions=ignored")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        # N31: exp(-3) is a temperature of 20.
        (["data.cf_ratio=0", "model.logit_scale_max=-3"], "cosines times 0.0498 at most"),
        (
            ["data.cf_ratio=0", "trainer.max_steps=3"],
            "the warm-up of 10 steps is as long as the run",
        ),
        (["data.cf_ratio=0", "data.batch_size=100000"], "batch_size=100000 is more than the"),
    ],
)
def test_what_works_but_helps_nobody_is_a_warning(plan, words, said):
    assert said in plan(*SCENES, *words)[1]


def test_each_command_of_a_process_warns_once(plan):
    for _ in range(2):
        said = plan(*SCENES, "data.cf_ratio=0", "loss=pair_aware", "--multirun", "seed=1,2")[1]
        assert said.count("it equals loss=null") == 1


@pytest.mark.slow
def test_a_loss_of_pairs_is_no_warning_where_there_are_pairs(plan):
    assert "it equals" not in plan(*SCENES, "loss=pair_aware", "data.cf_ratio=0.5")[1]


@pytest.mark.slow
def test_a_sweep_with_a_typed_source_of_other_arms_is_one_command(place):
    """data.cf_ratio=0 does not read data.counterfactual, which the other arms draw from."""
    words = ["--multirun", "data.cf_ratio=0,0.5", "data.counterfactual=shapescapes:unbiased"]
    assert "2 runs: 2 absent" in stderr_of(place.train, *words, "arm=null", "dry_run=true")


# Settings that need more of a counterfactual source than images with captions.


INVARIANT = LossSettings(set_invariance=0.5)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Index]:
    folder = tmp_path_factory.mktemp("sources")
    write_shards([neutral_set(n) for n in range(2)], folder / "neutral", sets_per_shard=2)
    write_shards([pair(n) for n in range(2)], folder / "pairs", sets_per_shard=2)
    captions_csv(folder / "singles")
    names = ("neutral", "pairs", "singles")
    return {name: open_index(folder / name, folder / "cache") for name in names}


def check(source: Index, loss: LossSettings | None = None, **data: object) -> None:
    check_sets(RatioData("r", "c", **data), Opened(None, source, None, None), loss)


def test_what_has_sets_with_neutral_prompts_may_be_trained_on_in_every_way(sources):
    for captions in ("own", "neutral", "shuffled"):
        check(sources["neutral"], counterfactual_captions=captions)
    check(sources["neutral"], INVARIANT, pairs_in_batch=True)
    check(sources["pairs"], counterfactual_captions="shuffled")
    for captions in ("neutral", "shuffled"):  # of which an arm without counterfactuals needs none
        check(sources["singles"], cf_ratio=0, counterfactual_captions=captions)


@pytest.mark.parametrize(
    ("source", "loss", "data", "message"),
    [
        ("pairs", None, {"counterfactual_captions": "neutral"}, "no column 'neutral'"),
        ("pairs", INVARIANT, {"pairs_in_batch": True}, r"set_invariance=0\.5 needs the neutral"),
        ("neutral", INVARIANT, {}, r"data\.pairs_in_batch=true"),
        ("neutral", INVARIANT, {"pairs_in_batch": True, "cf_ratio": 0}, "cf_ratio above 0"),
        ("singles", None, {"counterfactual_captions": "shuffled"}, "has no set of two"),
    ],
)
def test_what_a_source_lacks_is_named(sources, source, loss, data, message):
    with pytest.raises(UserError, match=message):
        check(sources[source], loss, **data)


def test_neutral_prompts_are_part_of_a_run_that_trains_with_them(sources, tmp_path: Path):
    """The hash of a source knows its captions, not its other columns."""
    opened = Opened(None, sources["neutral"], None, None)
    usual = RatioData("r", "c")
    neutral = RatioData("r", "c", counterfactual_captions="neutral")
    assert content_trained_with(usual, opened, None) == opened.content
    assert content_trained_with(usual, opened, LossSettings()) == opened.content
    assert content_trained_with(neutral, opened, None) != opened.content
    assert content_trained_with(usual, opened, INVARIANT) == content_trained_with(
        neutral, opened, None
    )
    write_shards([neutral_set(0), neutral_set(1, without=0)], tmp_path / "x", sets_per_shard=2)
    other = Opened(None, open_index(tmp_path / "x", tmp_path / "cache"), None, None)
    assert other.content == opened.content
    assert content_trained_with(neutral, other, None) != content_trained_with(neutral, opened, None)


# Arms of a sweep that differ in size are said, with the size that all of them can have.


REAL_ROWS, PAIR_ROWS = (Columns.of((group, members) for group in range(100)) for members in (1, 2))


def job(ratio: float, size: int | None = None, *, seed: int = 1, steps: int = 5, name: str = "x"):
    data = RatioData("real", "cf", cf_ratio=ratio, size=size, seed=seed)
    mixture = plan_mixture(REAL_ROWS, PAIR_ROWS, cf_ratio=ratio, size=size, seed=seed)
    folder = RunFolder(Path(f"runs/{name}/cf_ratio={ratio}/seed={seed}"), {})
    task = ContrastiveTask(
        data=data, mixture=mixture, indexes=(None, None), model=None, optim=OptimSettings(),
        trainer=TrainerSettings(max_steps=steps), logger=LoggerSettings(), seed=1, data_seed=seed,
    )  # fmt: skip
    return SimpleNamespace(task=task, folder=folder, settings=SimpleNamespace(name=name))


def test_the_largest_size_that_all_arms_can_have_is_named():
    jobs = [job(ratio, seed=seed) for ratio in (0, 0.5, 0.9) for seed in (1, 2)]
    [(largest, said)] = unequal_sizes(jobs).items()
    assert largest == 100
    assert "from 80 (cf_ratio=0) to 177 (cf_ratio=0.9)" in said
    assert "data.size=100 is the largest" in said
    sized = [job(ratio, 100) for ratio in (0, 0.5, 0.9)]
    assert {planned.task.mixture.counts["train"] for planned in sized} == {80}
    assert not unequal_sizes(sized)


def test_arms_that_are_as_asked_for_are_not_complained_of():
    assert not unequal_sizes([job(0, 50), job(0.5, 100)])
    assert not unequal_sizes([job(0), job(0, seed=2)])
    assert not unequal_sizes([job(0, steps=0), job(0.9)])  # not trained
    assert not unequal_sizes([job(0), job(0.9, name="other")])
    planned = job(0.9)
    mixture = replace(planned.task.mixture, size=None)
    planned.task = replace(planned.task, mixture=mixture)
    assert not unequal_sizes([job(0), planned])


def planned_job(folder: Path, seed: int = 1, **identity: object) -> SimpleNamespace:
    """Return what is compared of a planned run whose identity has the given data settings."""
    planned = job(float(identity["cf_ratio"]), identity.get("size"), seed=seed)
    arm = ",".join(f"{key}={value}" for key, value in identity.items())
    asked = {f"data.{key}" if key != "lr" else "optim.lr": v for key, v in identity.items()}
    planned.folder = RunFolder(folder / "x" / arm / f"seed={seed}", asked)
    return planned


def test_arms_whose_shares_round_to_the_same_examples_are_named(tmp_path: Path):
    jobs = [
        planned_job(tmp_path, seed, cf_ratio=ratio, size=100)
        for seed in (1, 2)
        for ratio in (0.5, 0.6, 0.601)
    ]
    (said,) = equal_data(jobs)
    for words in ("data.cf_ratio=0.6 ", "data.cf_ratio=0.601 ", "same numbers", "32 real"):
        assert words in said
    sizes = [planned_job(tmp_path, cf_ratio=0.5, size=size) for size in (100, None)]
    (said,) = equal_data(sizes) or ("",)
    assert not said  # null takes more
    largest = job(0.5).task.default_size
    (said,) = equal_data([
        planned_job(tmp_path, cf_ratio=0.5, size=size) for size in (None, largest)
    ])  # fmt: skip
    assert "data.size=null" in said
    assert f"data.size={largest}" in said
    different = [planned_job(tmp_path, cf_ratio=0.6, size=100, lr=lr) for lr in (1, 2)]
    assert equal_data(different) == []


def test_an_arm_that_was_trained_before_is_compared_as_well(tmp_path: Path):
    earlier = planned_job(tmp_path, cf_ratio=0.6, size=100)
    folder = earlier.folder.path
    folder.mkdir(parents=True)
    record = {
        "state": "done", "seed": 1, "steps": 5, "identity": earlier.folder.identity,
        "counts": dict(earlier.task.counts),
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(record))
    assert equal_data([earlier]) == []
    (said,) = equal_data([planned_job(tmp_path, cf_ratio=0.601, size=100)])
    assert "data.cf_ratio=0.6 (cf_ratio=0.6,size=100)" in said


# What a dry run says of a run's length: from the steps of a run before, not from its start.


HEAD = "attempt,step,epoch,train/loss,val/loss,lr,logit_scale,seconds\n"


def write(folder, *rows):
    (folder / "metrics.csv").write_text(
        HEAD + "".join(f"{a},{s},0,0,,0,0,{t}\n" for a, s, t in rows)
    )


def test_a_short_run_s_start_is_not_counted(tmp_path):
    write(tmp_path, (0, 1, 10.0), (0, 2, 10.1), (0, 11, 11.0))
    assert _seconds_per_step(tmp_path) == pytest.approx(0.1)
    write(tmp_path, (0, 1, 10.0), (0, 9, 90.0), (1, 6, 3.0), (1, 10, 5.0))
    assert _seconds_per_step(tmp_path) == pytest.approx(0.5)  # of the last attempt


@pytest.mark.parametrize(
    "rows", [[], [(0, 1, 10.0)], [(0, 1, "nonsense"), (0, 2, 1.0)]], ids=["none", "one", "damaged"]
)
def test_too_little_to_tell_by(tmp_path, rows):
    write(tmp_path, *rows)
    assert _seconds_per_step(tmp_path) is None
    (tmp_path / "metrics.csv").unlink()
    assert _seconds_per_step(tmp_path) is None


# What a dry run says to a person, and to a program.


@pytest.mark.slow
def test_a_person_is_given_lines_and_a_program_json(plan):
    (about,), said = plan(*WORLD)
    assert "1 run: 1 absent" in said
    shown = stdout_of(plan.train, [*plan.words[1:], *WORLD, "dry_run=true"])
    assert f"  run              {about['run']}\n" in shown
    assert f"  steps            {about['steps']:,}\n" in shown
    assert f"train {about['counts']['train']:,}, " in shown
    assert "{" not in shown
    assert "sources" not in shown
    assert "  estimate         0:00:" in shown


# Captions without an image are trained against, or left out, because somebody said so.


@pytest.fixture
def index(tmp_path: Path) -> Index:
    negclip(tmp_path / "negclip")
    return open_index(tmp_path / "negclip", tmp_path / "cache")


@pytest.mark.parametrize("role", ["real", "counterfactual", "control"])
@pytest.mark.parametrize("loss", [None, LossSettings(), LossSettings("masked", 2.0)])
def test_negatives_nobody_spoke_of_are_refused(
    index: Index, role: str, loss: LossSettings | None
) -> None:
    opened = Opened(
        **(dict.fromkeys(("real", "counterfactual", "control", "labels")) | {role: index})
    )
    with pytest.raises(UserError, match=r"negclip has captions without an image.*loss=negatives"):
        check_negatives(opened, loss)
    check_negatives(opened, LossSettings(negative_captions="used"))
    check_negatives(opened, LossSettings(negative_captions="ignored"))


def test_those_of_the_training_rows_are_count_negatives(index: Index) -> None:
    mixture = plan_mixture(index, None, cf_ratio=0, size=None, seed=1, validation=0)
    assert count_negatives(mixture, LossSettings(negative_captions="used")).counts["negatives"] == 3
    assert (
        count_negatives(mixture, None)
        == count_negatives(mixture, LossSettings("masked"))
        == mixture
    )


@pytest.mark.parametrize(("arm", "said"), [("text", "used"), ("none", "ignored")])
def test_an_arm_says_what_wrong_captions_are_for(index: Index, arm: str, said: str) -> None:
    """Beside NegCLIP's list; pairs need no word where the counterfactuals are left out."""
    opened, data = Opened(None, index, None, None), NegativesData("r", "c", negatives=arm)
    for loss in (None, LossSettings(), LossSettings(negative_captions=said)):
        assert use_negatives(data, opened, loss) == LossSettings(negative_captions=said)
    weighted = LossSettings("masked", negative_weight=2.0)
    assert use_negatives(data, opened, weighted) == LossSettings(
        "masked", negative_captions=said, negative_weight=2.0
    )
    other = LossSettings(negative_captions="ignored" if said == "used" else "used")
    with pytest.raises(UserError, match="contradict each other"):
        use_negatives(data, opened, other)
    usual = RatioData("r", "c")
    assert use_negatives(usual, opened, other) == other
    assert use_negatives(usual, opened, None) is None


def test_pairs_need_a_place_for_captions_where_those_are_wrong_answers(tmp_path: Path) -> None:
    captions_csv(tmp_path / "x")
    opened = Opened(None, open_index(tmp_path / "x", tmp_path / "cache"), None, None)
    by_arm = {
        arm: use_negatives(NegativesData("r", "c", negatives=arm), opened, None)
        for arm in ("none", "text", "image", "both")
    }
    assert by_arm.pop("text") == LossSettings(negative_captions="used")
    assert set(by_arm.values()) == {None}
    real_only = NegativesData("r", "c", cf_ratio=0, negatives="text")
    assert use_negatives(real_only, opened, None) is None


@pytest.mark.parametrize("arm", ["text", "image"])
def test_a_loss_of_pairs_has_no_place_for_wrong_answers_alone(arm: str) -> None:
    task = SimpleNamespace(
        data=NegativesData("r", "c", negatives=arm), trainer=TrainerSettings(), loss=None
    )
    bridgetower = SimpleNamespace(takes_negatives=False)
    with pytest.raises(UserError, match=rf"data\.negatives={arm}: .* data\.negatives=both or none"):
        ContrastiveTask.make_module(task, bridgetower, 1)  # type: ignore[arg-type]


# What was declared before training is part of the identity of a run.


def planned_run(words):
    ((config, overrides),) = jobs_of("train", *words)
    return plan_run(TrainSettings(**config, overrides=overrides))


@pytest.mark.slow
def test_a_runs_identity_has_the_hash_of_the_declaration(tmp_path, shards):
    words = [
        "task=classification", "model=tiny_classifier", f"paths.runs={tmp_path}",
        f"paths.shards={shards}", "data.world.real_scenes=70", "trainer.max_steps=1",
        "data.real=shapescapes:real",
    ]  # fmt: skip
    file = tmp_path / "declared.json"
    hashes = set()
    for content in ({"minimum": 0.1}, {"minimum": 0.2}):
        file.write_text(json.dumps(content))
        job = planned_run([*words, f"declared={file}"])
        hashes.add(config_hash(job.folder.identity))
        assert "declared" not in job.folder.identity
        assert job.folder.path.parent == planned_run(words).folder.path.parent
    assert "content.declared" not in planned_run(words).folder.identity
    assert len({*hashes, config_hash(planned_run(words).folder.identity)}) == 3


def test_a_missing_declaration_is_refused_before_anything_is_drawn(tmp_path):
    said = refusal(load("train"), [f"declared={tmp_path / 'x.json'}", f"paths.shards={tmp_path}"])
    assert "x.json cannot be read" in said
    assert "cfaug table NAME declare=true" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_declaration_is_of_a_table_of_arms(tmp_path):
    table = load("table")
    for words, message in (
        (["declare=true"], "table is missing"),
        (["edit_quality", "declare=true"], "is for tables of trained arms"),
        (["social_debias", "declare=true", "table.baselines=[x]"], "'x' is not an arm"),
    ):
        assert message in refusal(table, [*words, f"paths.runs={tmp_path}"])
    assert table(["social_debias", "declare=true", f"paths.runs={tmp_path}"]) == 0
    declared = json.loads((tmp_path / "social_debias" / "declared.json").read_text())
    assert declared["baselines"][0] == "real"
    assert "title" not in declared
