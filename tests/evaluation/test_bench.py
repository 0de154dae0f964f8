"""Benchmarks on a small world with the shipped model, against one example at a time."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.protocols import Benchmark, Matcher
from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from cfaug.evaluation import cached_model as features
from cfaug.evaluation.cached_model import CachedMatcher
from cfaug.evaluation.choices.pairs import PairMatching
from cfaug.evaluation.classification import ZeroShot
from cfaug.evaluation.records import Classes
from cfaug.evaluation.retrieval import Matching, Retrieval
from cfaug.stats.ranking import GAPS, SCORES, gaps_where_scored
from cfaug.worlds.shapescapes.settings import PROMPTS, SUBJECTS
from tests.evaluation.caption_items import open_sets
from tests.evaluation.choices.test_pairs import apart, larger_sets

CLASSES = Classes(SUBJECTS, SUBJECTS, PROMPTS)


def one_by_one(encoder, index):
    """Return unit embeddings of every row's text and image, a batch of one at a time."""
    import torch

    encoder.eval()

    def unit(vector):
        vector = vector.detach().double().numpy()[0]
        return vector / np.linalg.norm(vector)

    texts, images = [], []
    for row in range(len(index)):
        pixels = encoder.transform(decode_image(index.read_image(row), "it"))[None].copy()
        texts.append(unit(encoder.encode_text(encoder.tokenize([index.text(row)]))))
        images.append(unit(encoder.encode_image(torch.from_numpy(pixels))))
    return np.array(texts), np.array(images)


def values(evaluation):
    """Return the outcomes by metric, after a look at the items they are means of."""
    items = {name: np.asarray(values) for name, values in evaluation.items.items()}
    assert len(set(items["item"])) == len(items["item"])
    for outcome in evaluation.outcomes:
        if outcome.metric in items:
            known = items[outcome.metric][~np.isnan(items[outcome.metric])]
            assert (outcome.value, outcome.n) == (
                pytest.approx(known.mean(), abs=1e-12),
                len(known),
            )
    return {o.metric: o.value for o in evaluation.outcomes}


def test_retrieval(encoder, opened):
    index = opened["ood_pairs"]
    scores = values(Retrieval(name="r", batch_size=5).use(index).run(encoder))
    texts, images = one_by_one(encoder, index)
    for k in (1, 5, 10):
        by_image = by_text = 0.0
        for i in range(len(index)):
            others = [j for j in range(len(index)) if j != i]
            by_image += sum(texts[j] @ images[i] > texts[i] @ images[i] for j in others) < k
            by_text += sum(images[j] @ texts[i] > texts[i] @ images[i] for j in others) < k
        assert scores[f"image_to_text_R@{k}"] == pytest.approx(by_image / len(index))
        assert scores[f"text_to_image_R@{k}"] == pytest.approx(by_text / len(index))


def test_pair_matching(encoder, opened):
    index = opened["ood_pairs"]
    benchmark = PairMatching(name="p", batch_size=5).use(index)
    scores = values(benchmark.run(encoder))
    texts, images = one_by_one(encoder, index)
    text = image = group = 0
    for i in range(0, len(index), 2):
        s = texts[i : i + 2] @ images[i : i + 2].T
        t = s[0, 0] > s[1, 0] and s[1, 1] > s[0, 1]
        m = s[0, 0] > s[0, 1] and s[1, 1] > s[1, 0]
        text, image, group = text + t, image + m, group + (t and m)
    n = len(index) // 2
    assert scores == pytest.approx(
        {"text_score": text / n, "image_score": image / n, "group_score": group / n}
    )
    # Kept pixels of the first run are used by the second.
    assert values(benchmark.run(encoder)) == scores


