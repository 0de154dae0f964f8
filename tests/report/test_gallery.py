"""The gallery shows what the sets say, with changes marked; it is one file, and nothing is live.

How fast a browser shows it ``benchmarks/gallery.py`` measures.
"""

from __future__ import annotations

import base64
import io
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from benchmarks.browser import Browser
from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.report import gallery
from cfaug.report.gallery import Contrast, mark_changes, write_gallery
from tests.properties import examples
from tests.report.example import HOSTILE, data_of, generated, picture
from tests.report.page_reader import PageReader


def decoded(member: dict) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(member["i"])))


def test_the_page_holds_what_the_sets_say(tmp_path: Path) -> None:
    sets = [generated(n) for n in range(3)] + [generated(3, members=4, kind="<i>colour")]
    file = write_gallery(iter(sets), tmp_path / "new" / "gallery.html", title="Cats & dogs")
    page = data_of(file)
    assert page["fields"] == ["sim_direction", "sim_image", "p", "cfg"]
    assert page["kinds"] == ["noun", "<i>colour"]
    first = page["sets"][1]
    assert (first["k"], first["s"], first["x"]) == ("pair-0001", str(2**63 + 1), 0)
    assert first["n"] == [0.23, 0.8, 0.17, 9.0]
    assert [m["c"] for m in first["m"]] == [
        ["a ", "cat", " on mat 1"], ["a ", "dog1", " on mat 1"]
    ]  # fmt: skip
    assert [(m["e"], m["t"]) for m in first["m"]] == [("", -1), ("cat → dog1", 0)]
    assert [m["c"][1] for m in page["sets"][3]["m"]] == ["cat", "dog3", "fish3", "horse3"]
    assert "<title>Cats &amp; dogs</title>" in file.read_text()
    assert "4 sets." in file.read_text()


