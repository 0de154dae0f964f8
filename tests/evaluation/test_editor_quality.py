"""benchmark=edit_quality: edits of the world whose damage is known, and of hand-laid sets."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import kendalltau, ttest_rel

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from cfaug.evaluation.context import EvaluationContext
from cfaug.evaluation.edit_masks import MaskFolder, decode_runs
from cfaug.evaluation.editor_quality import EditorQuality
from cfaug.evaluation.editor_report import (
    MEASURES,
    EditedItems,
    EditorGain,
    EditorsTable,
    compare_extremes,
    trade_off,
    verdicts,
)
from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.document import draw_figures
from cfaug.report.items import Items, write_items
from cfaug.report.results import RESULTS, Result, append_results
from cfaug.stats.image_metrics import psnr_outside, ssim_outside
from cfaug.worlds.shapescapes.drawing import Scene, encode_png, render
from cfaug.worlds.shapescapes.edit_oracle import WorldEdits
from cfaug.worlds.shapescapes.language import describe
from cfaug.worlds.shapescapes.oracle import edit_factors, redraw_edited
from cfaug.worlds.shapescapes.settings import STYLES, Factors
from tests.evaluation.joined import joined_sets

STYLE = STYLES["clear"]
NUMBERS = ("psnr", "ssim", "feature_distance", "success", "direction", "text_similarity")


def world_set(number, harm=0, wrong=False):
    """A photo with its reconstruction, a new background and a new colour.

    Args:
        harm: how much brighter every edited pixel becomes outside its mask.
        wrong: whether edits show the photo in place of what was asked for.
    """
    scene = Scene(Factors(("cat", "heart", "star")[number % 3], "red", "beach"), number)
    photo = render(scene, 64, STYLE).pixels
    rows = [(describe(scene.factors), None, photo)]
    rows.append((rows[0][0], Edit("reconstruction", "", ""), photo))
    for kind, after in (("background", "snow"), ("colour", "blue")):
        edited = Scene(edit_factors(scene.factors, kind, after), number)
        drawn, mask = redraw_edited(scene, edited, size=64, style=STYLE)
        pixels = (photo if wrong else drawn.pixels).astype(int)
        pixels[~mask] += harm
        rows.append(
            (describe(edited.factors), Edit(kind, getattr(scene.factors, kind), after),
             pixels.clip(0, 255).astype(np.uint8))
        )  # fmt: skip
    members = tuple(
        Member(text, str(n), f"photo-{number}", edit, scene.factors.subject, scene.record())
        for n, (text, edit, _) in enumerate(rows)
    )
    images = {str(n): encode_png(pixels) for n, (*_, pixels) in enumerate(rows)}
    return CounterfactualSet(f"photo-{number}", f"photo-{number}", members, images)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("editors")
    for name, about in {"good": {}, "harm": {"harm": 20}, "wrong": {"wrong": True}}.items():
        write_shards([world_set(n, **about) for n in range(4)], root / name)
    write_shards(joined_sets(), root / "joined")
    return root


def opened(root, data, **settings):
    context = EvaluationContext(
        open=lambda name: open_index(root / name, root / "index"), has_world=False,
        held_out=lambda: None, oracle=WorldEdits,
    )  # fmt: skip
    (benchmark,) = EditorQuality(data, **settings).open(context)
    return benchmark


def values(evaluation, **by):
    """Return {metric: value} of the outcomes of one part."""
    return {o.metric: o.value for o in evaluation.outcomes if dict(o.by) == by}


@pytest.fixture(scope="module")
def evaluated(folders, encoder):
    data = {"good": "good", "harm": ["harm", "harm"], "wrong": "wrong"}
    benchmark = opened(folders, data, judge="oracle")
    return benchmark, benchmark.run(encoder)


def test_harm_outside_the_mask_costs_kept_content_and_a_missing_edit_costs_success(evaluated):
    good, harm, wrong = (values(evaluated[1], set=name) for name in ("good", "harm", "wrong"))
    assert (good["psnr"], wrong["psnr"]) == (100, 100)
    assert harm["psnr"] == pytest.approx(20 * np.log10(255 / 20), abs=1)  # some are clipped
    assert good["ssim"] == pytest.approx(1)
    assert harm["ssim"] < 0.99
    assert good["feature_distance"] == pytest.approx(0, abs=1e-5)
    assert harm["feature_distance"] > 1e-3
    assert (good["success"], wrong["success"], good["rest_kept"]) == (1, 0, 1)
    assert good["direction"] > 0.3
    assert "direction" not in wrong  # the picture did not change at all
    kinds = {dict(o.by).get("kind") for o in evaluated[1].outcomes}
    assert kinds == {None, "background", "colour", "reconstruction"}
    assert "success" not in values(evaluated[1], set="good", kind="reconstruction")


def test_numbers_are_those_of_one_edit_at_a_time(folders, evaluated, encoder):
    items = evaluated[1].items
    index = open_index(folders / "harm", folders / "index")
    rows = [n for n, name in enumerate(items["set"]) if name == "harm"][:3]
    for row, at in zip(rows, (1, 2, 3), strict=True):
        photo, shown = (np.asarray(index.image(n)) for n in (0, at))
        scene = Scene(Factors("cat", "red", "beach"), 0)
        kind = items["kind"][row]
        mask = np.zeros((64, 64), bool)
        if at > 1:
            after = {"background": "snow", "colour": "blue"}[kind]
            edited = Scene(edit_factors(scene.factors, kind, after), 0)
            _, mask = redraw_edited(scene, edited, size=64, style=STYLE)
        assert items["masked"][row] == mask.mean()
        assert items["psnr"][row] == min(100, psnr_outside(shown, photo, mask))
        assert items["ssim"][row] == pytest.approx(ssim_outside(shown, photo, mask))
        mixed = shown.copy()
        mixed[mask] = photo[mask]
        with torch.inference_mode():
            first, second, last = (
                encoder.encode_image(
                    torch.from_numpy(encoder.transform(Image.fromarray(pixels))[None].copy())
                )[0].double()
                for pixels in (photo, mixed, shown)
            )
            before, text = encoder.encode_text(
                encoder.tokenize([index.text(0), index.text(at)])
            ).double()  # fmt: skip
        cosine = torch.nn.functional.cosine_similarity
        unit = torch.nn.functional.normalize
        expected = 1 - float(cosine(first, second, dim=0))
        assert items["feature_distance"][row] == pytest.approx(expected, abs=1e-4)
        assert items["text_similarity"][row] == pytest.approx(
            float(cosine(last, text, dim=0)), abs=1e-4
        )
        if at > 1:
            change, said = (
                unit(b, dim=0) - unit(a, dim=0) for a, b in ((first, last), (before, text))
            )
            assert items["direction"][row] == pytest.approx(
                float(cosine(change, said, dim=0)), abs=1e-3
            )


def test_the_schema_holds_and_folders_of_an_editor_count_together(evaluated):
    benchmark, evaluation = evaluated
    benchmark.item_schema.check(evaluation.items, "items")
    items = EditedItems("clip", Items(benchmark.name, "", "", evaluation.items))
    assert items.sets == ["good", "harm", "wrong"]
    assert [len(items.rows(name)) for name in items.sets] == [8, 16, 8]
    by_folder = items.by_folder("psnr", "harm")
    assert by_folder[0] == by_folder[1]
    estimate = items.estimate("success", items.rows("harm"))
    assert (estimate.items, estimate.clusters) == (16, 4)
    assert len(set(evaluation.items["item"])) == len(items)
    lines = verdicts(items)
    assert lines == benchmark.summarise(evaluation)
    assert lines[0].startswith("good: 8 edits of 4 photos, 100 [100, 100] dB outside the edit, 100")
    assert "0.0 [0.0, 0.0] % succeed" in lines[2]


def test_the_page_shows_edits_from_the_best_trade_off_to_the_worst(tmp_path, evaluated):
    benchmark, evaluation = evaluated
    items = Items(benchmark.name, "", "", evaluation.items)
    places = trade_off(EditedItems("clip", items))
    sets, kinds = (np.array(evaluation.items[name]) for name in ("set", "kind"))
    known = ~np.isnan(places)
    assert not known[(kinds == "reconstruction") | (sets == "wrong")].any()
    assert places[known & (sets == "good")].min() > places[known & (sets == "harm")].mean()
    folder = tmp_path / "editors" / "clip" / "seed=0"
    write_items(folder, items)
    page = benchmark.write_page(folder, "clip")
    text = page.read_text()
    assert page.name in benchmark.page_files
    assert "good: 8 edits of 4 photos" in text
    assert "Kept content against success" in text
    assert text.count("data:image") + text.count('"i":"Uk') >= 4  # small WebP pictures
    first = text
    benchmark.write_page(folder, "clip")
    assert page.read_text() == first


def test_a_folder_of_masks_serves_photos_that_nobody_drew(tmp_path, folders, encoder):
    for n in range(9):
        half = Image.new("L", (32, 32), 0)
        half.paste(255, (0, 0, 16, 32))
        half.save(tmp_path / f"group-{n}.png")
    benchmark = opened(folders, "joined", masks=str(tmp_path))
    before, items = benchmark.data_hash, benchmark.run(encoder).items
    masked = np.array(items["masked"])
    controls = np.array(items["kind"]) == "reconstruction"
    assert set(masked[~controls]) == {0.5}
    assert set(masked[controls]) == {0}
    similar = np.array(items["text_similarity"])
    assert set(np.array(items["success"])[~controls]) <= {0, 0.5, 1}
    assert np.isfinite(similar).all()
    (tmp_path / "group-0.png").unlink()
    assert opened(folders, "joined", masks=str(tmp_path)).data_hash != before


def test_what_cannot_be_measured_is_refused(tmp_path, folders, encoder):
    with pytest.raises(UserError, match="edits of photos of the embedded world"):
        opened(folders, "joined").run(encoder)
    with pytest.raises(UserError, match="names no editor"):
        opened(folders, {})
    sets = [world_set(0)]
    changed = {**sets[0].images, "0": world_set(1).images["0"]}
    out = io.BytesIO()
    Image.new("RGB", (32, 64)).save(out, "PNG")
    for images, words in (
        (changed, "not what the world draws"),
        ({**sets[0].images, "2": out.getvalue()}, "32 x 64 pixels and its photo 64 x 64"),
    ):
        folder = tmp_path / words.split()[0]
        write_shards([CounterfactualSet("a", "a", sets[0].members, images)], folder)
        with pytest.raises(UserError, match=words):
            opened(folders, str(folder)).run(encoder)


# table=edit_quality: means of editors, and the gains of arms trained on their sets.


ARMS = {"sharp": "editors/sharp", "blurred": "editors/blurred", "oracle": "editors/oracle"}
ACCURACY = {"base": [0.3, 0.32, 0.31], "sharp": [0.45, 0.46, 0.44], "blurred": [0.4, 0.42, 0.35],
            "oracle": [0.6, 0.61, 0.59]}  # fmt: skip
KEPT = {"sharp": 24.0, "blurred": 12.0, "oracle": 100.0}


def items(edits=6):
    """Edits of three photos by three editors, two folders each; the last edit is a control."""
    columns = {name: [] for name in ("item", "cluster", "set", "folder", "photo", "kind",
                                     "text_before", "text", *MEASURES)}  # fmt: skip
    for editor, kept in KEPT.items():
        for folder in (0, 1):
            for n in range(edits):
                control = n == edits - 1
                row = {
                    "item": f"{editor}/{folder}/{n}", "cluster": f"photo {n % 3}", "set": editor,
                    "folder": folder, "photo": f"{editor}/{folder}/p", "text_before": "a",
                    "text": "b",
                    "kind": "reconstruction" if control else ("colour", "background")[n % 2],
                    "psnr": kept + n + folder, "ssim": 0.5, "feature_distance": 0.1,
                    "success": np.nan if control else float(n > 1), "direction": 0.2,
                    "text_similarity": 0.3, "rest_kept": 1.0,
                }  # fmt: skip
                for name, value in row.items():
                    columns[name].append(value)
    arrays = {n: np.array(v, np.float64) for n, v in columns.items() if n in MEASURES}
    return {**columns, **arrays, "folder": np.array(columns["folder"])}


@pytest.fixture
def runs(tmp_path):
    judge = tmp_path / "weights" / "clip" / "seed=0"
    write_items(judge, Items("edit_quality", "weights", "data", items()))
    for arm, accuracies in ACCURACY.items():
        for seed, value in enumerate(accuracies):
            folder = tmp_path / "editors" / arm / f"seed={seed}"
            folder.mkdir(parents=True)
            row = Result(
                f"editors/{arm}/seed={seed}", arm, seed, "ood_classification", "acc1", value, 560,
                f"{arm}{seed}", "data",
            )  # fmt: skip
            append_results(folder / RESULTS, [row])
    return Runs(tmp_path)


def table(**settings):
    given = {
        "name": "edit_quality", "title": "Editors", "arms": ARMS, "baseline": "editors/base",
        "gain": ["ood_classification", "acc1"], "compared": ["sharp", "blurred"],
    }  # fmt: skip
    return EditorsTable(**{**given, **settings})


def test_means_and_gains_are_those_of_the_items_and_results(runs):
    document = table().build(runs)
    quality, gains = document.parts
    cells = {labels: dict(zip(quality.columns, row, strict=True)) for labels, row in quality.rows}
    sharp = cells["sharp", "all edits"]
    assert sharp["n"].text == "10"
    assert sharp["psnr (dB)"].numbers["value"] == pytest.approx(24 + np.mean(range(5)) + 0.5)
    assert sharp["psnr (dB)"].numbers["sd"] == pytest.approx(np.std([26, 27], ddof=1))
    assert sharp["success"].numbers["value"] == pytest.approx(3 / 5)
    assert cells["sharp", "reconstruction"]["success"].text == "–"
    rows = {labels[0]: dict(zip(gains.columns, row, strict=True)) for labels, row in gains.rows}
    for name in ARMS:
        expected = np.mean(ACCURACY[name]) - np.mean(ACCURACY["base"])
        assert rows[name]["gain, points"].numbers["value"] == pytest.approx(expected)
    assert len(draw_figures(document)) == 2
    p = ttest_rel(ACCURACY["sharp"], ACCURACY["blurred"]).pvalue
    assert f"p = {p:.3f}" in document.answer
    assert "sharp, which keeps most (26.5 dB)" in document.answer
    assert "over 2 editors: 1.00" in document.answer


def test_the_answer_ranks_all_editors():
    rng = np.random.default_rng(0)
    gains = [
        EditorGain(f"e{n}", float(rng.normal()), {}, {s: float(rng.normal()) for s in range(4)})
        for n in range(5)
    ]
    kept, means = [gain.kept for gain in gains], [gain.gain for gain in gains]
    said = compare_extremes([*gains, EditorGain("unknown", float("nan"), {}, {0: 1.0})])
    assert f"over 5 editors: {kendalltau(kept, means).statistic:.2f}" in said
    assert said.startswith(f"e{int(np.argmax(kept))}, which keeps most")
    assert compare_extremes(gains[:1]) == ""


def test_what_is_missing_is_named_or_left_out(runs, tmp_path):
    with pytest.raises(MissingError, match=r"ood_classification acc1 of editors/none"):
        table(arms={"sharp": "editors/none"}).build(runs)
    left = table(arms={"sharp": "editors/none"}, partial=True).build(runs)
    assert len(left.parts) == 1
    assert table(arms={}, partial=True).build(runs).answer == ""
    with pytest.raises(MissingError, match="edits measured by"):
        table().build(Runs(tmp_path / "nothing"))


# Masks of edits: a folder of pictures, and PIE-Bench's layout.


def lay_pie_bench(folder, masks):
    """Write PIE-Bench's data: {path of a photo: runs}; ids are the names of the files."""
    listed = {}
    for path, runs in masks.items():
        file = folder / "annotation_images" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (512, 512)).save(file)
        listed[file.stem] = {
            "image_path": path, "original_prompt": "a [red] ball", "mask": runs,
            "editing_prompt": "a [blue] ball", "editing_instruction": "make it blue",
            "editing_type_id": "6", "blended_word": "ball ball",
        }  # fmt: skip
    (folder / "mapping_file.json").write_text(json.dumps(listed))
    return folder


