"""Shards that are broken or mean harm: refused by name, nothing good lost, nothing half-made."""

from __future__ import annotations

import io
import json
import os
import pickle
import tarfile
from collections.abc import Callable

import pytest

from cfaug.data.index import open_index
from cfaug.data.shards.shards import read_sets, write_shards
from tests.data.hostile import assert_refused, huge_png, refused
from tests.data.making import pair, photo_bytes, write_tar

CAT = photo_bytes("chelsea.png")


def sample(key: str, text: bytes = b"a cat", image: bytes = CAT) -> dict[str, bytes]:
    return {f"{key}.jpg": image, f"{key}.txt": text}


GOOD = {name: content for i in range(20) for name, content in sample(f"{i:05d}").items()}


class Payload:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch /tmp/cfaug-was-unpickled",)


def places(tar):
    """Return the members of a tar by name, and its last one."""
    with tarfile.open(tar) as opened:
        members = opened.getmembers()
    return {member.name: member.offset for member in members}, members[-1]


@pytest.mark.parametrize("cut", [1, 511, 512, 3000, 20_000])
def test_a_truncated_tar(tmp_path, cut):
    tar = write_tar(tmp_path / "wds" / "00000.tar", GOOD)
    _, end = places(tar)
    os.truncate(tar, end.offset_data + -(-end.size // 512) * 512 - cut)
    refused(tmp_path / "wds", "00000.tar")


@pytest.mark.parametrize("harm", ["cut between members", "damaged header", "not a tar"])
def test_a_tar_that_is_broken_in_the_middle(tmp_path, harm):
    tar = write_tar(tmp_path / "wds" / "00000.tar", GOOD)
    at = places(tar)[0]["00010.jpg"]
    if harm == "cut between members":
        os.truncate(tar, at)
    elif harm == "damaged header":
        content = tar.read_bytes()
        tar.write_bytes(content[:at] + b"\xa5" * 512 + content[at + 512 :])
    else:
        tar.write_bytes(b"<html>not found</html>" * 100)
    said = refused(tmp_path / "wds", "00000.tar")
    assert "truncated" in said or harm != "cut between members"


@pytest.mark.parametrize("lost", [20, 0.5, 0.95])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_truncated_image_is_found_by_the_scan(tmp_path, kind, lost):
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
def test_an_image_that_is_none_or_claims_too_much(tmp_path, image):
    members = {"culprit.png": image, "culprit.txt": b"a cat"}
    write_tar(tmp_path / "wds" / "00000.tar", GOOD | members)
    refused(tmp_path / "wds", "00000.tar", "culprit")


@pytest.mark.parametrize(
    "extension", ["pkl", "pickle", "pyd", "pt", "pth", "ckpt", "joblib", "npy"]
)
def test_a_pickle_in_a_shard_is_neither_read_nor_passed_over(tmp_path, extension):
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
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)
def test_a_link_or_device(tmp_path, kind):
    tar = write_tar(tmp_path / "wds" / "00000.tar", GOOD)
    with tarfile.open(tar, "a") as opened:
        entry = tarfile.TarInfo("shadow.txt")
        entry.type, entry.linkname = kind, "/etc/shadow"
        opened.addfile(entry)
    refused(tmp_path / "wds", "00000.tar", "shadow.txt")


AGAIN = [*sample("again").items()]


@pytest.mark.parametrize(
    ("members", "named"),
    [
        *(([(name, CAT)], [name, "leads out"])
          for name in ("../../evil.jpg", "/etc/evil.jpg", "a/../../evil.jpg", "./../evil.jpg")),
        (sample("cat.v2").items(), ["cat.v2", "dot"]),
        *((sample("silent", text).items(), ["silent"]) for text in (b"", b" \n\t ", b"\xff\xfe")),
        ([*sample("odd").items(), ("odd.json", b"{'a': 1}")], ["odd"]),
        *(([("odd.jpg", CAT), ("odd.json", json.dumps({"caption": text}).encode())], ["odd"])
          for text in (3, ["a"], {})),
        ([*AGAIN, *AGAIN], ["again"]),
        ([*AGAIN, *sample("between").items(), *AGAIN], ["again"]),
        ([("blind.txt", b"a cat")], ["blind"]),
        ([("mute.jpg", CAT)], ["mute"]),
    ],
)  # fmt: skip
def test_members_that_cannot_be_used_are_named(tmp_path, members, named):
    write_tar(tmp_path / "wds" / "00000.tar", [*GOOD.items(), *members])
    refused(tmp_path / "wds", "00000.tar", *named)


@pytest.mark.parametrize("between", [{}, sample("between")])
def test_a_key_twice_in_two_tars(tmp_path, between):
    write_tar(tmp_path / "wds" / "00000.tar", GOOD | sample("again"))
    write_tar(tmp_path / "wds" / "00001.tar", between | sample("again"))
    refused(tmp_path / "wds", "00000.tar", "00001.tar", "again")


def test_one_bad_shard_of_ours_loses_no_other(tmp_path):
    write_shards([pair(i) for i in range(6)], tmp_path / "shards", sets_per_shard=2)
    os.truncate(tmp_path / "shards" / "00002.tar", 3000)
    refused(tmp_path / "shards", "00002.tar")
    for name in ("00002.tar", "00002.json"):  # what the message says
        (tmp_path / "shards" / name).unlink()
    refused(tmp_path / "shards", "00002.tar", "to read the other shards alone, remove card.json")
    (tmp_path / "shards" / "card.json").unlink()
    assert list(read_sets(tmp_path / "shards")) == [pair(i) for i in range(4)]
    assert len(open_index(tmp_path / "shards", tmp_path / "cache")) == 8


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    write_tar(tmp_path / "wds" / "00000.tar", GOOD)
    (tmp_path / "cache").write_text("a file where a folder should be")
    assert_refused(tmp_path / "wds", tmp_path / "cache", "cache")
