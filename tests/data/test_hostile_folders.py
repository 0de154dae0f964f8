"""Folders of images that cannot be used, or not be read: refused by name."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from cfaug.data.shards.shards import write_shards
from tests.data.hostile import huge_png, refused
from tests.data.making import PHOTOS, noise_image, pair, photo_folder, write_tar


def photos(folder: Path, lines: list[dict[str, object]]) -> Path:
    folder.mkdir()
    for name in PHOTOS:
        shutil.copy(photo_folder() / name, folder)
    (folder / "captions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ({"image": "gone.png", "caption": "x"}, ["line 2", "gone.png"]),
        ({"image": "chelsea.png", "caption": " "}, ["line 2", "empty"]),
        ({"image": "chelsea.png", "captions": []}, ["line 2"]),
        ({"image": "chelsea.png", "captions": ["a", 3]}, ["line 2"]),
        ({"image": "../secret.png", "caption": "x"}, ["line 2", "../secret.png", "leads out"]),
        ({"image": "/etc/hostname", "caption": "x"}, ["line 2", "/etc/hostname", "leads out"]),
        ({"picture": "chelsea.png", "caption": "x"}, ["line 2", "picture", "file_name"]),
        ({"image": "broken.png", "caption": "x"}, ["broken.png"]),
        ({"image": "huge.png", "caption": "x"}, ["huge.png"]),
    ],
)
def test_a_line_that_cannot_be_used(tmp_path, line, named):
    folder = photos(tmp_path / "photos", [{"image": "coffee.png", "caption": "coffee"}, line])
    (folder / "broken.png").write_bytes(noise_image(0)[:-30])
    (folder / "huge.png").write_bytes(huge_png())
    (tmp_path / "secret.png").write_bytes(noise_image(1))
    refused(folder, *named)


def test_a_list_that_is_no_json(tmp_path):
    folder = photos(tmp_path / "photos", [])
    (folder / "captions.jsonl").write_text('{"image": "coffee.png", "caption": "x"}\n{"image": \n')
    refused(folder, "captions.jsonl", "line 2")


def test_an_empty_list(tmp_path):
    refused(photos(tmp_path / "photos", []), str(tmp_path / "photos"), "no image-text pair")


def test_an_image_without_the_text_beside_it(tmp_path):
    (tmp_path / "photos").mkdir()
    for name in ("coffee.png", "chelsea.png"):
        shutil.copy(photo_folder() / name, tmp_path / "photos")
    (tmp_path / "photos" / "coffee.txt").write_text("a cup of coffee")
    refused(tmp_path / "photos", "chelsea")
    (tmp_path / "photos" / "chelsea.txt").write_text("\n \n")
    refused(tmp_path / "photos", "chelsea.txt", "empty")


AS_NOBODY = textwrap.dedent("""
    import json, os, sys
    from pathlib import Path
    from PIL import Image
    from cfaug.data.index import open_index
    from cfaug.core.errors import UserError
    Image.init(), "".encode("utf-8-sig")  # nobody may not even read Python's own files later on
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    said = {}
    for folder in sys.argv[2:]:
        try:
            open_index(folder, Path(sys.argv[1]))
        except UserError as error:
            said[folder] = str(error)
    print(json.dumps(said))
""")
FORMS = ("images", "tars", "shards", "list")
PARTS = ("folder", "inside")


def unreadable(folder: Path, form: str, closed: str) -> Path:
    """Make a source, close it or one of its files, and return what was closed."""
    if form == "images":
        for label in ("cat", "cup"):
            (folder / label).mkdir(parents=True)
            (folder / label / "1.jpg").write_bytes(noise_image(0, kind="JPEG"))
        inside = folder / "cup"
    elif form == "list":
        photos(folder, [{"image": name, "caption": "x"} for name in PHOTOS])
        inside = folder / "coffee.png"
    else:
        inside = folder / "00000.tar"
        if form == "tars":
            write_tar(inside, {"cat.png": noise_image(0), "cat.txt": b"a cat"})
        else:
            write_shards([pair(0)], folder)
    target = folder if closed == "folder" else inside
    target.chmod(0)
    return target


@pytest.fixture(scope="module")
def closed_sources():
    """What was closed of every source, and what another user is told; nothing may be cached.

    Not below pytest's own folder: every pytest that starts closes that to other users again.
    """
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "cache").mkdir()
        (root / "cache").chmod(0o777)
        folders = {(form, part): root / f"{form}-{part}" for form in FORMS for part in PARTS}
        closed = {case: unreadable(folder, *case) for case, folder in folders.items()}
        modes = {path: 0o755 if path.is_dir() else 0o644 for path in closed.values()}
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, str(root / "cache"), *map(str, folders.values())],
            capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False,
        )  # fmt: skip
        for path, mode in modes.items():
            path.chmod(mode)
        assert (done.returncode, done.stderr) == (0, "")
        assert not list((root / "cache").iterdir())
        said = json.loads(done.stdout)
        yield {case: (closed[case], said[str(folder)]) for case, folder in folders.items()}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("part", PARTS)
def test_an_unreadable_folder_or_file(closed_sources, form, part):
    closed, said = closed_sources[form, part]
    assert f"{closed} cannot be read: Permission denied" in said