def test_what_cannot_be_asked_is_refused(opened, tmp_path):
    from skimage import data
    from skimage.io import imsave

    imsave(tmp_path / "cat.png", data.chelsea(), check_contrast=False)
    line = {"image": "cat.png", "captions": ["a cat", "a tabby cat"]}
    (tmp_path / "captions.jsonl").write_text(json.dumps(line) + "\n")
    photos = open_index(tmp_path, tmp_path / "index")
    with pytest.raises(UserError, match="at least two images"):
        Retrieval(name="r").use(photos)
    with pytest.raises(UserError, match=r"cat\.png.* has no class label"):
        ZeroShot(name="z").use(photos, CLASSES)
    with pytest.raises(UserError, match="not among the classes"):
        ZeroShot(name="z").use(opened["id"], Classes(["zebra"], ["zebra"], PROMPTS))
    with pytest.raises(UserError, match="two members"):
        PairMatching(name="p").use(opened["id"])


def test_several_captions_of_one_image_are_one_query(encoder, tmp_path):
    from skimage import data
    from skimage.io import imsave

    with (tmp_path / "captions.jsonl").open("w") as handle:
        for name in ("chelsea", "coffee", "rocket"):
            imsave(tmp_path / f"{name}.png", getattr(data, name)(), check_contrast=False)
            line = {"image": f"{name}.png", "captions": [name, f"a {name}", f"the {name}"]}
            handle.write(json.dumps(line) + "\n")
    index = open_index(tmp_path, tmp_path / "index")
    counts = {o.metric: o.n for o in Retrieval(name="r").use(index).run(encoder).outcomes}
    assert (counts["image_to_text_R@1"], counts["text_to_image_R@1"]) == (3, 9)
    evaluation = Retrieval(name="r", captions_per_image=1).use(index).run(encoder)
    counts = {o.metric: o.n for o in evaluation.outcomes}
    assert (counts["image_to_text_R@1"], counts["text_to_image_R@1"]) == (3, 3)


def test_every_item_is_named_with_what_it_was_sampled_with(encoder, opened):
    index = opened["ood_pairs"]
    items = Retrieval(name="r", batch_size=5).use(index).run(encoder).items
    keys = [index.key(row) for row in range(len(index))]
    assert list(items["item"]) == [f"{kind} {key}" for kind in ("image", "text") for key in keys]
    # Both members of a pair are of one group, as images and as captions.
    assert [list(items["cluster"]).count(cluster) for cluster in items["cluster"]] == [4] * 2 * len(
        keys
    )
    right = np.asarray(items["above"]) == 0
    where = ~np.isnan(items["text_to_image_R@1"])
    assert (items["text_to_image_R@1"][where] == right[where]).all()
    pairs = PairMatching(name="p").use(index).run(encoder).items
    assert list(pairs["item"]) == keys[::2]
    assert ((pairs["text 0 image 0"] > pairs["text 1 image 0"])[pairs["text_score"] == 1]).all()
    index = opened["id"]
    shown = ZeroShot(name="z").use(index, CLASSES).run(encoder).items
    assert list(shown["label"]) == [index.label(row) for row in range(len(index))]
    assert ((shown["label"] == shown["predicted"]) == (shown["acc1"] == 1)).all()


class Rounding:
    """An encoder whose last digits depend on the place in the batch, as on some processors."""

    def __init__(self, encoder):
        self._encoder = encoder

    def __getattr__(self, name):
        return getattr(self._encoder, name)

    def _round(self, vectors):
        import torch

        return vectors * (1 + 1e-6 * torch.arange(len(vectors)).remainder(3)[:, None]) + (
            1e-6 * torch.arange(len(vectors))[:, None] * torch.arange(vectors.shape[1])
        )

    def encode_image(self, pixels):
        return self._round(self._encoder.encode_image(pixels))

    def encode_text(self, tokens):
        return self._round(self._encoder.encode_text(tokens))


def test_equal_images_and_captions_tie_though_a_batch_rounds_by_place(encoder, opened, tmp_path):
    """Eight photographs, each twice, with one caption for all of them."""
    lines = []
    for copy in (0, 1):
        for row in range(8):
            name = f"{row}_{copy}.png"
            (tmp_path / name).write_bytes(opened["id"].read_image(row))
            lines.append(json.dumps({"image": name, "caption": "a thing"}))
    (tmp_path / "captions.jsonl").write_text("\n".join(lines))
    index = open_index(tmp_path, tmp_path / "index")
    evaluation = Retrieval(name="r", batch_size=5).use(index).run(Rounding(encoder))
    assert list(evaluation.items["tied"][:16]) == [15] * 16  # every caption is every other
    assert (evaluation.items["tied"][16:] >= 1).all()  # every image has its copy
    assert values(evaluation)["image_to_text_R@1"] == pytest.approx(1 / 16)
    assert values(evaluation) == values(
        Retrieval(name="r", batch_size=3).use(index).run(Rounding(encoder))
    )


