"""Labels of ECCV Caption and CxC, laid out by hand as released, and retrieval with them."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.evaluation.retrieval import Retrieval
from cfaug.evaluation.right_pairs import match_right_pairs, read_right_pairs
from cfaug.models.specs import HFClip
from tests.data.coco_labels import CXC, PHOTOS, coco_name, cxc, eccv, karpathy, sentence
from tests.data.making import noise_image
from tests.evaluation.test_bench import one_by_one
from tests.stats.eccv import compute_coco1k_r_at_k, compute_eccv_metrics, compute_r_at_k


@pytest.fixture(scope="module")
def model():
    return HFClip("zoo:clip-0").load().eval()


@pytest.fixture
def index(tmp_path):
    karpathy(tmp_path / "coco")
    return open_index(f"{tmp_path / 'coco'}:test", tmp_path / "index")


def rankings(model, index):
    """Captions and images by id, ranked as the released code wants them, one query at a time."""
    texts, images = one_by_one(model, index)
    cids = [sentence(photo, member) for photo in PHOTOS for member in (0, 1)]
    i2t = {photo: [cids[at] for at in np.argsort(-(texts @ images[2 * n]))]
           for n, photo in enumerate(PHOTOS)}  # fmt: skip
    t2i = {cid: [PHOTOS[at] for at in np.argsort(-(images[::2] @ texts[n]))]
           for n, cid in enumerate(cids)}  # fmt: skip
    return {"image_to_text": i2t, "text_to_image": t2i}


def outcomes(evaluation, way: str) -> dict[str, float]:
    start = f"{way}_relabelled_"
    return {
        outcome.metric.removeprefix(start): outcome.value
        for outcome in evaluation.outcomes
        if outcome.metric.startswith(start)
    }


def test_eccv_caption_s_numbers_are_those_of_its_code(model, index, tmp_path):
    file = eccv(tmp_path / "labels")
    evaluation = Retrieval(name="r", also_right=str(file)).use(index).run(model)
    Retrieval.item_schema.check(evaluation.items, "items")
    ranked = rankings(model, index)
    lists = {way: json.loads(file.with_name(f"eccv_{name}.json").read_text())
             for way, name in (("image_to_text", "image_to_caption"),
                               ("text_to_image", "caption_to_image"))}  # fmt: skip
    for way, answers in lists.items():
        answers = {int(query): some for query, some in answers.items()}
        theirs = compute_eccv_metrics(ranked[way], answers)
        theirs |= {f"R@{k}": compute_r_at_k(ranked[way], answers, k) for k in (1, 5, 10)}
        assert outcomes(evaluation, way) == pytest.approx(theirs)
        column = np.asarray(evaluation.items[f"{way}_relabelled_mAP@R"])
        assert (~np.isnan(column)).sum() == len(answers)
        assert np.nanmean(column) == pytest.approx(theirs["mAP@R"])
    # Either file stands for both.
    other = file.with_name("eccv_caption_to_image.json")
    again = Retrieval(name="r", also_right=str(other)).use(index)
    assert again.data_hash == Retrieval(name="r", also_right=str(file)).use(index).data_hash


def test_the_plain_numbers_are_the_same_with_labels(model, index, tmp_path):
    plain = Retrieval(name="r").use(index).run(model)
    more = Retrieval(name="r", also_right=str(cxc(tmp_path / "sits.csv"))).use(index).run(model)
    assert more.outcomes[: len(plain.outcomes)] == plain.outcomes
    for name, values in plain.items.items():
        np.testing.assert_array_equal(np.asarray(more.items[name]), np.asarray(values))


def test_cxc_s_ratings_add_and_take_away(model, index, tmp_path):
    file = cxc(tmp_path / "sits_test.csv")
    evaluation = Retrieval(name="r", also_right=str(file)).use(index).run(model)
    right = {"image_to_text": {}, "text_to_image": {}}
    for line in csv.DictReader(file.open()):  # as ECCV Caption's merge.py makes its two files
        cid = int(line["caption"].split(":")[-1])
        photo = int(line["image"].split(".")[0].split("_")[-1])
        if float(line["agg_score"]) >= 3:
            right["image_to_text"].setdefault(photo, []).append(cid)
            right["text_to_image"].setdefault(cid, []).append(photo)
    assert len(right["text_to_image"]) == 11  # one caption is right of nothing, and not asked
    for way, ranked in rankings(model, index).items():
        theirs = {f"R@{k}": compute_r_at_k(ranked, right[way], k) for k in (1, 5, 10)}
        ours = outcomes(evaluation, way)
        assert {name: ours[name] for name in theirs} == pytest.approx(theirs)
    counts = {outcome.metric: outcome.n for outcome in evaluation.outcomes}
    assert counts["text_to_image_relabelled_R@1"] == 11


def test_pairs_of_your_own_are_named_by_text_and_file(index, tmp_path):
    file = tmp_path / "also.csv"
    file.write_text(f"caption,image\na large cube,{PHOTOS[0]}\nA RED star,{coco_name(PHOTOS[0])}\n")
    texts, photos = np.arange(12), np.arange(0, 12, 2)
    right = match_right_pairs(read_right_pairs(file), index, texts, photos, texts // 2)
    assert right["image_to_text"].candidates[0].tolist() == [0, 1, 3, 4]
    assert [some.tolist() for some in right["text_to_image"].candidates][:5] == [
        [0], [0], [1], [0, 1], [0, 2],
    ]  # fmt: skip


def test_what_is_not_of_the_source_is_left_out_and_counted(index, tmp_path, capsys):
    known, unknown = sentence(PHOTOS[0], 0), "COCO_val2014:sentid:5"
    file = cxc(
        tmp_path / "sits.csv",
        f"{unknown},{coco_name(PHOTOS[0])},5,c2i_intrasim",
        f"COCO_val2014:sentid:{known},{coco_name(9)},5,c2i_intrasim",
    )
    Retrieval(name="r", also_right=str(file)).use(index)
    said = " ".join(capsys.readouterr().err.split())
    assert f"15 of 17 pairs are of {index.source}" in said
    assert f"caption {unknown}, image {coco_name(9)}" in said


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (f"{CXC}\nCOCO_val2014:sentid:5,{coco_name(9)},5,x", "a.csv", r"none of its 1 pairs .*:5"),
        (f"{CXC}\nCOCO_val2014:sentid:5,{coco_name(9)},7,x", "a.csv", "agg_score='7' should be"),
        (f"{CXC}\na,b,,x", "a.csv", "agg_score='' should be a number from 0 to 5"),
        ("caption,image,score\na,b,1", "a.csv", "line 2: a right pair has the columns"),
        ("caption,image,agg_score\na,b,1\na,b,4", "a.csv", "line 3: elsewhere .* the opposite"),
        ("caption,image", "a.csv", "names no pair"),
        ("{}", "labels.json", r"name it \.\.\._image_to_caption\.json or "),
        ('{"1": [2]}', "a_image_to_caption.json", "a_caption_to_image.json in the other"),
        ('{"1": []}', "eccv_image_to_caption.json", "'1': there should be a list of ids"),
        ('{"1": [2.5]}', "eccv_caption_to_image.json", "'1': there should be a list of ids"),
    ],
)
def test_a_file_of_another_form_is_refused(index, tmp_path, content, name, message):
    eccv(tmp_path / "labels")
    file = tmp_path / "labels" / name
    file.write_text(content)
    with pytest.raises(UserError, match=message):
        Retrieval(name="r", also_right=str(file)).use(index)


def test_ids_need_a_source_with_ids(tmp_path):
    for number in range(2):
        (tmp_path / f"{number}.png").write_bytes(noise_image(number))
    source, file = tmp_path / "captions.csv", cxc(tmp_path.with_name("labels.csv"))
    source.write_text("image,caption\n0.png,a ball\n1.png,a cube\n")
    plain = open_index(tmp_path, tmp_path / "index")
    with pytest.raises(UserError, match="has none: name one of Karpathy's splits"):
        Retrieval(name="r", also_right=str(file)).use(plain)
    # A list of your own may have a column of ids.
    first = sentence(PHOTOS[0], 0)
    source.write_text(f"image,caption,caption_id\n0.png,a ball,{first}\n1.png,a cube,2\n")
    listed = open_index(tmp_path, tmp_path / "index")
    file.write_text(f"caption,image\nCOCO_val2014:sentid:{first},1.png\n")
    right = Retrieval(name="r", also_right=str(file)).use(listed)._right
    assert [some.tolist() for some in right["text_to_image"].candidates] == [[0, 1], [1]]


def test_folds_are_the_mean_of_the_tests_of_their_own(model, index):
    evaluation = Retrieval(name="r", folds=3).use(index).run(model)
    value = {outcome.metric: outcome.value for outcome in evaluation.outcomes}
    assert len(evaluation.items["item"]) == 18
    ranked, folds = rankings(model, index), [PHOTOS[:2], PHOTOS[2:4], PHOTOS[4:]]
    for k in (1, 5, 10):
        of_fold: dict[str, list[float]] = {"image_to_text": [], "text_to_image": []}
        for photos in folds:  # as ECCV Caption's coco_1k_recalls
            captions = {p: [sentence(p, 0), sentence(p, 1)] for p in photos}
            owners = {cid: [p] for p, cids in captions.items() for cid in cids}
            of_fold["image_to_text"].append(
                compute_coco1k_r_at_k(ranked["image_to_text"], captions, set(owners), k)
            )
            of_fold["text_to_image"].append(
                compute_coco1k_r_at_k(ranked["text_to_image"], owners, set(photos), k)
            )
        for way, recalls in of_fold.items():
            assert value[f"{way}_R@{k}"] == pytest.approx(np.mean(recalls)), (way, k)
    chance = {outcome.metric: outcome.chance for outcome in evaluation.outcomes}
    assert chance["text_to_image_R@1"] == 0.5
    with pytest.raises(UserError, match=r"folds=4 needs two images for each; .* has 6"):
        Retrieval(name="r", folds=4).use(index)
    with pytest.raises(UserError, match="exclude each other"):
        Retrieval(name="r", folds=3, also_right="x.csv")


def test_folds_of_captions_that_do_not_lie_together(model, index):
    """The captions of an image may lie apart, where it is of several sets."""
    plain = Retrieval(name="r", folds=2).use(index)
    mixed = Retrieval(name="r", folds=2).use(index)
    order = np.random.default_rng(0).permutation(12)
    mixed._rows, mixed._image_of_text = plain._rows[order], plain._image_of_text[order]
    first, second = plain.run(model), mixed.run(model)
    for name in ("text_to_image_R@1", "above"):
        captions = np.asarray(first.items[name])[6:]
        assert np.array_equal(captions[order], np.asarray(second.items[name])[6:])


def test_a_prompt_goes_around_every_caption(model, index):
    prompted = Retrieval(name="r", prompt="a photo of {c}").use(index)
    evaluation = prompted.run(model)
    plain = Retrieval(name="r").use(index)
    index_text = type(index).text
    try:
        type(index).text = lambda self, row: f"a photo of {index_text(self, row)}"
        expected = plain.run(model)
    finally:
        type(index).text = index_text
    assert evaluation.outcomes == expected.outcomes
    assert prompted.data_hash != plain.data_hash
    with pytest.raises(UserError, match=r"has no \{c\} where the caption goes"):
        Retrieval(name="r", prompt="a photo of")
