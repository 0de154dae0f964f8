"""benchmark=edit_quality: edits of the world whose damage is known, and of hand-laid sets."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from cfaug.evaluation.context import EvaluationContext
from cfaug.evaluation.editor_quality import EditorQuality
from cfaug.evaluation.editor_report import EditedItems, trade_off, verdicts
from cfaug.report.items import Items, write_items
from cfaug.shapescapes.drawing import Scene, encode_png, render
from cfaug.shapescapes.language import describe
from cfaug.shapescapes.oracle import edit_factors, redraw_edited
from cfaug.shapescapes.oracles.lance import WorldEdits
from cfaug.shapescapes.settings import STYLES, Factors
from cfaug.stats.image_metrics import psnr_outside, ssim_outside
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
