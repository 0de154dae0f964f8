"""The metrics of torchmetrics against the pure functions, in batches and in two processes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics import MetricCollection

from cfaug import metrics
from cfaug.stats import choices, classification, ranking, skew_metrics
from tests import children
from tests.properties import examples

ROWS = 24


def rows(seed):
    """Rows of every metric; few values, so that ties are frequent."""
    draw = np.random.default_rng(seed)

    def few(*shape):
        return torch.from_numpy(draw.integers(-3, 4, shape).astype("float32"))

    ids = torch.from_numpy(draw.permutation(np.arange(ROWS) % 9))
    ids_of_questions = torch.arange(ROWS) % (ROWS // 3)
    images = few(9, 3) + 0.5
    image = torch.arange(ROWS)
    return {
        "recall": (images[ids], few(ROWS, 3) + 0.25, ids),
        "classes": (few(ROWS, 4), torch.from_numpy(draw.integers(0, 4, ROWS))),
        "choice": (few(ROWS, 3), torch.from_numpy(draw.integers(0, 3, ROWS))),
        "pairs": (few(ROWS, 2, 2),),
        "gap": (few(ROWS), few(ROWS), few(ROWS)),
        "skew": (few(ROWS), torch.arange(ROWS) // 2 % 3, image % 2, image),
        "questions": (few(ROWS, 3), image % 3, ids_of_questions, image >= ROWS // 3),
    }


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 10**6))
def test_numbers_in_double_precision_stay_so(seed):
    """MatchingGap rounded them to float32, 1e-8 off, and equal scores became ties elsewhere."""
    draw = np.random.default_rng(seed)
    right, image, text = draw.normal(size=(3, 5))
    gap = metrics.MatchingGap()(*map(torch.from_numpy, (right, image, text)))
    assert gap["IR_c"].item() == (right - image).mean()
    assert gap["TR_c"].item() == (right - text).mean()
    near = 0.3 + 1e-12 * torch.arange(4, dtype=torch.float64)  # one number in float32
    pair = near[[3, 0, 1, 2]].reshape(1, 2, 2)
    assert metrics.PairScores()(pair)["group_score"].item() == 1
    assert metrics.ChoiceAccuracy()(near[None, :2], torch.tensor([1])).item() == 1
    assert metrics.MeanPerClassRecall("max")(near[None, :2], torch.tensor([1])).item() == 1
    alone, images = torch.zeros(4).long(), torch.arange(4)
    skew = metrics.MaxSkew(2)(near, images // 2, alone, images)
    assert skew.item() == pytest.approx(np.log(2))
    answers = metrics.CounterfactualAccuracy()(
        near[[0, 1, 0, 1]].reshape(2, 2),
        torch.tensor([1, 1]),
        alone[:2],
        torch.tensor([False, True]),
    )
    assert answers["acc_plus"].item() == 1


def fresh():
    """Every metric, with the name of its rows."""
    return {
        "recall": [
            metrics.ImageTextRecall(2, way, ties)
            for way in ("both", "image_to_text", "text_to_image")
            for ties in ("min", "mean", "max")
        ],
        "classes": [metrics.MeanPerClassRecall(ties) for ties in ("min", "mean", "max")],
        "choice": [metrics.ChoiceAccuracy(ties) for ties in ("miss", "half", "hit")],
        "pairs": [metrics.PairScores()],
        "gap": [metrics.MatchingGap("r")],
        "skew": [metrics.MaxSkew(3), metrics.MaxSkew(3, [1, 2, 3]), metrics.NDKL(at=5)],
        "questions": [metrics.CounterfactualAccuracy()],
    }


def slowly(data):
    """What the pure functions say of all rows."""
    images, texts, ids = data["recall"]
    first = [ids.tolist().index(number) for number in range(9)]
    standings = ranking.standings(texts, images[first], ids)
    ways = {"both": list(standings), **{way: [way] for way in standings}}
    scores, truth = data["choice"][0], np.eye(3, dtype=int)[data["choice"][1]]
    chosen, right, photo, edited = data["questions"]
    hits = [
        sum(costs[answer] <= costs).item() == 1
        for costs, answer in zip(chosen, right.tolist(), strict=True)
    ]
    by_photo = [
        [hit for hit, where, is_edited in zip(hits, photo, edited, strict=True)
         if where == number and is_edited] for number in range(ROWS // 3)
    ]  # fmt: skip
    asked = choices.accuracies(np.array(hits[: ROWS // 3]), list(map(np.array, by_photo)))
    rankings = []
    for query in (0, 1):
        mine = torch.arange(query, ROWS, 2)
        order = skew_metrics.rank_images(data["skew"][0][mine], [str(n) for n in mine.tolist()])
        rankings.append(data["skew"][1][mine].numpy()[order])
    tops = [np.bincount(ranked[:3], minlength=3) for ranked in rankings]
    gaps = ranking.gaps(dict(zip(ranking.SCORES["r"], data["gap"], strict=True)))
    return {
        "recall": [
            np.mean([standings[way].hits(2, ties).mean() for way in ways[direction]])
            for direction in ("both", "image_to_text", "text_to_image")
            for ties in ("min", "mean", "max")
        ],
        "classes": [
            classification.mean_per_class_recall(*data["classes"], ties)
            for ties in ("min", "mean", "max")
        ],
        "choice": [
            choices.choice_hits(scores, truth, ties).mean() for ties in ("miss", "half", "hit")
        ],
        "pairs": [choices.winoground(data["pairs"][0])],
        "gap": [{name: gap.mean() for name, gap in gaps.items()}],
        "skew": [
            np.mean([skew_metrics.max_skew(top, [4, 4, 4]) for top in tops]),
            np.mean([skew_metrics.max_skew(top, [1, 2, 3]) for top in tops]),
            np.mean([skew_metrics.ndkl(ranked, np.bincount(ranked), 5) for ranked in rankings]),
        ],
        "questions": [{k: v for k, v in vars(asked).items() if k != "images"}],
    }


def plain(value):
    return {k: v.item() for k, v in value.items()} if isinstance(value, dict) else value.item()


def assert_same(actual, wanted):
    for name, values in wanted.items():
        for computed, value in zip(actual[name], values, strict=True):
            assert computed == pytest.approx(value, rel=1e-12, nan_ok=True), name


@settings(max_examples=10)
@given(seed=st.integers(0, 2**16), size=st.integers(1, ROWS))
def test_batches_of_any_size_give_the_number_of_the_pure_function(seed, size):
    data, every = rows(seed), fresh()
    for name, given_rows in data.items():
        for start in range(0, ROWS, size):
            for metric in every[name]:
                metric.update(*(part[start : start + size] for part in given_rows))
    computed = {name: [plain(metric.compute()) for metric in some] for name, some in every.items()}
    assert_same(computed, slowly(data))


def compute_in(rank, folder):
    """Compute everything of a third of the rows, or the rest; pairs are all in process 0."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    every = fresh()
    for name, given_rows in rows(5).items():
        cut = ROWS if name == "pairs" else ROWS // 3
        mine = slice(cut) if rank == 0 else slice(cut, None)
        for metric in every[name]:
            if len(given_rows[0][mine]):
                metric.update(*(part[mine] for part in given_rows))
    computed = {name: [plain(metric.compute()) for metric in some] for name, some in every.items()}
    (folder / f"{rank}.json").write_text(json.dumps(computed))
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_compute_what_one_computes(tmp_path):
    processes = [children.start(compute_in, rank, tmp_path) for rank in (0, 1)]
    for process in processes:
        process.join()
    for rank in (0, 1):
        assert_same(json.loads((tmp_path / f"{rank}.json").read_text()), slowly(rows(5)))


