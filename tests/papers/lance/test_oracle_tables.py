"""What the oracle says: whether the planted factor is found, and what edits did to photos."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from cfaug.core.rng import generator
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.shards.shards import write_shards
from cfaug.evaluation.stress.stress_items import STRESS_ITEMS, StressItems
from cfaug.papers.lance.oracle import (
    EditQualityTable,
    SliceFinding,
    changed_factor,
    find_factor,
    measure_edits,
    read_pictures,
    summarise_findings,
)
from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.items import Items
from cfaug.stats.edit_effects import compare_factors
from cfaug.worlds.shapescapes.drawing import Scene, render
from cfaug.worlds.shapescapes.language import describe
from cfaug.worlds.shapescapes.settings import STYLES, Factors, edit_factors


@pytest.mark.parametrize(
    ("before", "after", "factor"),
    [
        ("a red ball on the beach", "a blue ball on the beach", "colour"),
        ("a photo of a red ball", "a sketch of a red ball", "domain"),
        ("a red ball", "a photo of a red ball", "other"),
        ("a red ball at night", "a red cube at night", "subject"),
        ("a red ball at night", "a red ball in the snow", "background"),
        ("a red ball at night", "a red stone at night", "other"),
        ("a red ball at night", "a blue ball in the snow", "other"),
    ],
)
def test_the_changed_factor_is_read_from_the_captions(before, after, factor):
    assert changed_factor(before, after) == factor


def answers(drops: dict[str, float], photos: int = 12) -> StressItems:
    """Return the answers of a classifier whose probability drops by so much for each factor."""
    rng = generator(0, "answers")
    texts = {
        "colour": "a blue ball on the beach", "background": "a red ball at night",
        "domain": "a sketch of a red ball on the beach",
    }  # fmt: skip
    columns: dict[str, list] = {column.name: [] for column in STRESS_ITEMS.columns if column.always}
    for photo in range(photos):
        noise = rng.uniform(-0.02, 0.02, 2 + len(drops))
        base = 0.9 + noise[0]
        again = base + noise[1]
        of = f"lance/p{photo}_0"
        rows = [("original", "original", "a red ball on the beach", base)]
        rows += [("reconstruction", "reconstruction", "a red ball on the beach", again)]
        rows += [
            ("edited", factor, texts[factor], again - drop + noise[2 + n])
            for n, (factor, drop) in enumerate(drops.items())
        ]
        for member, (name, kind, text, p) in enumerate(rows):
            itself = member == 0
            columns["item"].append(f"lance/p{photo}_{member}")
            columns["cluster"].append(f"p{photo}")
            columns["set"].append(name)
            columns["photo"].append(of)
            columns["photos"].append("edited")
            columns["kind"].append(kind)
            columns["class"].append("ball")
            columns["before"].append("")
            columns["after"].append("")
            columns["text_before"].append("a red ball on the beach")
            columns["text"].append(text)
            columns["acc1"].append(float(p > 0.5))
            columns["p"].append(p)
            columns["p_photo"].append(np.nan if itself else base)
            columns["p_reconstruction"].append(np.nan if itself else again)
            columns["delta_p"].append(np.nan if itself else abs(base - p))
            columns["p_drop"].append(np.nan if itself else base - p)
    made = {k: np.array(v) if isinstance(v[0], float) else v for k, v in columns.items()}
    return StressItems("one", Items("lance_stress", "0" * 64, "1" * 64, made))


def test_the_planted_factor_is_found_and_nothing_where_there_is_none():
    leaning = answers({"colour": 0.6, "background": 0.02, "domain": 0.0})
    finding = find_factor(leaning, "edited", "colour", minimum=0.1, alpha=0.05)
    assert (finding.strongest, finding.found) == ("colour", ("colour",))
    assert (finding.precision, finding.chance, finding.edits) == (1.0, pytest.approx(1 / 3), 36)
    even = find_factor(
        answers({"colour": 0.02, "background": 0.02, "domain": 0.0}),
        "edited", None, minimum=0.1, alpha=0.05,
    )  # fmt: skip
    assert (even.strongest, even.found, even.precision) == (None, (), None)
    fit = compare_factors([{finding.strongest}, set()], [{"colour"}, set()])
    assert (fit.precision, fit.recall) == (1.0, 1.0)


def test_the_answer_counts_what_was_planted_and_false_alarms():
    def finding(strongest):
        return SliceFinding(strongest, (), None, None, 3)

    findings = [
        ("colour", finding("colour")), ("colour", finding("domain")), ("domain", finding(None)),
        ("none", finding("colour")), ("none", finding(None)),
    ]  # fmt: skip
    assert summarise_findings({"LANCE": findings, "Oracle": findings[:2]}) == (
        "Planted shortcuts that are found: LANCE 1 of 3, Oracle 1 of 2. False alarms in "
        "classifiers without one: LANCE 1 of 2, Oracle 0 of 0."
    )


def _png(pixels) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


SCENE = Scene(Factors("cat", "red", "grass"), 7)


def _shards(folder, shown: Factors):
    """Lay one set whose edit should turn the cat blue, and shows other factors."""
    look = STYLES["clear"]
    photo = render(SCENE, 64, look).pixels
    edited = render(Scene(shown, SCENE.seed), 64, look).pixels
    texts = [describe(SCENE.factors)] * 2
    texts.append(describe(edit_factors(SCENE.factors, "colour", "blue")))
    extra = {**vars(SCENE.factors), "scene_seed": f"{SCENE.seed:016x}"}
    edits = (None, Edit("reconstruction", "", ""), Edit("adjective", "red", "blue"))
    members = tuple(
        Member(text, str(n), "p", edit, "cat", extra)
        for n, (text, edit) in enumerate(zip(texts, edits, strict=True))
    )
    images = {str(n): _png(pixels) for n, pixels in enumerate((photo, photo, edited))}
    write_shards([CounterfactualSet("p", "p", members, images)], folder)


class Seer:
    """A judge that knows what a picture shows: it is told."""

    def __init__(self, *factors: Factors) -> None:
        self.of = {
            render(Scene(shown, SCENE.seed), 64, STYLES["clear"]).pixels.tobytes(): shown
            for shown in factors
        }

    def factors(self, pixels):
        whole = (np.ascontiguousarray(image.transpose(1, 2, 0)) for image in pixels)
        return [self.of[image.tobytes()] for image in whole]


BLUE = edit_factors(SCENE.factors, "colour", "blue")


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (BLUE, (1, 1, 1, 1)),
        (SCENE.factors, (0, 1, 1, 0)),
        (edit_factors(BLUE, "subject", "cube"), (1, 0, 1, 0)),
        (edit_factors(BLUE, "background", "snow"), (1, 1, 0, 0)),
    ],
)
def test_an_edit_is_held_against_what_it_should_change_and_keep(tmp_path, shown, expected):
    _shards(tmp_path, shown)
    seer = Seer(SCENE.factors, shown)
    measured = measure_edits(read_pictures(tmp_path, "clear"), seer)
    by = {quality.kind: quality for quality in measured}
    assert set(by) == {"adjective", "original", "reconstruction"}
    edit = by["adjective"]
    assert (edit.changed, edit.label, edit.rest, edit.all) == expected
    if shown in (BLUE, SCENE.factors):
        assert np.isnan(edit.psnr)  # equal outside the mask: infinite, so no mean
    else:
        assert 0 < edit.psnr < 60
    for control in (by["original"], by["reconstruction"]):
        assert (control.label, control.rest, control.n) == (1, 1, 1)
        assert np.isnan(control.changed)


def test_the_table_names_folders_that_are_missing(tmp_path):
    _shards(tmp_path / "there", BLUE)
    folders = {"There": str(tmp_path / "there"), "Gone": str(tmp_path / "gone")}
    table = EditQualityTable(name="lance_edits", title="x", folders=folders)
    with pytest.raises(MissingError, match="gone"):
        table.build(Runs(tmp_path))
    partly = replace(table, partial=True).build(Runs(tmp_path))
    rows = dict(partly.parts[0].rows)
    assert set(rows) == {("There", k) for k in ("adjective", "original", "reconstruction")}
    assert rows["There", "adjective"][0].text == "1"
