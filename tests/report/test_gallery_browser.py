"""What a reader of the gallery does, in headless Chromium, where there is one.

How fast that is ``benchmarks/gallery.py`` measures.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from benchmarks.browser import Browser
from cfaug.core.types import CounterfactualSet
from cfaug.report.gallery import write_gallery
from tests.report.example import HOSTILE, generated
from tests.report.page_reader import PageReader

COUNT = 60


@dataclass
class Reader(PageReader):
    """Someone who looks at the page of these sets."""

    sets: list[CounterfactualSet]

    def picks(self, name: str, label: str) -> None:
        """Choose an option by what is written on it."""
        options = f"[...document.getElementById('{name}').options]"
        self.chooses(name, self.browser.run(f"{options}.find((o) => o.text === '{label}').value"))

    def limits(self, field: str, low: str, high: str) -> None:
        for end, value in (("low", low), ("high", high)):
            where = f'input[data-field="{field}"][data-end={end}]'
            self.browser.run(
                f"(() => {{ const e = document.querySelector('{where}'); e.value = '{value}';"
                "e.dispatchEvent(new Event('input', {bubbles: true})); })()"
            )

    @property
    def keys(self) -> list[str]:
        return self.seen(".set .key")


@pytest.fixture(scope="module")
def sets() -> list[CounterfactualSet]:
    made = [generated(n, kind="noun" if n % 3 else "colour") for n in range(COUNT)]
    first, second = made[1].members
    made[1] = replace(made[1], members=(replace(first, text=HOSTILE), second))
    made[2] = replace(generated(2, members=6), scores={})
    return [
        replace(one, members=tuple(replace(m, label=f"class {n % 4}") for m in one.members))
        for n, one in enumerate(made)
    ]


@pytest.fixture(scope="module")
def page(sets, tmp_path_factory) -> Path:
    return write_gallery(sets, tmp_path_factory.mktemp("page") / "gallery.html", title="Gallery")


@pytest.fixture
def reader(watched: Browser, sets, page) -> Reader:
    watched.open(page)
    return Reader(watched, sets)


def test_a_reader_sees_the_sets(reader: Reader) -> None:
    assert reader.keys == [one.key for one in reader.sets[:24]]
    assert reader.status == "1–24 of 60"
    run = reader.browser.run
    assert run("document.title") == "Gallery"  # the caption's script did not run
    assert reader.seen(".set:nth-child(2) figcaption")[0] == HOSTILE
    assert reader.seen(".set:first-child mark") == ["cat", "dog0"]
    assert len(reader.seen(".set:nth-child(3) img")) == 6
    seen = run("document.querySelector('.set .numbers').innerText")
    assert re.sub(r"\s+", " ", seen) == f"sim_direction 0.1 sim_image 0.8 p 0.1 cfg 9 seed {2**63}"
    loaded = "Promise.all([...document.images].map((i) => i.decode())).then((all) => all.length)"
    assert run(loaded) == 24 * 2 + 4


def test_a_reader_filters(reader: Reader) -> None:
    reader.chooses("text", "DOG3 mat")
    wanted = [o.key for o in reader.sets if any("dog3" in m.text for m in o.members)]
    assert reader.keys == wanted
    assert reader.status == f"1–{len(wanted)} of {len(wanted)}"
    reader.picks("kind", "colour")
    both = [k for k in wanted if int(k[-4:]) % 3 == 0]
    assert reader.keys == both
    reader.picks("class", "class 3")
    assert reader.keys == [k for k in both if int(k[-4:]) % 4 == 3] != []
    reader.picks("class", "any")
    reader.chooses("text", "")
    reader.limits("sim_direction", "0.2", "0.3")
    scores = {one.key: one.scores.get("sim_direction", 9) for one in reader.sets}
    expected = [k for k, score in scores.items() if 0.2 <= score <= 0.3 and int(k[-4:]) % 3 == 0]
    assert reader.keys == expected != []
    reader.limits("p", "2", "")
    assert reader.keys == []
    assert reader.status == "0 sets"
    reader.resets()
    assert reader.status == "1–24 of 60"


def test_a_reader_sorts(reader: Reader) -> None:
    def by(number: int) -> tuple:
        found = reader.sets[number].scores.get("sim_direction")
        return (found is None, -(found or 0), number)

    reader.picks("sort", "sim_direction, highest first")
    assert reader.keys == [reader.sets[n].key for n in sorted(range(COUNT), key=by)[:24]]
    reader.chooses("text", "dog2")
    few = [n for n in range(COUNT) if "dog2" in reader.sets[n].members[1].text]
    assert reader.keys == [reader.sets[n].key for n in sorted(few, key=by)]
    assert reader.keys[-1] == "pair-0002", "what has no score comes last"
    reader.chooses("text", "")
    reader.picks("sort", "p, lowest first")
    p = {one.key: one.members[0].extra["p"] for one in reader.sets}
    assert [p[key] for key in reader.keys] == sorted(p.values())[:24]
    reader.picks("sort", "shuffled")
    shuffled = reader.keys
    assert shuffled != sorted(shuffled)
    reader.picks("sort", "as they come")
    assert reader.keys == [one.key for one in reader.sets[:24]]


def test_a_reader_has_a_keyboard_only(reader: Reader) -> None:
    press = reader.browser.press
    press("ArrowRight")
    press("ArrowRight")
    assert reader.status == "49–60 of 60"
    press("ArrowRight")
    assert reader.keys == [one.key for one in reader.sets[48:]]
    press("ArrowLeft")
    assert reader.status == "25–48 of 60"
    for letter in "/0007 mat":
        press(letter)
    assert reader.keys == ["pair-0007"]
    press("ArrowLeft")  # moves in the text, not between pages
    press("Escape")
    assert reader.browser.run("document.activeElement.tagName") == "BODY"


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_scrolls_one_way_only_and_contrast_is_stretched_at_will(
    reader: Reader, dark: bool
) -> None:
    run = reader.browser.run
    reader.browser.view(390, 844, dark=dark, phone=True)
    assert run("document.documentElement.scrollWidth") == 390
    shade = run("getComputedStyle(document.body).backgroundColor")
    assert (int(re.findall(r"\d+", shade)[0]) < 128) == dark
    style = "getComputedStyle(document.querySelector('.picture img')).filter"
    before = run(style)
    reader.clicks("stretch")
    assert before != run(style)
    assert {before, run(style)} >= {"none"}