class OneAnswer(Rounding):
    """A model that finds everything equal."""

    def encode_image(self, images):
        return self._encoder.encode_image(images) * 0 + 1

    def encode_text(self, tokens):
        return self._encoder.encode_text(tokens) * 0 + 1


@pytest.mark.parametrize("name", ["ood_pairs", "id"])
def test_chance_is_what_a_model_reaches_that_finds_everything_equal(encoder, opened, name):
    """Ties are worth the mean over every order, so its score is chance, exactly."""
    asked = [Retrieval(name="r").use(opened[name])]
    asked += [ZeroShot(name="z").use(opened[name], CLASSES)] if name == "id" else []
    for benchmark in asked:
        outcomes = benchmark.run(OneAnswer(encoder)).outcomes
        assert len(outcomes) > 2
        for outcome in outcomes:
            assert outcome.chance == pytest.approx(outcome.value, abs=1e-12), outcome.metric


def test_chance_of_pairs_is_the_mean_over_random_scores():
    from cfaug.evaluation.choices.pairs import CHANCE
    from cfaug.stats.choices import pair_hits

    drawn = pair_hits(np.random.default_rng(0).random((40_000, 2, 2)))
    assert drawn.keys() == CHANCE.keys()
    for name, hits in drawn.items():
        assert hits.mean() == pytest.approx(CHANCE[name], abs=0.01), name


# Matching gaps of a small world, against one pair at a time, and the pairs they are kept as.


def score_of(matcher, index, row, text):
    import torch

    pixels = matcher.transform(decode_image(index.read_image(row), "it"))[None].copy()
    with torch.inference_mode():
        return float(matcher.match(torch.from_numpy(pixels), [text])[0])


def gaps_of(evaluation):
    """Return the gaps of an evaluation's items."""
    names = [name for some in SCORES.values() for name in some if name in evaluation.items]
    return gaps_where_scored({name: evaluation.items[name] for name in names})


def row_of(index, key):
    return next(row for row in range(len(index)) if index.key(row) == key)


def test_every_gap_is_the_papers(matcher, opened):
    pairs, real = opened["counterfactual_test"], opened["real_test"]
    benchmark = Matching(name="m", batch_size=4).use(pairs, real)
    assert isinstance(matcher, Matcher)
    assert isinstance(benchmark, Benchmark)
    evaluation = benchmark.run(matcher)
    gaps = gaps_of(evaluation)
    assert list(gaps) == list(GAPS)
    for i, key in enumerate(evaluation.items["item"]):
        item = {name: evaluation.items[name][i] for name in ("anchor", "random")}
        item |= {name: gap[i] for name, gap in gaps.items()}
        first = row_of(pairs, key)
        anchor, random = row_of(real, item["anchor"]), row_of(real, item["random"])
        assert real.text(anchor) == pairs.text(first)
        assert real.images[random] != real.images[anchor]

        def g(index, row, text):
            return score_of(matcher, index, row, text)

        c_o, c_c, c_r = pairs.text(first), pairs.text(first + 1), real.text(random)
        right = g(real, random, c_r)
        assert item["IR_r"] == pytest.approx(right - g(real, anchor, c_r), abs=1e-3)
        assert item["TR_r"] == pytest.approx(right - g(real, random, c_o), abs=1e-3)
        right = g(pairs, first + 1, c_c)
        assert item["IR_c"] == pytest.approx(right - g(pairs, first, c_c), abs=1e-3)
        assert item["TR_c"] == pytest.approx(right - g(pairs, first + 1, c_o), abs=1e-3)
    assert [o.metric for o in evaluation.outcomes] == list(GAPS)
    for outcome in evaluation.outcomes:
        assert outcome.value == sum(gaps[outcome.metric] > 0) / 9
        assert outcome.value == evaluation.items[outcome.metric].mean()
        assert outcome.n == 9