def slow_runs(runs, side):
    """One pixel at a time."""
    mask = np.zeros((side, side), bool)
    for start, length in zip(runs[::2], runs[1::2], strict=True):
        for at in range(start, min(start + length, side * side)):
            mask[at // side, at % side] = True
    for at in range(side):
        mask[0, at] = mask[-1, at] = mask[at, 0] = mask[at, -1] = True
    return mask


@pytest.mark.parametrize("seed", range(5))
def test_runs_are_decoded_row_by_row_with_the_border(seed):
    rng = np.random.default_rng(seed)
    runs = rng.integers(0, 100, 8).tolist()
    assert np.array_equal(decode_runs(runs, 10), slow_runs(runs, 10))


def test_pie_benchs_masks_are_found_by_path_and_by_id_in_the_size_of_the_photo(tmp_path):
    path = "6_change_attribute_color_40/1_artificial/1_animal/611000000000.jpg"
    runs = [100 * 512 + 50, 30, 101 * 512 + 50, 31]
    masks = MaskFolder(lay_pie_bench(tmp_path / "data", {path: runs}))
    whole = masks.find(path.removesuffix(".jpg"), "edit_1", (512, 512))
    assert np.array_equal(whole, slow_runs(runs, 512))
    assert np.array_equal(masks.find("611000000000", "edit_1", (512, 512)), whole)
    half = masks.find("611000000000", "edit_1", (256, 256))
    assert half.shape == (256, 256)
    assert 0 < half[1:-1, 1:-1].sum() < 31
    with pytest.raises(UserError, match="has no mask of 'other'"):
        masks.find("other", "edit_1", (512, 512))


def test_a_mask_of_one_edit_goes_before_that_of_its_photo(tmp_path):
    (tmp_path / "dogs").mkdir()
    Image.new("L", (8, 4), 255).save(tmp_path / "dogs" / "1.png")
    left = Image.new("L", (8, 4), 0)
    left.paste(255, (0, 0, 2, 4))
    left.save(tmp_path / "dogs-1_2.png")
    masks = MaskFolder(tmp_path)
    assert masks.find("dogs/1", "dogs-1_1", (4, 8)).all()
    assert masks.find("dogs/1", "dogs-1_2", (8, 16)).mean(axis=0).tolist() == [1] * 4 + [0] * 12
    with pytest.raises(UserError, match="proportions differ"):
        masks.find("dogs/1", "dogs-1_1", (8, 8))
    before = masks.hash()
    (tmp_path / "dogs" / "1.png").rename(tmp_path / "dogs" / "2.png")
    assert MaskFolder(tmp_path).hash() != before


def test_folders_without_masks_are_refused(tmp_path):
    with pytest.raises(UserError, match="there is no folder"):
        MaskFolder(tmp_path / "nothing")
    with pytest.raises(UserError, match="holds no masks"):
        MaskFolder(tmp_path)
    for wrong in ([1], {"1": "text"}, {"1": {"image_path": "1.jpg", "mask": [3]}}):
        (tmp_path / "mapping_file.json").write_text(json.dumps(wrong))
        with pytest.raises(UserError, match=r"PIE-Bench's|a list of starts"):
            MaskFolder(tmp_path).find("1", "1", (4, 4))
