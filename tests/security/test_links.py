"""Links in a received folder are not followed out of it, and devices are not opened.

Findings N1 and N24 of the second round of hostile use: a link called a.txt had a file of the home
folder read as a caption, trained on and printed; a configuration that was a link to /dev/zero
filled the memory.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.files import check_link, check_links
from cfaug.core.weights import resolve, zoo_shelf
from cfaug.data.index import open_index
from cfaug.data.sources import find_reader
from cfaug.data.sources.question_sets import read_questions
from cfaug.editing.causal_lm import CausalLM
from cfaug.report.records import read_config
from cfaug.run.evaluation_data import DataOpener
from tests.data.compositional import sugarcrepe
from tests.data.making import noise_image, write_tar
from tests.data.question_files import own_record, write_own

SECRET = "aws_secret_access_key = PLANTED123"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with files that nobody but its owner should read."""
    home = tmp_path / "home"
    (home / "photos").mkdir(parents=True)
    (home / "credentials").write_text(SECRET)
    (home / "captions.csv").write_text(f"image,caption\na.png,{SECRET}\nb.png,x\n")
    (home / "photos/a.png").write_bytes(noise_image(5))
    write_tar(home / "all.tar", {"z.png": noise_image(1), "z.txt": SECRET.encode()})
    return home


def captioned(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for i, name in enumerate("ab"):
        (folder / f"{name}.png").write_bytes(noise_image(i))
        (folder / f"{name}.txt").write_text(f"photo {name}")
    return folder


def listed(folder: Path) -> Path:
    captioned(folder)
    for file in folder.glob("*.txt"):
        file.unlink()
    (folder / "captions.csv").write_text("image,caption\na.png,photo a\nb.png,photo b\n")
    return folder


def classes(folder: Path) -> Path:
    for i, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        (folder / name / "1.png").write_bytes(noise_image(i))
    return folder


def tars(folder: Path) -> Path:
    folder.mkdir()
    write_tar(folder / "00000.tar", {"a.png": noise_image(0), "a.txt": b"a photo"})
    return folder


PLANTED: dict[str, tuple[Callable[[Path], Path], str, str]] = {
    "text beside an image": (captioned, "a.txt", "credentials"),
    "image": (captioned, "a.png", "photos/a.png"),
    "list": (listed, "captions.csv", "captions.csv"),
    "image of a list": (listed, "a.png", "photos/a.png"),
    "folder of a list": (listed, "images", "photos"),
    "class folder": (classes, "bird", "photos"),
    "image of a class": (classes, "cat/2.png", "photos/a.png"),
    "tar": (tars, "00001.tar", "all.tar"),
    "names of classes": (tars, "classnames.txt", "credentials"),
    "missing": (captioned, "a.txt", "nothing"),
}


@pytest.mark.parametrize("case", PLANTED)
@pytest.mark.parametrize("relative", [False, True])
def test_a_link_out_of_a_folder_is_refused_n1(
    case: str, relative: bool, home: Path, tmp_path: Path
) -> None:
    make, name, target = PLANTED[case]
    folder = make(tmp_path / "received")
    (folder / name).unlink(missing_ok=True)
    start = (folder / name).parent
    link = os.path.relpath(home / target, start) if relative else home / target
    (folder / name).symlink_to(link)
    for source in (folder, tmp_path / "chosen"):
        if source != folder:
            source.symlink_to(folder)  # the user may name a link
        with pytest.raises(UserError, match=r"is a link that leads out of .*received, to") as error:
            open_index(source, tmp_path / "cache")
        assert "PLANTED123" not in str(error.value)
    assert not list(tmp_path.glob("cache/*"))
    if case != "missing":
        permitted = open_index(folder, tmp_path / "cache", [home])
        assert len(permitted) > 0


def test_links_within_a_folder_are_followed(tmp_path: Path) -> None:
    folder = captioned(tmp_path / "received")
    for name in ("a.png", "a.txt"):
        (folder / f"c{name[1:]}").symlink_to(name)
    (folder / "again").symlink_to(".")
    assert len(open_index(folder, tmp_path / "cache")) == 3


def test_a_snapshot_of_the_hubs_cache_is_read(tmp_path: Path) -> None:
    repository = tmp_path / "datasets--owner--name"
    folder = captioned(tmp_path / "plain")
    snapshot = repository / "snapshots/0123"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for file in folder.iterdir():
        shutil.copy(file, repository / "blobs" / file.name)
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    assert len(open_index(snapshot, tmp_path / "cache")) == 2
    (snapshot / "c.txt").symlink_to(tmp_path / "plain/a.txt")
    with pytest.raises(UserError, match=r"c\.txt is a link that leads out"):
        open_index(snapshot, tmp_path / "cache")


def test_photos_of_questions_are_not_read_behind_links_n1(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "received"
    folder.mkdir()
    file = write_own(folder, [own_record(0, image="x.png")])
    (folder / "x.png").unlink(missing_ok=True)
    (folder / "x.png").symlink_to(home / "photos/a.png")
    for source in (folder, file):
        with pytest.raises(UserError, match=r"x\.png is a link that leads out of"):
            read_questions(source)
        assert len(read_questions(source, [home])) == 1


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "x/a.json"])
@pytest.mark.parametrize("target", ["/dev/zero", "credentials", "pipe"])
def test_weights_are_not_read_behind_links_n24(
    name: str, target: str, home: Path, tmp_path: Path
) -> None:
    place = tmp_path / "weights"
    shutil.copytree(zoo_shelf() / "clip-0", place)
    assert resolve(str(place)) == place
    file = place / name
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    if target == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(home / target)
    said = "leads out of" if target == "credentials" else "is not a regular file but a"
    with pytest.raises(UserError, match=said) as error:
        resolve(str(place))
    assert str(file) in str(error.value)