def test_a_collection_keeps_one_copy_for_all_cutoffs_and_rules_for_ties():
    images, texts, ids = rows(0)["recall"]
    both = MetricCollection({"R@1": metrics.ImageTextRecall(), "R@2": metrics.ImageTextRecall(2)})
    both.update(images=images, texts=texts, image_ids=ids)
    assert len(both.compute_groups) == 1
    distinct = torch.eye(3)  # without ties the rules agree, and their states are shared
    rules = MetricCollection({
        "miss": metrics.ChoiceAccuracy(), "hit": metrics.ChoiceAccuracy("hit"),
        "min": metrics.MeanPerClassRecall("min"), "max": metrics.MeanPerClassRecall("max"),
    })  # fmt: skip
    rules.update(distinct, torch.arange(3))
    rules.update(torch.zeros(3, 3), torch.arange(3))
    values = {name: value.item() for name, value in rules.compute().items()}
    assert values == {"miss": 0.5, "hit": 1.0, "min": 1.0, "max": 0.5}


def test_a_lightning_module_logs_them_as_any_other_metric():
    import lightning.pytorch as pl

    images, texts, ids = rows(3)["recall"]

    class Frozen(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.recall = metrics.ImageTextRecall(2)
            self.scores = MetricCollection({"choice": metrics.ChoiceAccuracy()}, prefix="val/")

        def validation_step(self, batch, number):
            self.recall.update(images[batch], texts[batch], ids[batch])
            self.scores.update(*(part[batch] for part in rows(3)["choice"]))
            self.log("val/recall@2", self.recall)
            self.log_dict(self.scores)

    trainer = pl.Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False
    )
    batches = torch.utils.data.DataLoader(torch.arange(ROWS), batch_size=7)
    [logged] = trainer.validate(Frozen(), batches, verbose=False)
    expected = slowly(rows(3))
    assert logged["val/recall@2"] == pytest.approx(expected["recall"][1])
    assert logged["val/choice"] == pytest.approx(expected["choice"][0])


def test_pairs_without_a_number_have_images_of_their_own():
    numbered, alone = metrics.ImageTextRecall(), metrics.ImageTextRecall()
    images, texts = torch.randn(6, 4), torch.randn(6, 4)
    numbered.update(images, texts, torch.arange(6))
    alone.update(images[:4], texts[:4])
    alone.update(images[4:], texts[4:])
    assert alone.compute() == numbered.compute()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: metrics.ImageTextRecall().compute(), "saw no row"),
        (lambda: metrics.ImageTextRecall(ties="best"), "choose from min, mean, max"),
        (lambda: metrics.ImageTextRecall()(torch.ones(2, 3), torch.ones(3, 3)), "no pairs"),
        (lambda: metrics.ImageTextRecall()(*torch.ones(2, 2, 3), torch.tensor([-1, 0])), "from 0"),
        (lambda: metrics.PairScores()(torch.ones(2, 3, 2)), "pairs, 2, 2"),
        (lambda: metrics.PairScores()(torch.full((1, 2, 2), torch.nan)), "NaN"),
        (lambda: metrics.ChoiceAccuracy()(torch.ones(1, 2), torch.tensor([2])), "outside 0 to 1"),
        (lambda: metrics.CounterfactualAccuracy()(*[torch.zeros(2).long()] * 3, torch.zeros(2)),
         "several basic"),
    ],
)  # fmt: skip
def test_invalid_rows_are_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_plot_draws_numbers_and_numbers_by_name():
    import matplotlib as mpl

    mpl.use("agg")
    for name in ("recall", "pairs"):
        metric = fresh()[name][0]
        metric.update(*rows(1)[name])
        figure, _ = metric.plot()
        assert figure.axes
