"""The page of a stress test: what it shows is what the items say, and nothing in it is live."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.browser import Browser
from cfaug.core.errors import UserError
from cfaug.editing.rule_edits import FixedEdit
from cfaug.evaluation.stress.stress_items import EDITED, StressItems
from cfaug.evaluation.stress.stress_page import PageSettings, fill_command, stress_page, verdict
from cfaug.planning.build import build
from cfaug.report.gallery import ImageSource
from cfaug.run.generate_settings import GenerateSettings
from cfaug.settings.compose import compose_jobs
from tests.files_of_settings import read_settings
from tests.report.example import HOSTILE, data_of
from tests.report.page_reader import PageReader
from tests.report.stress_example import read_image, stress_items

COMMAND = ("python", "generate.py", "recipe.editor.after={after}", "recipe.editor.labels=[{label}]")
PHOTOS = 12


def write(folder: Path, *answers: StressItems, **settings) -> Path:
    page = stress_page(PageSettings(**settings))
    return page.write(
        answers, folder / "stress.html", ImageSource(read_image), title="Ours & theirs"
    )


def test_the_page_holds_what_the_items_say(tmp_path):
    answers = stress_items()
    page = data_of(write(tmp_path / "new", answers))
    assert page["models"] == ["net"]
    assert page["kinds"] == ["background", "adjective", "domain"]
    assert len(page["pairs"]) == 4 * PHOTOS
    pair = page["pairs"][1]
    row = answers.row_of[pair["i"]]
    photo = answers.row_of[answers.texts("photo")[row]]
    columns = answers.items.columns
    assert (pair["c"], pair["k"], pair["e"]) == ("ball", "background", ["", "at night"])
    assert "".join(pair["t"][0]) == columns["text_before"][row]
    assert pair["t"][1][1] == "at night"
    answer = pair["m"][0]
    assert answer["d"] == pytest.approx(columns["delta_p"][row], rel=1e-3)
    assert answer["f"] == pytest.approx(columns["p_drop"][row], rel=1e-3)
    assert answer["h"] == [columns["acc1"][photo], columns["acc1"][row]]
    assert page["names"][answer["y"][0]] == "ball"
    for which, at in (("a", photo), ("b", row)):
        shown = [(page["names"][n], p) for n, p in answer[which]]
        assert [name for name, _ in shown] == [columns[f"top{n}"][at] for n in range(1, 6)]
        assert [p for _, p in shown] == pytest.approx(
            [columns[f"top{n}_p"][at] for n in range(1, 6)], rel=1e-3
        )
    by_kind = {effect.group: effect for effect in answers.effects_by()}
    assert [row[0] for row in page["effects"][0][EDITED][""]] == list(by_kind)
    for kind, edits, photos, mean, low, high, excess, p in page["effects"][0][EDITED][""]:
        effect = by_kind[kind]
        assert (edits, photos) == (len(effect), effect.photos)
        wanted = [effect.mean, effect.low, effect.high, effect.excess, effect.p_holm]
        assert [mean, low, high, excess, p] == pytest.approx(wanted, rel=1e-3)


def test_equal_images_are_stored_once(tmp_path):
    page = data_of(write(tmp_path, stress_items()))
    assert len(page["pictures"]) == PHOTOS + 4 * PHOTOS
    shown = [tuple(pair["p"]) for pair in page["pairs"]]
    assert len({photo for photo, _ in shown}) == PHOTOS
    answers = stress_items()
    same = dict(answers.items.columns) | {"image": np.array(["x"] * len(answers), object)}
    page = data_of(write(tmp_path, replace(answers, items=replace(answers.items, columns=same))))
    assert len(page["pictures"]) == 1


def test_insights_point_at_the_edits_they_show(tmp_path):
    answers = stress_items()
    page = data_of(write(tmp_path, answers, limit=1, command=COMMAND))
    insights = page["insights"][0][EDITED]
    assert [i["c"] for i in insights] == ["ball"] * 4 + ["cube"] * 4 + ["star"] * 4
    for insight, entry in zip(answers.insights(), insights, strict=True):
        assert (entry["k"], entry["e"]) == (insight.kind, [insight.before, insight.after])
        assert entry["v"][:2] == [len(insight.effect), insight.effect.photos]
        shown = [page["pairs"][place]["i"] for place in entry["p"]]
        assert shown == [answers.texts("item")[row] for row in insight.effect.rows[:4]]
    assert len(page["pairs"]) == 4 * PHOTOS, "beyond the limit is what insights show"
    first = insights[0]["x"]
    assert shlex.split(first)[2:] == ["recipe.editor.after=in the snow",
                                      "recipe.editor.labels=[ball]"]  # fmt: skip


def test_of_too_many_edits_a_sample_is_shown(tmp_path):
    answers = stress_items(photos=24, relies_on={})
    file = write(tmp_path, answers, limit=10)
    page = data_of(file)
    assert 10 < len(page["pairs"]) < 96
    assert re.search(r"\d+ of 96 edits, drawn at random", file.read_text())
    again = write(tmp_path / "again", answers, limit=10)
    assert again.read_bytes() == file.read_bytes()


def test_the_verdict_says_what_the_edits_cost():
    answers = stress_items(sets=(EDITED, "random"))
    hits, photos = answers.items.metric("acc1"), answers.items.metric("photo_acc1")
    rows = answers.rows(EDITED)
    cost = 100 * (photos[rows] - hits[rows]).mean()
    said = verdict(answers)
    assert said.startswith("net answers 100.0 % of 12 photos right; 48 edits of 12 photos cost ")
    assert f"cost {cost:.1f} points (95 % interval" in said
    assert "48 edits of the set random cost " in said
    assert said.endswith("saving photos again without an edit costs 0.0.")


def test_a_shell_gets_the_words_as_they_are():
    insight = next(i for i in stress_items().insights() if i.after == "in the snow")
    hostile = replace(insight, after="x'; rm -rf $(pwd) #{label}")
    words = shlex.split(fill_command(COMMAND, hostile))
    assert words[2] == "recipe.editor.after=x'; rm -rf $(pwd) #{label}"


@pytest.mark.slow
def test_the_command_of_the_page_makes_that_intervention():
    words = read_settings("benchmark/stress")["apply"]
    plain = next(i for i in stress_items().insights() if i.after == "in the snow")
    for after in ("in the snow", 'a "b", [c] \\ d\'s {e}', 'x \\"y\\', "x=1, y: ${z}"):
        hostile = replace(plain, after=after.replace("${z}", "z"), label="dog, sled")
        typed = shlex.split(fill_command(words, hostile))
        assert typed[:3] == ["python", "generate.py", "recipe=fixed_edit"]
        overrides = [word for word in typed[2:] if not word.startswith("data.source")]
        [(config, _)] = compose_jobs(
            "generate", overrides, multirun=False, command=GenerateSettings
        )
        editor = build(config["recipe"]["editor"]["editor"])
        assert isinstance(editor, FixedEdit)
        assert (editor.kind, editor.before, editor.after) == (
            plain.kind,
            plain.before,
            hostile.after,
        )
        assert list(editor.labels) == ["dog, sled"]


def test_nothing_in_a_caption_or_class_is_live(tmp_path):
    text = write(tmp_path, stress_items(hostile=True)).read_text()
    assert text.count("</script>") == 2
    assert "<b>cone" not in text
    assert "default-src 'none'" in text
    assert "".join(data_of(tmp_path / "stress.html")["pairs"][0]["t"][0]) == HOSTILE


def test_pages_that_cannot_be_are_refused(tmp_path):
    net, other = stress_items(), stress_items("other", photos=11)
    for answers, said in (
        ((), "no model"), ((net, net), "duplicated names: net, net"),
        ((net, other), "net and other answered different images"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=said):
            write(tmp_path, *answers)
    with pytest.raises(UserError, match="limit=0 should be a whole number"):
        write(tmp_path, net, limit=0)
    broken = ImageSource(lambda _: b"no image")
    with pytest.raises(UserError, match="original/k0_0"):
        stress_page().write([net], tmp_path / "x.html", broken, title="t")


@dataclass
class Reader(PageReader):
    """Someone who looks at the page of these answers."""

    answers: tuple[StressItems, ...]

    @property
    def keys(self) -> list[str]:
        return self.seen(".pair .key")


@pytest.fixture
def reader(watched: Browser, tmp_path: Path) -> Reader:
    answers = (stress_items(hostile=True, sets=(EDITED, "random")),
               stress_items("other", relies_on={"domain": 0.4}, hostile=True,
                            sets=(EDITED, "random")))  # fmt: skip
    watched.open(write(tmp_path, *answers, command=COMMAND))
    return Reader(watched, answers)


def ordered(answers: StressItems, column: str, **where: str) -> list[str]:
    rows = [row for row in answers.rows(EDITED)
            if all(answers.texts(name)[row] == value for name, value in where.items())]  # fmt: skip
    values = answers.items.columns[column]
    shown = {row: float(f"{values[row]:.4g}") for row in rows}
    return [answers.texts("item")[row] for row in sorted(rows, key=lambda row: (-shown[row], row))]


@pytest.mark.slow
def test_a_reader_filters_and_sorts(reader: Reader) -> None:
    net, other = reader.answers
    assert reader.keys == ordered(net, "delta_p")[:24]
    assert reader.status == "1–24 of 48"
    reader.chooses("class", "cube")
    reader.chooses("kind", "domain")
    assert reader.keys == ordered(net, "delta_p", **{"class": "cube", "kind": "domain"})
    reader.chooses("sort", "f")
    assert reader.keys == ordered(net, "p_drop", **{"class": "cube", "kind": "domain"})
    reader.chooses("model", "1")
    assert reader.keys == ordered(other, "p_drop", **{"class": "cube", "kind": "domain"})
    reader.chooses("set", "random")
    assert reader.keys == []
    assert reader.status == "0 edits"
    reader.resets()
    assert reader.keys == ordered(net, "delta_p")[:24]
    reader.chooses("text", "NIGHT cube")
    assert len(reader.keys) == 4
    reader.chooses("text", "")
    reader.clicks("flips")
    lost = [
        key for key in ordered(net, "delta_p") if net.items.columns["acc1"][net.row_of[key]] < 1
    ]
    assert reader.keys == lost[:24]


@pytest.mark.slow
def test_a_reader_sees_classes_kinds_and_insights(reader: Reader) -> None:
    assert reader.seen("title") == ["Ours & theirs"]  # the caption's script did not run
    assert HOSTILE in [
        caption.removesuffix(" at night") for caption in reader.seen("#pairs figcaption")
    ]
    assert reader.seen("#effects div:not([class=about]):not(.track):not(.fill):not(.reach)") == [
        "background", "domain", "adjective"
    ]  # fmt: skip
    assert reader.seen(".insight h3")[0].endswith(": on the beach → in the snow")
    assert reader.seen(".insight pre")[0].startswith("python generate.py")
    first = reader.browser.run(
        "[...document.querySelector('.pair').querySelectorAll('figure')].map((f) =>"
        " [...f.querySelectorAll('.name')].map((e) => [e.textContent, getComputedStyle(e).color]))"
    )
    net = reader.answers[0]
    row = net.row_of[reader.keys[0]]
    wanted = [net.items.columns[f"top{n}"][row] for n in range(1, 6)]
    assert [name for name, _ in first[1]] == wanted
    green = {colour for name, colour in first[1] if name == net.texts("class")[row]}
    assert len(green) == 1
    assert green.isdisjoint(c for name, c in first[1] if name != net.texts("class")[row])
    reader.chooses("model", "")
    assert len(reader.seen(".pair:first-child .top")) == 4, "two models, before and after"
    reader.browser.press("ArrowRight")
    assert reader.status == "25–48 of 48"
    reader.browser.view(390, 844, dark=True, phone=True)
    assert reader.browser.run("document.documentElement.scrollWidth") == 390