def test_an_adapter_is_not_read_behind_links(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_model.safetensors").symlink_to(home / "credentials")
    model = CausalLM("zoo:language/causal", adapter=str(folder))
    for read in (model.weights_hash, model.describe):
        with pytest.raises(UserError, match="is a link that leads out"):
            read()


def test_the_settings_of_a_run_are_not_read_behind_a_link_n1(home: Path, tmp_path: Path) -> None:
    """The error of YAML quotes the lines that it cannot read."""
    (home / "credentials").write_text("a: b: PLANTED123\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.yaml").symlink_to(home / "credentials")
    with pytest.raises(UserError, match=r"config\.yaml is a link that leads out of") as error:
        read_config(tmp_path / "run")
    assert "PLANTED123" not in str(error.value)


def test_a_link_that_leads_to_itself_is_named(tmp_path: Path) -> None:
    folder = captioned(tmp_path / "received")
    (folder / "round.txt").symlink_to("round.txt")
    with pytest.raises(UserError, match=r"round\.txt cannot be read: Too many levels"):
        open_index(folder, tmp_path / "cache")


@given(st.lists(st.sampled_from(["..", ".", "in", "out", "up", "a"]), min_size=1, max_size=7))
def test_no_way_through_links_leads_out(tmp_path_factory, steps: list[str]) -> None:
    """Of any relative target, through further links or not, exactly those within are accepted."""
    root = tmp_path_factory.mktemp("links")
    folder = root / "received"
    (folder / "in/a").mkdir(parents=True)
    (root / "out").mkdir()
    (folder / "up").symlink_to("in/a/..")
    link = folder / "in/link"
    link.symlink_to("/".join(steps))
    real = Path(os.path.realpath(link))
    if real == folder or folder in real.parents:
        check_links(folder)
        check_link(link, folder)
    else:
        with pytest.raises(UserError, match="leads out of"):
            check_links(folder)


def test_a_benchmark_follows_a_link_into_a_permitted_folder(tmp_path: Path) -> None:
    """SugarCrepe's val2017 as a link to COCO's: the advice of the message was not taken."""
    folder = sugarcrepe(tmp_path / "sugarcrepe")
    photos = shutil.move(folder / "val2017", tmp_path / "photos")
    (folder / "val2017").symlink_to(photos)
    reader, cache = find_reader(folder), tmp_path / "cache"
    with pytest.raises(UserError, match=r"permit the folder: 'paths.image_roots="):
        DataOpener(tmp_path, cache).read_test(reader, str(folder))
    index = DataOpener(tmp_path, cache, [tmp_path / "photos"]).read_test(reader, str(folder))
    assert index.kind == "sugarcrepe"
