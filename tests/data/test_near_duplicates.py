"""Near-duplicates between training and test: found, left out, reported and refused."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.perceptual_hash import perceptual_hash
from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.index import Index, image_hashes, open_index
from cfaug.data.mixture.mixture import mix
from cfaug.data.mixture.near_duplicates import find_near_duplicates
from cfaug.data.mixture.settings import NearRule, RatioData, Sources
from cfaug.data.shards.shards import write_shards
from cfaug.evaluation.context import EvaluationContext
from cfaug.report import near_duplicates as pages
from tests.data.making import encoded, photo

REPORT = NearRule("report", 8)


def tiles(count: int) -> list[Image.Image]:
    """Return different photo-like pictures, none near another."""
    names = ("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png")
    cut = []
    for column, row, name in product(range(3), range(3), names):
        whole = photo(name)
        wide, high = whole.width // 3, whole.height // 3
        part = whole.crop((column * wide, row * high, (column + 1) * wide, (row + 1) * high))
        cut.append(part.resize((96, 64)))
    structured = [part for part in cut if perceptual_hash(part)]
    return structured[:count]


def worse(picture: Image.Image) -> Image.Image:
    """Return a small JPEG of a picture, whose bytes are others."""
    content = io.BytesIO()
    picture.resize((72, 48)).save(content, "JPEG", quality=60)
    return Image.open(content).convert("RGB")


def lay(folder: Path, pictures: Mapping[str, Image.Image]) -> Path:
    folder.mkdir()
    with (folder / "captions.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(("image", "caption"))
        for name, picture in pictures.items():
            picture.save(folder / f"{name}.png")
            rows.writerows([(f"{name}.png", f"caption of {name}"), (f"{name}.png", f"a {name}")])
    return folder


def lay_sets(folder: Path, sets: Mapping[str, tuple[Image.Image, Image.Image]]) -> Path:
    """Write shards of an original and a counterfactual each."""
    every = []
    for key, pictures in sets.items():
        images = {str(n): encoded(picture) for n, picture in enumerate(pictures)}
        members = tuple(Member(f"{key} {name}", name, f"{key}-{name}") for name in images)
        every.append(CounterfactualSet(key, key, members, images))
    write_shards(every, folder)
    return folder


def opened(folder: Path) -> Index:
    return open_index(folder, folder.parent / "cache")


def every(index: Index) -> tuple[Index, np.ndarray]:
    return index, np.arange(len(index))


def test_hashes_are_made_once_and_kept_beside_the_digests(tmp_path, monkeypatch, capsys):
    pictures = tiles(5)
    index = opened(lay(tmp_path / "photos", {f"p{n}": part for n, part in enumerate(pictures)}))
    hashes = image_hashes.image_hashes(index)
    shown = [perceptual_hash(index.image(row)) for row in range(len(index))]
    assert hashes[index.images].tolist() == shown
    assert len(set(shown)) == 5
    before = (index.folder / image_hashes.FILE).read_bytes()
    again = opened(tmp_path / "photos")
    assert again.hash == index.hash

    def hash_again(image):
        calls.append(image)
        return perceptual_hash(image)

    calls: list[Image.Image] = []
    monkeypatch.setattr(image_hashes, "perceptual_hash", hash_again)
    monkeypatch.setattr(image_hashes, "AT_ONCE", 2)
    image_hashes.image_hashes.cache_clear()
    assert image_hashes.image_hashes(again).tolist() == hashes.tolist()
    assert not calls
    for harm in (before[:-1] + b"x", before[:-9], b"", b"no array", b"\x80\x05pickle"):
        (index.folder / image_hashes.FILE).write_bytes(harm)
        image_hashes.image_hashes.cache_clear()
        calls.clear()
        assert image_hashes.image_hashes(again).tolist() == hashes.tolist()
        assert len(calls) == 5
        assert (index.folder / image_hashes.FILE).read_bytes() == before
    capsys.readouterr()

    def fail(file, content):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(image_hashes, "write_file", fail)
    (index.folder / image_hashes.FILE).unlink()
    image_hashes.image_hashes.cache_clear()
    assert image_hashes.image_hashes(again).tolist() == hashes.tolist()
    assert "Read-only file system" in capsys.readouterr().err
    image_hashes.image_hashes.cache_clear()


def test_only_pairs_of_training_and_test_count(tmp_path):
    """A photo and its copy on one side are no pair; of several copies, the nearest is named."""
    parts = tiles(8)
    flat = Image.new("RGB", (96, 64), "grey")
    train = {"a": parts[0], "a2": worse(parts[0]), "b": parts[1], "c": parts[2], "flat": flat}
    test = {"x": worse(parts[0]), "y": parts[1].resize((48, 32)), "z": parts[5], "same": flat}
    first, other = opened(lay(tmp_path / "train", train)), opened(lay(tmp_path / "test", test))
    near = find_near_duplicates([every(other)], [every(first)], REPORT, "test")
    named = [(pair.trained, pair.tested) for pair in near.pairs]
    assert [
        (index.key(row), theirs.key(at)) for (index, row), (theirs, at) in named
    ] == [("a2_0", "x_0"), ("b_0", "y_0")]  # fmt: skip
    assert near.pairs[0].distance == 0
    assert (near.checked, near.unhashed, near.left_out) == (4, 1, False)
    assert str(near) == (
        "2 of 4 test images (50.0%) nearly equal training images (at most 8 of 64 bits differ); "
        "1 have too little structure for a hash"
    )
    back = find_near_duplicates([every(first)], [every(other)], REPORT, "training")
    assert [first.key(row) for row in back.rows(first)] == ["a_0", "a2_0", "b_0"]
    exact = find_near_duplicates([every(other)], [every(first)], NearRule("report", 0), "test")
    assert [pair.tested[1] for pair in exact.pairs if pair.distance == 0] == [
        pair.tested[1] for pair in exact.pairs
    ]
    none = find_near_duplicates([every(other)], [], REPORT, "test")
    assert (none.pairs, none.checked) == ((), 4)


@pytest.fixture
def sources(tmp_path) -> Sources:
    """Photos, of which some are copies of others; and sets, of which some show such photos."""
    parts = tiles(40)
    photos = {f"p{n}": part for n, part in enumerate(parts[:24])}
    photos |= {f"copy{n}": worse(part) for n, part in enumerate(parts[:12])}
    other = [worse(part.resize((88, 60))) for part in parts]  # not equal to a copy above
    sets = {f"s{n}": (other[n], parts[30 + n // 2]) for n in range(0, 16, 2)}
    return Sources(
        opened(lay(tmp_path / "photos", photos)), opened(lay_sets(tmp_path / "sets", sets))
    )


def rows_of(mixture) -> dict[int, list[int]]:
    rows = np.concatenate([mixture.train, mixture.validation])
    return {source: sorted(rows[rows[:, 0] == source, 1].tolist()) for source in (0, 1)}


def test_training_leaves_out_what_nearly_equals_the_held_out_test(sources):
    """The eligible rows equal those of a slow search, and whole groups are left out."""
    usual = RatioData("photos", "sets", holdout=0.3, cf_ratio=0.3, seed=1, validation=0)
    plain = mix(usual, sources)
    assert plain.near is None
    held = plain.held_out
    assert held is not None
    tested = [perceptual_hash(held.source.image(row)) for row in held.rows]
    indexes = (sources.real, sources.counterfactual)
    allowed: dict[int, list[int]] = {}
    near_images = 0
    for source, index in enumerate(indexes):
        barred, images = set(), set()
        test_groups = {int(held.source.groups[row]) for row in held.rows}
        for row in range(len(index)):
            if int(index.groups[row]) in test_groups:
                continue
            code = perceptual_hash(index.image(row))
            if any((code ^ other).bit_count() <= 8 for other in tested):
                barred.add(int(index.groups[row]))
                images.add(int(index.images[row]))
        near_images += len(images)
        allowed[source] = [
            row for row in range(len(index))
            if int(index.groups[row]) not in barred | test_groups
        ]  # fmt: skip
    assert near_images > 5
    # At each ratio alone, everything that is allowed is drawn.
    for source, ratio in ((0, 0), (1, 1)):
        left_out = mix(replace(usual, cf_ratio=ratio, near_duplicates="leave_out"), sources)
        assert rows_of(left_out)[source] == allowed[source]
        assert left_out.near is not None
        assert (len(left_out.near.pairs), left_out.near.left_out) == (near_images, True)
        whole = mix(replace(usual, cf_ratio=ratio), sources)
        assert len(rows_of(whole)[source]) > len(allowed[source])
    reported = mix(replace(usual, near_duplicates="report"), sources)
    assert rows_of(reported) == rows_of(plain)
    assert len(reported.near.pairs) == near_images
    nothing = mix(replace(usual, near_duplicates="leave_out", near_distance=0), sources)
    assert len(nothing.near.pairs) < near_images


def context(trained: Index, near: NearRule | None) -> EvaluationContext:
    return EvaluationContext(
        open=lambda name: opened(Path(name)), has_world=False, held_out=lambda: None,
        training=lambda: [every(trained)], near=near,
    )  # fmt: skip


def test_an_evaluation_leaves_out_reports_or_refuses_them(tmp_path):
    parts = tiles(9)
    train = opened(lay(tmp_path / "train", {f"p{n}": part for n, part in enumerate(parts[:4])}))
    sets = {
        "near": (worse(parts[0]), parts[5]), "far": (parts[6], parts[7]),
        "equal": (parts[1], parts[8]),
    }  # fmt: skip
    test = str(lay_sets(tmp_path / "test", sets))

    def apart(near: NearRule | None, **more: bool):
        given = {"without_leaks": False, **more}
        return context(train, near).apart_from_training(test, **given)

    rows, leaks = apart(None)
    assert rows is None
    assert (leaks.equal, leaks.near) == (1, None)
    rows, leaks = apart(REPORT)
    assert rows is None
    assert (leaks.images, len(leaks.near.pairs)) == (1, 2)  # the equal image is near as well
    # What the benchmark leaves out are equal images, and what is near is only reported.
    rows, leaks = apart(REPORT, without_leaks=True)
    assert rows.tolist() == [0, 1, 2, 3, 5]
    rows, leaks = apart(NearRule("leave_out"))
    assert rows.tolist() == [1, 2, 3, 5]
    assert (leaks.images, len(leaks.near.pairs), leaks.near.left_out) == (0, 2, True)
    rows, leaks = apart(NearRule("leave_out"), whole_sets=True)
    assert rows.tolist() == [2, 3]
    with pytest.raises(UserError, match=r"2 of 6 test images \(33.3%\).*leave_out leaves them out"):
        apart(NearRule("refuse"))
    only = str(lay(tmp_path / "only", {"x": worse(parts[0])}))
    with pytest.raises(UserError, match="near_duplicates=leave_out leaves nothing to ask about"):
        context(train, NearRule("leave_out")).apart_from_training(only, without_leaks=False)
    untrained = EvaluationContext(
        open=lambda name: opened(Path(name)), has_world=False, held_out=lambda: None, near=REPORT
    )
    assert untrained.apart_from_training(test, without_leaks=True) == (None, None)


def test_a_page_shows_at_most_so_many_pairs_and_says_how_many_there_are(tmp_path, monkeypatch):
    parts = tiles(6)
    first, other = (
        opened(lay(tmp_path / name, {f"{name}{n}": change(part) for n, part in enumerate(parts)}))
        for name, change in (("train", worse), ("test", lambda part: part))
    )
    near = find_near_duplicates([every(other)], [every(first)], NearRule("leave_out"), "test")
    monkeypatch.setattr(pages, "SHOWN", 3)
    table, page = pages.write_near(tmp_path, "mine", near)
    lines = [json.loads(line) for line in table.read_text().splitlines()]
    assert len(lines) == 6
    assert [line["distance"] for line in lines] == sorted(line["distance"] for line in lines)
    assert {(line["test"][4], line["training"][5]) for line in lines} == {
        (str(n), str(n)) for n in range(6)
    }
    content = page.read_text()
    assert content.count('"i":') == 2 * 3
    assert "are left out; 3 of 6 pairs are shown" in content
    before = table.read_bytes()
    assert pages.write_near(tmp_path, "mine", near) == [table, page]
    assert table.read_bytes() == before
    assert pages.write_near(tmp_path, "mine", None) == []
    assert not table.exists()
    assert not page.exists()
    table.write_text("mine\n")
    assert pages.write_near(tmp_path, "mine", replace(near, pairs=())) == []
    with pytest.raises(UserError, match=r"mine\.jsonl"):
        pages.write_near(tmp_path, "mine", near)
    assert table.read_text() == "mine\n"
