"""Where the items of compositional tests come from, and which of a suite are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cfaug.compositional.caption_choice import CaptionChoice
from cfaug.compositional.pairs import PairMatching
from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.evaluation.context import EvaluationContext
from cfaug.evaluation.suites import Suite
from tests.data.compositional import aro, coco_name, sugarcrepe, vismin, winoground


@pytest.fixture
def context(tmp_path: Path) -> EvaluationContext:
    cache = tmp_path / "cache"
    return EvaluationContext(
        open=lambda source: open_index(source, cache), has_world=False, held_out=lambda: None,
        read=lambda reader, folder: open_index(folder, cache, reader=reader),
    )  # fmt: skip


def choice(folder: Path, **settings: Any) -> CaptionChoice:
    return CaptionChoice(data=str(folder), blind=None, **settings)


def items(opened: Any) -> int:
    (one,) = opened
    return len(one._choices.first)


def test_photos_in_a_folder_that_is_named(context, tmp_path: Path) -> None:
    folder = sugarcrepe(tmp_path / "sugarcrepe", "../far/away")
    with pytest.raises(UserError, match=r"benchmark\.images=FOLDER"):
        choice(folder).open(context)
    assert items(choice(folder, images=str(tmp_path / "far/away")).open(context)) == 10
    with pytest.raises(UserError, match=r"benchmark\.images: there is no folder"):
        choice(folder, images=str(tmp_path / "nowhere")).open(context)


def test_items_without_a_photo_are_skipped_where_that_is_asked_for(context, tmp_path: Path) -> None:
    folder = sugarcrepe(tmp_path / "sugarcrepe")
    (folder / "val2017" / coco_name(2)).unlink()
    with pytest.raises(UserError, match=r"2 of 10 items"):
        choice(folder).open(context)
    assert items(choice(folder, missing="skip").open(context)) == 8


def test_the_number_of_items_is_said_where_it_differs(context, tmp_path: Path, capsys) -> None:
    choice(sugarcrepe(tmp_path / "sugarcrepe")).open(context)
    said = capsys.readouterr().err
    assert "SugarCrepe: 10 items, where the released files have 7,511" in said
    assert "7,512" in said


def test_one_of_two_tests_in_a_folder(context, tmp_path: Path) -> None:
    folder = aro(tmp_path / "aro")
    with pytest.raises(UserError, match=r"benchmark\.form=aro_relation or aro_attribution"):
        choice(folder).open(context)
    (opened,) = choice(folder, form="aro_attribution").open(context)
    assert opened._index.kind == "aro_attribution"


def test_another_test_than_the_one_named(context, tmp_path: Path) -> None:
    folder = vismin(tmp_path / "winoground")
    with pytest.raises(UserError, match="holds VisMin, not Winoground"):
        PairMatching(data=str(folder), form="winoground").open(context)


def test_a_folder_that_holds_nothing_known_says_what_it_should(context, tmp_path: Path) -> None:
    (tmp_path / "winoground").mkdir()
    with pytest.raises(UserError, match=r"winoground does not hold Winoground: .*gated"):
        PairMatching(data=str(tmp_path / "winoground"), form="winoground").open(context)


def test_what_is_said_of_a_set_is_said_once(context, tmp_path: Path, capsys) -> None:
    folder = sugarcrepe(tmp_path / "sugarcrepe")
    for _ in range(2):
        choice(folder).open(context)
    assert capsys.readouterr().err.count("the released files have") == 1


def test_a_folder_that_is_not_there_says_where_to_get_it(context, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no folder .*winoground: .*gated.*examples\.jsonl"):
        PairMatching(data=str(tmp_path / "winoground"), form="winoground").open(context)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"form": "winogrand"}, "form=winogrand is invalid: choose from winoground"),
        ({"missing": "ignore"}, "missing=ignore: choose from refuse, skip"),
    ],
)
def test_settings_that_are_invalid(settings: dict[str, str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        PairMatching(data="here", **settings)


def suite(tmp_path: Path, **settings: Any) -> Suite:
    members = {
        "winoground_pairs": PairMatching(
            data=str(tmp_path / "winoground"), name="winoground", form="winoground"
        ),
        "own_pairs": PairMatching(data=str(tmp_path / "own"), name="own"),
    }
    layouts = {"own_pairs": "make it yourself"}
    return Suite(**{"folders": members, "where": "folders", "layouts": layouts} | settings)


def test_a_suite_asks_what_is_there_and_says_what_is_not(context, tmp_path: Path, capsys) -> None:
    winoground(tmp_path / "winoground")
    (opened,) = suite(tmp_path, absent="say").open(context)
    assert opened.name == "winoground_pairs"
    said = capsys.readouterr().err
    assert "1 of 2 tests are not run:" in said
    assert f"own_pairs: there is no {tmp_path / 'own'}: make it yourself" in said
    with pytest.raises(UserError, match=r"own_pairs: (?s:.*)benchmark\.skip=\[own_pairs\]"):
        suite(tmp_path).open(context)
    with pytest.raises(UserError, match="own_pairs"):
        suite(tmp_path, absent="say", only=["own_pairs"]).open(context)


def test_a_suite_of_which_nothing_is_there(context, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"all data are missing:(?s:.*)gated(?s:.*)make it yourself"
    ):
        suite(tmp_path, absent="say").open(context)


def test_a_folder_that_is_there_and_broken_is_an_error(context, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    winoground(tmp_path / "winoground")
    with pytest.raises(UserError, match=r"own_pairs: .*no form that is known"):
        suite(tmp_path, absent="say").open(context)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"absent": "maybe"}, "absent=maybe: choose from refuse, say"),
        ({"layouts": {"odd": "x"}}, "no member is called"),
    ],
)
def test_settings_of_a_suite_that_are_invalid(tmp_path: Path, settings: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        suite(tmp_path, **settings)