def test_a_small_drawing_stays_exact_and_a_photograph_becomes_small(tmp_path: Path) -> None:
    drawing = generated(0)
    large = np.random.default_rng(0).integers(0, 255, (300, 500, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(large).save(buffer, "PNG")
    sets = [drawing, replace(generated(1), images={"0": buffer.getvalue(), "1": buffer.getvalue()})]
    page = data_of(write_gallery(sets, tmp_path / "g.html", title="t"))
    small, big = (page["sets"][n]["m"][0] for n in (0, 1))
    exact = Image.open(io.BytesIO(drawing.images["0"])).convert("RGB")
    assert decoded(small).convert("RGB").tobytes() == exact.tobytes()
    assert small["q"] == 1
    assert (big["w"], big["h"]) == decoded(big).size == (192, 115)
    assert "q" not in big


def test_captions_cannot_end_the_script(tmp_path: Path) -> None:
    plain = generated(0)
    hostile = replace(plain, members=(replace(plain.members[0], text=HOSTILE), plain.members[1]))
    file = write_gallery([hostile], tmp_path / "g.html", title="</title><script>alert(1)</script>")
    text = file.read_text()
    assert text.count("</script>") == 2
    assert "<script>alert" not in text
    assert "x.example" not in re.sub(r'<script type="application/json".*?</script>', "", text)
    assert "".join(data_of(file)["sets"][0]["m"][0]["c"]) == HOSTILE


def test_of_too_many_a_random_sample_is_shown_in_order(tmp_path: Path) -> None:
    sets = [generated(n) for n in range(40)]
    file = write_gallery(iter(sets), tmp_path / "g.html", title="t", limit=10)
    keys = [shown["k"] for shown in data_of(file)["sets"]]
    assert len(keys) == 10
    assert keys == sorted(keys) != [pair.key for pair in sets[:10]]
    assert "10 of 40 sets, drawn at random" in file.read_text()
    again = write_gallery(reversed(sets), tmp_path / "h.html", title="t", limit=10)
    assert sorted(shown["k"] for shown in data_of(again)["sets"]) == keys
    every = write_gallery(iter(sets), tmp_path / "i.html", title="t", limit=None)
    assert len(data_of(every)["sets"]) == 40


def test_large_sets_say_how_many_members_are_left_out(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(gallery, "MEMBERS", 3)
    page = data_of(write_gallery([generated(0, members=5)], tmp_path / "g.html", title="t"))
    assert (len(page["sets"][0]["m"]), page["sets"][0]["x"]) == (3, 2)


def test_numbers_that_are_missing_or_none(tmp_path: Path) -> None:
    scored = replace(generated(0), scores={"a": float("nan"), "b": 1.0})
    bare = CounterfactualSet(
        "bare", "g", (Member("a cat", "0", "s"),), {"0": picture("cat", "red")}
    )
    page = data_of(write_gallery([bare, scored], tmp_path / "g.html", title="t"))
    assert page["fields"] == ["b", "p", "cfg"]
    assert [s["n"] for s in page["sets"]] == [[], [1.0, 0.1, 9.0]]


def test_what_cannot_be_shown(tmp_path: Path) -> None:
    broken = replace(generated(0), images={"0": b"no image", "1": picture("cat", "red")})
    with pytest.raises(UserError, match="set pair-0000, image 0"):
        write_gallery([broken], tmp_path / "g.html", title="t")
    with pytest.raises(UserError, match="no set"):
        write_gallery([], tmp_path / "g.html", title="t")
    with pytest.raises(UserError, match="1 or more"):
        write_gallery([generated(0)], tmp_path / "g.html", title="t", limit=0)
    assert not (tmp_path / "g.html").exists()


def css(contrast: Contrast, x: float) -> float:
    """What a browser makes of a value: each function clips, as Filter Effects Level 1 says."""
    match = re.fullmatch(r"brightness\((\S+)\) contrast\((\S+)\)", contrast.filter)
    assert match is not None
    x = min(1.0, float(match[1]) * x)
    return min(1.0, max(0.0, float(match[2]) * (x - 0.5) + 0.5))


@settings(max_examples=examples(50), deadline=None)
@given(st.floats(0, 0.9), st.floats(0.02, 1), st.floats(0, 1))
def test_the_filter_maps_low_to_black_and_high_to_white(low: float, width: float, x: float) -> None:
    high = min(1.0, low + width)
    expected = min(1.0, max(0.0, (x - low) / (high - low)))
    assert css(Contrast(low, high), x) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(("low", "high", "on"), [(100, 140, True), (10, 245, False)])
def test_dull_pictures_are_stretched_from_the_start(
    tmp_path: Path, low: int, high: int, on: bool
) -> None:
    grey = np.linspace(low, high, 64 * 64).reshape(64, 64).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(grey).convert("RGB").save(buffer, "PNG")
    images = dict.fromkeys("01", buffer.getvalue())
    file = write_gallery([replace(generated(0), images=images)], tmp_path / "g.html", title="t")
    assert ('<body class="stretch">' in file.read_text()) == on
    (style,) = re.findall(r"\.stretch .picture img \{ filter: (.*?); \}", file.read_text())
    slope = np.prod([float(v) for v in re.findall(r"\(([\d.]+)\)", style)])
    assert slope == pytest.approx(255 / (high - low), rel=0.05)


def test_sets_are_found_by_the_classes_of_their_members(tmp_path: Path) -> None:
    plain = [generated(n) for n in range(3)]
    sets = [
        replace(pair, members=tuple(replace(m, label=label) for m in pair.members))
        for pair, label in zip(plain, ("<b>cat", "dog", "<b>cat"), strict=True)
    ]
    page = data_of(write_gallery([*sets, generated(3)], tmp_path / "g.html", title="t"))
    assert page["classes"] == ["<b>cat", "dog"]
    assert [shown["l"] for shown in page["sets"]] == [[0], [1], [0], []]


def test_an_edit_that_changes_nothing_is_named_by_its_kind_alone(tmp_path: Path) -> None:
    pair = generated(0)
    edited = replace(pair.members[1], edit=Edit("reconstruction", "", ""))
    page = data_of(
        write_gallery(
            [replace(pair, members=(pair.members[0], edited))], tmp_path / "g.html", title="t"
        )
    )
    assert page["kinds"] == ["reconstruction"]
    assert [(m["e"], m["t"]) for m in page["sets"][0]["m"]] == [("", -1), ("", 0)]


def marks(first: str, second: str, edit: tuple[str, str] | None, same: bool = False) -> list:
    a = Member(first, "0", "s")
    b = Member(second, "0" if same else "1", "s", Edit("noun", *edit) if edit else None)
    return [mark_changes((a, b), 0)[1::2], mark_changes((a, b), 1)[1::2]]


@pytest.mark.parametrize(
    ("first", "second", "edit", "expected"),
    [
        ("a red cat", "a red dog", ("cat", "dog"), [["cat"], ["dog"]]),
        ("A Cat sat", "A Fire  Truck sat", ("cat", "fire truck"), [["Cat"], ["Fire  Truck"]]),
        ("an owl", "a cat", ("owl", "cat"), [["owl"], ["cat"]]),  # not the article
        ("a cat, a cat", "a cat, a dog", ("cat", "dog"), [["cat"], ["dog"]]),
        ("a concatenated cat", "a concatenated dog", ("cat", "dog"), [["cat"], ["dog"]]),
        ("a cat", "a dog", ("horse", "cow"), [["cat"], ["dog"]]),  # the edit says something else
        ("a cat", "a dog", None, [["cat"], ["dog"]]),
        ("a cat", "a fat cat", ("", "fat"), [[], ["fat"]]),
        ("a cat (2*)", "a cat (3+)", ("(2*)", "(3+)"), [["(2*)"], ["(3+)"]]),
        ("a cat", "a cat", ("x", "y"), [[], []]),
    ],
)
def test_changed_words_are_marked(first, second, edit, expected) -> None:
    assert marks(first, second, edit) == expected


def test_captions_of_one_image_are_not_edits() -> None:
    assert marks("a cat", "the tabby sleeps", None, same=True) == [[], []]


@settings(max_examples=examples(50), deadline=None)
@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=8), st.text(max_size=8))
def test_pieces_are_the_caption(first: str, second: str, before: str, after: str) -> None:
    pair = (Member(first, "0", "s"), Member(second, "1", "s", Edit("noun", before, after)))
    for i, text in enumerate((first, second)):
        pieces = mark_changes(pair, i)
        assert "".join(pieces) == text
        assert len(pieces) % 2 == 1
        assert all(pieces[1::2])


# What a reader of the gallery does, in headless Chromium, where there is one.

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
        replace(
            example_set,
            members=tuple(replace(m, label=f"class {n % 4}") for m in example_set.members),
        )
        for n, example_set in enumerate(made)
    ]