def test_the_random_pair_depends_on_the_pair_and_the_seed_alone(matcher, opened):
    pairs, real = opened["counterfactual_test"], opened["real_test"]

    def drawn(index, seed):
        items = Matching(name="m", seed=seed).use(index, real).run(matcher).items
        return dict(zip(items["item"], items["random"], strict=True))

    assert drawn(pairs, 0) == drawn(pairs, 0)
    assert drawn(pairs, 0) != drawn(pairs, 1)


def test_pairs_without_a_photograph_are_left_out_of_the_random_gaps(matcher, opened, tmp_path):
    pairs, real = opened["counterfactual_test"], opened["real_test"]
    lines = []
    for row in range(4):
        (tmp_path / f"{row}.png").write_bytes(real.read_image(row))
        lines.append(json.dumps({"image": f"{row}.png", "caption": f" {real.text(row).upper()}. "}))
    (tmp_path / "captions.jsonl").write_text("\n".join(lines))
    few = open_index(tmp_path, tmp_path / "index")
    benchmark = Matching(name="m").use(pairs, few)
    evaluation = benchmark.run(matcher)
    whole = gaps_of(evaluation)
    assert np.isfinite(whole["IR_r"]).sum() == 4
    assert np.isfinite(whole["IR_c"]).all()
    assert [o.n for o in evaluation.outcomes] == [4, 4, 9, 9]
    assert evaluation.items["anchor"][8] is None
    assert np.isnan(evaluation.items["IR_r"][8])


def test_without_photographs_at_all(matcher, opened):
    evaluation = Matching(name="m").use(opened["ood_pairs"], None).run(matcher)
    assert [o.metric for o in evaluation.outcomes] == ["IR_c", "TR_c"]
    assert not set(SCORES["r"]) & set(evaluation.items)
    assert evaluation.items["anchor"][0] is None


def test_an_edit_that_shows_the_same_image_has_a_gap_of_exactly_zero(matcher, opened, tmp_path):
    """Whatever batches both scores were computed in, and whatever these do to the last digits."""
    pairs = opened["counterfactual_test"]
    sets = []
    for i in range(5):
        image = {"0": pairs.read_image(2 * i)}
        texts = [pairs.text(2 * i), pairs.text(2 * i + 1)]
        members = tuple(Member(text, "0", str(i)) for text in texts)
        sets.append(CounterfactualSet(f"s{i}", str(i), members, image))
    write_shards(sets, tmp_path / "same")
    index = open_index(tmp_path / "same", tmp_path / "index")

    class Rounding:
        transform, kind, calls = matcher.transform, "logit", 0

        def match(self, pixels, texts):
            self.calls += 1
            return matcher.match(pixels, texts) * (1 + 1e-6 * self.calls)

    evaluation = Matching(name="m", batch_size=2).use(index, None).run(Rounding())
    gaps = gaps_of(evaluation)
    assert (gaps["IR_c"] == 0).all()
    assert (gaps["TR_c"] != 0).all()
    assert evaluation.outcomes[0].value == 0


@pytest.mark.slow
def test_kept_scores_are_the_computed_ones_to_the_last_digit(matcher, opened, tmp_path):
    pairs, real = opened["counterfactual_test"], opened["real_test"]

    def remembering(load):
        return CachedMatcher(load, "w", "settings", tmp_path, 2**30)

    def refuse():
        raise AssertionError("loaded")

    def said(asked, size):
        scores = Matching(name="m", batch_size=size).use(pairs, real).score(asked)
        return {name: values.tolist() for name, values in scores.items()}

    plain = said(matcher, 4)
    # What was asked in other batches before does not show.
    assert said(remembering(lambda: matcher), 9) == said(matcher, 9)
    assert said(remembering(lambda: matcher), 4) == plain
    again = remembering(refuse)
    assert said(again, 4) == plain
    assert again.kind == matcher.kind
    pieces = sorted(tmp_path.glob("*/score-*.npy"))
    assert len(pieces) == 12
    for damage in (lambda piece: piece.unlink(), lambda piece: piece.write_bytes(b"\x80\x04.")):
        damage(pieces[3])
        with pytest.raises(AssertionError, match="loaded"):
            [said(remembering(refuse), size) for size in (4, 9)]
        assert [said(remembering(lambda: matcher), 4), said(matcher, 9)] == [plain, said(again, 9)]
        assert said(remembering(lambda: matcher), 9) == said(matcher, 9)


