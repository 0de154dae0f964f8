"""Shards that are broken or mean harm: refused by name, nothing good lost, nothing half-made."""

from __future__ import annotations

import io
import json
import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.shards.shards import read_sets, write_shards
from tests.data.hostile import huge_png, refused
from tests.data.making import pair, photo_bytes, write_tar

CAT = photo_bytes("chelsea.png")


def sample(key: str, text: bytes = b"a cat", image: bytes = CAT) -> dict[str, bytes]:
    return {f"{key}.jpg": image, f"{key}.txt": text}


GOOD = {name: content for i in range(20) for name, content in sample(f"{i:05d}").items()}


class Payload:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch /tmp/cfaug-was-unpickled",)


@pytest.mark.parametrize("cut", [1, 511, 512, 3000, 20_000])
def test_a_truncated_tar(tmp_path: Path, cut: int) -> None:
    tar = write_tar(tmp_path / "wds" / "00000.tar", GOOD)
    with tarfile.open(tar) as opened:
        end = opened.getmembers()[-1]
    os.truncate(tar, end.offset_data + -(-end.size // 512) * 512 - cut)
    refused(tmp_path / "wds", "00000.tar")


def test_a_tar_cut_between_two_members(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "wds" / "00000.tar", GOOD)
    with tarfile.open(tar) as opened:
        os.truncate(tar, opened.getmember("00010.jpg").offset)
    assert "truncated" in refused(tmp_path / "wds", "00000.tar")


def test_a_damaged_header_in_the_middle(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "wds" / "00000.tar", GOOD)
    with tarfile.open(tar) as opened:
        at = opened.getmember("00010.jpg").offset
    with tar.open("r+b") as handle:
        handle.seek(at)
        handle.write(b"\xa5" * 512)
    refused(tmp_path / "wds", "00000.tar")


def test_not_a_tar_at_all(tmp_path: Path) -> None:
    (tmp_path / "wds").mkdir()
    (tmp_path / "wds" / "00000.tar").write_bytes(b"<html>not found</html>" * 100)
    refused(tmp_path / "wds", "00000.tar")


@pytest.mark.parametrize("lost", [20, 0.5, 0.95])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_truncated_image_is_found_by_the_scan(tmp_path: Path, kind: str, lost: float) -> None:
    whole = photo_bytes("coffee.png", kind=kind)
    length = len(whole) - int(lost if lost > 1 else lost * len(whole))
    extension = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp"}[kind]
    members = {f"broken.{extension}": whole[:length], "broken.txt": b"a cup"}
    write_tar(tmp_path / "wds" / "00000.tar", GOOD | members)
    refused(tmp_path / "wds", "00000.tar", "broken")


@pytest.mark.parametrize(
    "image", [b"", b"GIF89a not an image", huge_png(), pickle.dumps([1])],
    ids=["empty", "no image", "huge", "pickle"],
)  # fmt: skip
def test_an_image_that_is_none_or_claims_too_much(tmp_path: Path, image: bytes) -> None:
    members = {"culprit.png": image, "culprit.txt": b"a cat"}
    write_tar(tmp_path / "wds" / "00000.tar", GOOD | members)
    refused(tmp_path / "wds", "00000.tar", "culprit")


@pytest.mark.parametrize(
    "extension", ["pkl", "pickle", "pyd", "pt", "pth", "ckpt", "joblib", "npy"]
)
def test_a_pickle_in_a_shard_is_neither_read_nor_passed_over(
    tmp_path: Path, extension: str
) -> None:
    content = pickle.dumps(Payload())
    if extension == "npy":
        import numpy as np

        buffer = io.BytesIO()
        np.save(buffer, np.array([Payload()], object), allow_pickle=True)
        content = buffer.getvalue()
    write_tar(tmp_path / "wds" / "00000.tar", GOOD | {f"00019.{extension}": content})
    refused(tmp_path / "wds", "00000.tar", f"00019.{extension}")
    assert not os.path.exists("/tmp/cfaug-was-unpickled")


@pytest.mark.parametrize(
    "name", ["../../evil.jpg", "/etc/evil.jpg", "a/../../evil.jpg", "./../evil.jpg"]
)
def test_a_name_that_leads_out(tmp_path: Path, name: str) -> None:
    write_tar(tmp_path / "wds" / "00000.tar", GOOD | {name: CAT})
    assert "leads out" in refused(tmp_path / "wds", "00000.tar", name)


def test_a_dotted_key(tmp_path: Path) -> None:
    write_tar(tmp_path / "wds" / "00000.tar", GOOD | sample("cat.v2"))
    assert "dot" in refused(tmp_path / "wds", "00000.tar", "cat.v2")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_a_link_or_device(tmp_path: Path, kind: bytes) -> None:
    tar = write_tar(tmp_path / "wds" / "00000.tar", GOOD)
    with tarfile.open(tar, "a") as opened:
        entry = tarfile.TarInfo("shadow.txt")
        entry.type, entry.linkname = kind, "/etc/shadow"
        opened.addfile(entry)
    refused(tmp_path / "wds", "00000.tar", "shadow.txt")


@pytest.mark.parametrize("text", [b"", b" \n\t ", b"\xff\xfe"])
def test_an_empty_or_unreadable_caption(tmp_path: Path, text: bytes) -> None:
    write_tar(tmp_path / "wds" / "00000.tar", GOOD | sample("silent", text))
    refused(tmp_path / "wds", "00000.tar", "silent")


def test_a_json_that_is_none(tmp_path: Path) -> None:
    write_tar(tmp_path / "wds" / "00000.tar", GOOD | sample("odd") | {"odd.json": b"{'a': 1}"})
    refused(tmp_path / "wds", "00000.tar", "odd")


@pytest.mark.parametrize("about", [{"caption": 3}, {"caption": ["a"]}, {"caption": {}}])
def test_a_caption_that_is_no_text(tmp_path: Path, about: dict[str, object]) -> None:
    members = {"odd.jpg": CAT, "odd.json": json.dumps(about).encode()}
    write_tar(tmp_path / "wds" / "00000.tar", GOOD | members)
    refused(tmp_path / "wds", "00000.tar", "odd")


def test_a_key_twice_in_one_tar(tmp_path: Path) -> None:
    members = [*sample("again").items(), *GOOD.items(), *sample("again").items()]
    write_tar(tmp_path / "wds" / "00000.tar", members)
    refused(tmp_path / "wds", "00000.tar", "again")


def test_a_key_twice_in_a_row(tmp_path: Path) -> None:
    members = [*GOOD.items(), *sample("again").items(), *sample("again").items()]
    write_tar(tmp_path / "wds" / "00000.tar", members)
    refused(tmp_path / "wds", "00000.tar", "again")


@pytest.mark.parametrize("between", [{}, sample("between")])
def test_a_key_twice_in_two_tars(tmp_path: Path, between: dict[str, bytes]) -> None:
    write_tar(tmp_path / "wds" / "00000.tar", GOOD | sample("again"))
    write_tar(tmp_path / "wds" / "00001.tar", between | sample("again"))
    refused(tmp_path / "wds", "00000.tar", "00001.tar", "again")


def test_a_sample_without_its_image(tmp_path: Path) -> None:
    write_tar(tmp_path / "wds" / "00000.tar", GOOD | {"blind.txt": b"a cat"})
    refused(tmp_path / "wds", "00000.tar", "blind")


def test_a_sample_without_words(tmp_path: Path) -> None:
    write_tar(tmp_path / "wds" / "00000.tar", GOOD | {"mute.jpg": CAT})
    refused(tmp_path / "wds", "00000.tar", "mute")


def test_several_culprits_are_named_at_once(tmp_path: Path) -> None:
    broken = {}
    for number in range(3):
        broken |= sample(f"broken{number}", image=CAT[:-200])
    write_tar(tmp_path / "wds" / "00000.tar", GOOD | broken)
    refused(tmp_path / "wds", "broken0", "broken1", "broken2")


def test_one_bad_shard_of_ours_loses_no_other(tmp_path: Path) -> None:
    write_shards([pair(i) for i in range(6)], tmp_path / "shards", sets_per_shard=2)
    os.truncate(tmp_path / "shards" / "00002.tar", 3000)
    refused(tmp_path / "shards", "00002.tar")
    for name in ("00002.tar", "00002.json"):  # what the message says
        (tmp_path / "shards" / name).unlink()
    refused(tmp_path / "shards", "00002.tar", "to read the other shards alone, remove card.json")
    (tmp_path / "shards" / "card.json").unlink()
    assert list(read_sets(tmp_path / "shards")) == [pair(i) for i in range(4)]
    assert len(open_index(tmp_path / "shards", tmp_path / "cache")) == 8


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    write_tar(tmp_path / "wds" / "00000.tar", GOOD)
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(UserError, match="cache"):
        open_index(tmp_path / "wds", tmp_path / "cache")
