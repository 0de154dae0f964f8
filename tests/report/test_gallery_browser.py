"""What a reader of the gallery does, in headless Chromium, where there is one.

How fast that is ``benchmarks/gallery.py`` measures.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from benchmarks.browser import Browser
from cfaug.core.types import CounterfactualSet
from cfaug.report.gallery import write_gallery
from tests.report.example import HOSTILE, generated

COUNT = 60


@dataclass
class Reader:
    """Someone who looks at the page, and what they see."""

    browser: Browser
    sets: list[CounterfactualSet]

    def does(self, script: str) -> None:
        self.browser.run(
            "(() => { const $ = (id) => document.getElementById(id);"
            "const fire = (e, kind) => e.dispatchEvent(new Event(kind, {bubbles: true}));"
            f"{script} }})()"
        )

    def types(self, words: str) -> None:
        self.does(f"$('text').value = {json.dumps(words)}; fire($('text'), 'input');")

    def chooses(self, name: str, label: str) -> None:
        self.does(
            f"const e = $('{name}'); e.selectedIndex = "
            f"[...e.options].findIndex((o) => o.text === {json.dumps(label)}); fire(e, 'change');"
        )

    def limits(self, field: str, low: str, high: str) -> None:
        for end, value in (("low", low), ("high", high)):
            where = f'input[data-field="{field}"][data-end={end}]'
            self.does(
                f"const e = document.querySelector('{where}'); e.value = '{value}';"
                "fire(e, 'input');"
            )

    @property
    def keys(self) -> list[str]:
        return self.browser.run(
            "[...document.querySelectorAll('.set .key')].map((e) => e.textContent)"
        )

    @property
    def status(self) -> str:
        return self.browser.run("document.querySelector('[role=status]').textContent")


@pytest.fixture
def reader(watched: Browser, tmp_path: Path) -> Reader:
    sets = [generated(n, kind="noun" if n % 3 else "colour") for n in range(COUNT)]
    sets[1] = replace(sets[1], members=(replace(sets[1].members[0], text=HOSTILE),
                                        sets[1].members[1]))  # fmt: skip
    sets[2] = replace(generated(2, members=6), scores={})
    sets = [
        replace(one, members=tuple(replace(m, label=f"class {n % 4}") for m in one.members))
        for n, one in enumerate(sets)
    ]
    watched.open(write_gallery(sets, tmp_path / "gallery.html", title="Gallery"))
    return Reader(watched, sets)


def test_a_reader_sees_the_sets(reader: Reader) -> None:
    assert reader.keys == [one.key for one in reader.sets[:24]]
    assert reader.status == "1–24 of 60"
    run = reader.browser.run
    assert run("document.title") == "Gallery"  # the caption's script did not run
    assert run("document.querySelector('.set:nth-child(2) figcaption').textContent") == HOSTILE
    words = "[...document.querySelectorAll('.set:first-child mark')].map((e) => e.textContent)"
    assert run(words) == ["cat", "dog0"]
    assert run("document.querySelectorAll('.set:nth-child(3) img').length") == 6
    seen = run("document.querySelector('.set .numbers').innerText")
    assert re.sub(r"\s+", " ", seen) == f"sim_direction 0.1 sim_image 0.8 p 0.1 cfg 9 seed {2**63}"
    loaded = "Promise.all([...document.images].map((i) => i.decode())).then((all) => all.length)"
    assert run(loaded) == 24 * 2 + 4


def test_a_reader_filters(reader: Reader) -> None:
    reader.types("DOG3 mat")
    wanted = [o.key for o in reader.sets if any("dog3" in m.text for m in o.members)]
    assert reader.keys == wanted
    assert reader.status == f"1–{len(wanted)} of {len(wanted)}"
    reader.chooses("kind", "colour")
    both = [k for k in wanted if int(k[-4:]) % 3 == 0]
    assert reader.keys == both
    reader.chooses("class", "class 3")
    assert reader.keys == [k for k in both if int(k[-4:]) % 4 == 3] != []
    reader.chooses("class", "any")
    reader.types("")
    reader.limits("sim_direction", "0.2", "0.3")
    scores = {one.key: one.scores.get("sim_direction", 9) for one in reader.sets}
    expected = [k for k, score in scores.items() if 0.2 <= score <= 0.3 and int(k[-4:]) % 3 == 0]
    assert reader.keys == expected != []
    reader.limits("p", "2", "")
    assert reader.keys == []
    assert reader.status == "0 sets"
    reader.does("$('reset').click()")
    assert reader.browser.run("new Promise((done) => setTimeout(done, 50))") is None
    assert reader.status == "1–24 of 60"


def test_a_reader_sorts(reader: Reader) -> None:
    def by(number: int) -> tuple:
        found = reader.sets[number].scores.get("sim_direction")
        return (found is None, -(found or 0), number)

    reader.chooses("sort", "sim_direction, highest first")
    assert reader.keys == [reader.sets[n].key for n in sorted(range(COUNT), key=by)[:24]]
    reader.types("dog2")
    few = [n for n in range(COUNT) if "dog2" in reader.sets[n].members[1].text]
    assert reader.keys == [reader.sets[n].key for n in sorted(few, key=by)]
    assert reader.keys[-1] == "pair-0002", "what has no score comes last"
    reader.types("")
    reader.chooses("sort", "p, lowest first")
    found = [next(o for o in reader.sets if o.key == key).members[0].extra["p"]
             for key in reader.keys]  # fmt: skip
    assert found == sorted(one.members[0].extra["p"] for one in reader.sets)[:24]
    reader.chooses("sort", "shuffled")
    shuffled = reader.keys
    assert shuffled != sorted(shuffled)
    reader.chooses("sort", "as they come")
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
    press("/")
    for letter in "0007 mat":
        press(letter)
    assert reader.keys == ["pair-0007"]
    press("ArrowLeft")  # moves in the text, not between pages
    press("Escape")
    assert reader.browser.run("document.activeElement.tagName") == "BODY"


def test_contrast_is_stretched_at_will(reader: Reader) -> None:
    run = reader.browser.run
    style = "getComputedStyle(document.querySelector('.picture img')).filter"
    before = run(style)
    reader.does("$('stretch').click()")
    assert {before, run(style)} >= {"none"}
    assert before != run(style)


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_scrolls_one_way_only(reader: Reader, dark: bool) -> None:
    reader.browser.view(390, 844, dark=dark, phone=True)
    assert reader.browser.run("document.documentElement.scrollWidth") == 390
    shade = reader.browser.run("getComputedStyle(document.body).backgroundColor")
    assert (int(re.findall(r"\d+", shade)[0]) < 128) == dark