@pytest.mark.parametrize("lost", [0, 7])
def test_a_model_that_diverged_is_said_so(matcher, opened, lost, monkeypatch):
    """Also where it is lost for random pairs alone, which is not the same as no photograph."""
    benchmark = Matching(name="m").use(opened["counterfactual_test"], opened["real_test"])
    scores = benchmark.score(matcher)
    scores[SCORES["r"][0]][lost:] = np.nan
    monkeypatch.setattr(benchmark, "score", lambda _: scores)
    with pytest.raises(UserError, match=rf"of {9 - lost} of 9 pairs is NaN .* smaller optim.lr"):
        benchmark.run(matcher)


def test_what_is_slow_is_written_batch_by_batch(matcher, opened, tmp_path, monkeypatch):
    monkeypatch.setattr(features, "KEPT_SECONDS", 0.0)
    keeping = CachedMatcher(lambda: matcher, "w", "settings", tmp_path, 2**30)
    Matching(name="m", batch_size=2).use(opened["ood_pairs"], None).score(keeping)
    assert len(list(tmp_path.glob("*/score-*.npy"))) == 3 * 7


def test_a_larger_set_is_its_original_with_each_of_the_others(matcher, tmp_path):
    sets = larger_sets()
    scores = []
    for name, some in (("larger", sets), ("apart", apart(sets))):
        benchmark = Matching(name="m").use(open_sets(some, tmp_path / name), None)
        scores.append(benchmark.score(matcher))
        assert len(set(benchmark.run(matcher).items["item"])) == 11
    for name, values in scores[0].items():
        np.testing.assert_allclose(values, scores[1][name], atol=1e-5)


def test_what_cannot_be_matched_is_refused(opened):
    with pytest.raises(UserError, match="two members"):
        Matching(name="m").use(opened["real_test"], None)
    with pytest.raises(UserError, match="none of the 14 captions"):
        Matching(name="m").use(opened["ood_pairs"], opened["real_test"])


def test_a_photo_of_several_sets_is_one_image(encoder, opened, tmp_path):
    """As TROHN has it: three pairs of one photo, two of another."""
    photos, edits = opened["id"], opened["ood_pairs"]
    lines = []
    for number, photo in enumerate((0, 1, 0, 0, 1)):
        image, edited = tmp_path / f"{photo}.png", tmp_path / f"edit_{number}.png"
        image.write_bytes(photos.read_image(photo))
        edited.write_bytes(edits.read_image(number))
        texts = {"caption": photos.text(number), "cf_caption": edits.text(number)}
        lines.append({"image": image.name, "cf_image": edited.name, **texts})
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, lines)))
    index = open_index(tmp_path, tmp_path / "index")
    evaluation = Retrieval(name="r", batch_size=5).use(index).run(encoder)
    counts = {outcome.metric: outcome.n for outcome in evaluation.outcomes}
    assert (counts["image_to_text_R@1"], counts["text_to_image_R@1"]) == (7, 10)
    texts, images = one_by_one(encoder, index)
    image_of = [0, 1, 2, 3, 0, 5, 0, 7, 2, 9]  # the first row that shows it
    scores = texts @ images[sorted(set(image_of))].T
    shown = np.array([sorted(set(image_of)).index(image) for image in image_of])
    right = scores[np.arange(10), shown]
    by_text = [(scores[row] > right[row]).sum() < 1 for row in range(10)]
    by_image = [scores[:, i].argmax() in np.flatnonzero(shown == i) for i in range(7)]
    recalls = values(evaluation)
    assert recalls["text_to_image_R@1"] == pytest.approx(np.mean(by_text))
    assert recalls["image_to_text_R@1"] == pytest.approx(np.mean(by_image))