@pytest.fixture(scope="module")
def page(sets, tmp_path_factory) -> Path:
    return write_gallery(sets, tmp_path_factory.mktemp("page") / "gallery.html", title="Gallery")


@pytest.fixture
def reader(watched: Browser, sets, page) -> Reader:
    watched.open(page)
    return Reader(watched, sets)


def test_a_reader_sees_the_sets(reader: Reader) -> None:
    assert reader.keys == [example_set.key for example_set in reader.sets[:24]]
    assert reader.status == "1–24 of 60"
    run = reader.browser.run
    assert run("document.title") == "Gallery"  # the caption's script did not run
    assert reader.seen(".set:nth-child(2) figcaption")[0] == HOSTILE
    assert reader.seen(".set:first-child mark") == ["cat", "dog0"]
    assert len(reader.seen(".set:nth-child(3) img")) == 6
    assert run("document.querySelector('.set .numbers').innerText") == ""  # words come first
    assert reader.seen(".set:first-child summary") == ["scores and key"]
    run("document.querySelector('.set summary').click()")
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
    scores = {
        example_set.key: example_set.scores.get("sim_direction", 9) for example_set in reader.sets
    }
    expected = [k for k, score in scores.items() if 0.2 <= score <= 0.3 and int(k[-4:]) % 3 == 0]
    assert reader.keys == expected != []
    reader.limits("p", "2", "")
    assert reader.keys == []
    assert reader.status == "0 sets"
    reader.resets()
    assert reader.status == "1–24 of 60"


def test_a_reader_sorts(reader: Reader) -> None:
    def by(number: int) -> tuple:
        score = reader.sets[number].scores.get("sim_direction")
        return (score is None, -(score or 0), number)

    reader.picks("sort", "sim_direction, highest first")
    assert reader.keys == [reader.sets[n].key for n in sorted(range(COUNT), key=by)[:24]]
    reader.chooses("text", "dog2")
    few = [n for n in range(COUNT) if "dog2" in reader.sets[n].members[1].text]
    assert reader.keys == [reader.sets[n].key for n in sorted(few, key=by)]
    assert reader.keys[-1] == "pair-0002", "what has no score comes last"
    reader.chooses("text", "")
    reader.picks("sort", "p, lowest first")
    p = {example_set.key: example_set.members[0].extra["p"] for example_set in reader.sets}
    assert [p[key] for key in reader.keys] == sorted(p.values())[:24]
    reader.picks("sort", "shuffled")
    shuffled = reader.keys
    assert shuffled != sorted(shuffled)
    reader.picks("sort", "as they come")
    assert reader.keys == [example_set.key for example_set in reader.sets[:24]]


def test_a_reader_has_a_keyboard_only(reader: Reader) -> None:
    press = reader.browser.press
    press("ArrowRight")
    press("ArrowRight")
    assert reader.status == "49–60 of 60"
    press("ArrowRight")
    assert reader.keys == [example_set.key for example_set in reader.sets[48:]]
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
