"""Benchmarks on a small world with the shipped model, against one example at a time."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cfaug.compositional.pairs import PairMatching
from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.data.index import open_index
from cfaug.evaluation.classification import Classes, ZeroShot
from cfaug.evaluation.retrieval import Retrieval
from cfaug.shapescapes.settings import PROMPTS, SUBJECTS

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
    for one in evaluation.outcomes:
        if one.metric in items:
            known = items[one.metric][~np.isnan(items[one.metric])]
            assert (one.value, one.n) == (pytest.approx(known.mean(), abs=1e-12), len(known))
    return {o.metric: o.value for o in evaluation.outcomes}


def test_retrieval(encoder, opened):
    index = opened["ood_pairs"]
    found = values(Retrieval(name="r", batch_size=5).ask(index).run(encoder))
    texts, images = one_by_one(encoder, index)
    for k in (1, 5, 10):
        by_image = by_text = 0.0
        for i in range(len(index)):
            others = [j for j in range(len(index)) if j != i]
            by_image += sum(texts[j] @ images[i] > texts[i] @ images[i] for j in others) < k
            by_text += sum(images[j] @ texts[i] > texts[i] @ images[i] for j in others) < k
        assert found[f"image_to_text_R@{k}"] == pytest.approx(by_image / len(index))
        assert found[f"text_to_image_R@{k}"] == pytest.approx(by_text / len(index))


def test_pair_matching(encoder, opened):
    index = opened["ood_pairs"]
    benchmark = PairMatching(name="p", batch_size=5).ask(index)
    found = values(benchmark.run(encoder))
    texts, images = one_by_one(encoder, index)
    text = image = group = 0
    for i in range(0, len(index), 2):
        s = texts[i : i + 2] @ images[i : i + 2].T
        t = s[0, 0] > s[1, 0] and s[1, 1] > s[0, 1]
        m = s[0, 0] > s[0, 1] and s[1, 1] > s[1, 0]
        text, image, group = text + t, image + m, group + (t and m)
    n = len(index) // 2
    assert found == pytest.approx(
        {"text_score": text / n, "image_score": image / n, "group_score": group / n}
    )
    # Kept pixels of the first run are used by the second.
    assert values(benchmark.run(encoder)) == found


def test_what_cannot_be_asked_is_refused(opened, tmp_path):
    from skimage import data
    from skimage.io import imsave

    imsave(tmp_path / "cat.png", data.chelsea(), check_contrast=False)
    line = {"image": "cat.png", "captions": ["a cat", "a tabby cat"]}
    (tmp_path / "captions.jsonl").write_text(json.dumps(line) + "\n")
    photos = open_index(tmp_path, tmp_path / "index")
    with pytest.raises(UserError, match="at least two images"):
        Retrieval(name="r").ask(photos)
    with pytest.raises(UserError, match=r"cat\.png.* has no class label"):
        ZeroShot(name="z").ask(photos, CLASSES)
    with pytest.raises(UserError, match="not among the classes"):
        ZeroShot(name="z").ask(opened["id"], Classes(["zebra"], ["zebra"], PROMPTS))
    with pytest.raises(UserError, match="two members"):
        PairMatching(name="p").ask(opened["id"])


def test_several_captions_of_one_image_are_one_query(encoder, tmp_path):
    from skimage import data
    from skimage.io import imsave

    with (tmp_path / "captions.jsonl").open("w") as handle:
        for name in ("chelsea", "coffee", "rocket"):
            imsave(tmp_path / f"{name}.png", getattr(data, name)(), check_contrast=False)
            line = {"image": f"{name}.png", "captions": [name, f"a {name}", f"the {name}"]}
            handle.write(json.dumps(line) + "\n")
    index = open_index(tmp_path, tmp_path / "index")
    counts = {o.metric: o.n for o in Retrieval(name="r").ask(index).run(encoder).outcomes}
    assert (counts["image_to_text_R@1"], counts["text_to_image_R@1"]) == (3, 9)
    found = Retrieval(name="r", captions_per_image=1).ask(index).run(encoder)
    counts = {o.metric: o.n for o in found.outcomes}
    assert (counts["image_to_text_R@1"], counts["text_to_image_R@1"]) == (3, 3)


def test_every_item_is_named_with_what_it_was_sampled_with(encoder, opened):
    index = opened["ood_pairs"]
    found = Retrieval(name="r", batch_size=5).ask(index).run(encoder).items
    keys = [index.key(row) for row in range(len(index))]
    assert list(found["item"]) == [f"{kind} {key}" for kind in ("image", "text") for key in keys]
    # Both members of a pair are of one group, as images and as captions.
    assert [list(found["cluster"]).count(one) for one in found["cluster"]] == [4] * 2 * len(keys)
    right = np.asarray(found["above"]) == 0
    where = ~np.isnan(found["text_to_image_R@1"])
    assert (found["text_to_image_R@1"][where] == right[where]).all()
    pairs = PairMatching(name="p").ask(index).run(encoder).items
    assert list(pairs["item"]) == keys[::2]
    assert ((pairs["text 0 image 0"] > pairs["text 1 image 0"])[pairs["text_score"] == 1]).all()
    index = opened["id"]
    shown = ZeroShot(name="z").ask(index, CLASSES).run(encoder).items
    assert list(shown["label"]) == [index.label(row) for row in range(len(index))]
    assert ((shown["label"] == shown["predicted"]) == (shown["acc1"] == 1)).all()


class Rounding:
    """An encoder whose last digits depend on the place in the batch, as on some processors."""

    def __init__(self, encoder):
        self._encoder = encoder

    def __getattr__(self, name):
        return getattr(self._encoder, name)

    def _round(self, found):
        import torch

        return found * (1 + 1e-6 * torch.arange(len(found)).remainder(3)[:, None]) + (
            1e-6 * torch.arange(len(found))[:, None] * torch.arange(found.shape[1])
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
    found = Retrieval(name="r", batch_size=5).ask(index).run(Rounding(encoder))
    assert list(found.items["tied"][:16]) == [15] * 16  # every caption is every other
    assert (found.items["tied"][16:] >= 1).all()  # every image has its copy
    assert values(found)["image_to_text_R@1"] == pytest.approx(1 / 16)
    assert values(found) == values(
        Retrieval(name="r", batch_size=3).ask(index).run(Rounding(encoder))
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
    asked = [Retrieval(name="r").ask(opened[name])]
    asked += [ZeroShot(name="z").ask(opened[name], CLASSES)] if name == "id" else []
    for benchmark in asked:
        outcomes = benchmark.run(OneAnswer(encoder)).outcomes
        assert len(outcomes) > 2
        for outcome in outcomes:
            assert outcome.chance == pytest.approx(outcome.value, abs=1e-12), outcome.metric


def test_chance_of_pairs_is_the_mean_over_random_scores():
    from cfaug.compositional.pairs import CHANCE
    from cfaug.stats.choices import pair_hits

    drawn = pair_hits(np.random.default_rng(0).random((40_000, 2, 2)))
    assert drawn.keys() == CHANCE.keys()
    for name, hits in drawn.items():
        assert hits.mean() == pytest.approx(CHANCE[name], abs=0.01), name
