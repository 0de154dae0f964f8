from __future__ import annotations

import json
import os
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet
from cfaug.data.shards.shards import list_committed, read_sets, write_card, write_shards
from tests.data.making import pair, write_tar

PAIRS = [pair(number, members=2 + number % 2) for number in range(7)]


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_sets_come_back_in_order(tmp_path):
    card = write_shards(PAIRS, tmp_path, sets_per_shard=3)
    assert list(read_sets(tmp_path)) == PAIRS
    assert (card["sets"], card["members"]) == (7, 17)
    assert list(contents(tmp_path)) == [
        "00000.json", "00000.tar", "00001.json", "00001.tar", "00002.json", "00002.tar",
        "card.json",
    ]  # fmt: skip


def test_the_same_sets_give_the_same_bytes(tmp_path):
    write_shards(PAIRS, tmp_path / "a", sets_per_shard=3)
    write_shards(iter(PAIRS), tmp_path / "b", sets_per_shard=3)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    write_shards(PAIRS, tmp_path / "a", sets_per_shard=3)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_members_of_a_shard_have_no_time_and_no_owner(tmp_path):
    write_shards(PAIRS[:1], tmp_path)
    with tarfile.open(tmp_path / "00000.tar") as tar:
        assert {(e.mtime, e.uid, e.gid, e.uname, e.mode) for e in tar} == {(0, 0, 0, "", 0o644)}
        assert tar.getnames()[:3] == ["pair-00000_0.png", "pair-00000_0.txt", "pair-00000_0.json"]


def test_the_card_can_be_made_again_by_anyone(tmp_path):
    write_shards(PAIRS, tmp_path, sets_per_shard=2)
    before = (tmp_path / "card.json").read_bytes()
    (tmp_path / "card.json").unlink()
    write_card(tmp_path)
    assert (tmp_path / "card.json").read_bytes() == before


def test_a_key_that_comes_twice_is_refused_and_earlier_shards_stay(tmp_path):
    with pytest.raises(UserError, match=f"{PAIRS[0].key!r} is duplicated"):
        write_shards([*PAIRS[:4], PAIRS[0]], tmp_path, sets_per_shard=2)
    assert list(read_sets(tmp_path)) == PAIRS[:4]


def test_a_writer_killed_at_any_point_leaves_whole_shards_only(tmp_path):
    def dying(after: int) -> Iterator[CounterfactualSet]:
        yield from PAIRS[:after]
        os.kill(os.getpid(), signal.SIGKILL)

    for after in (1, 2, 3, 5):
        folder = tmp_path / str(after)
        child = os.fork()
        if not child:
            write_shards(dying(after), folder, sets_per_shard=2)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        assert list(read_sets(folder)) == PAIRS[: after // 2 * 2]
        write_shards(PAIRS, folder, sets_per_shard=2)  # the same command again
        assert list(read_sets(folder)) == PAIRS


def test_a_tar_without_its_commit_does_not_exist(tmp_path):
    write_shards(PAIRS, tmp_path, sets_per_shard=3)
    (tmp_path / "00001.json").unlink()
    with pytest.raises(UserError, match=r"card\.json counts 1 of its shards \(00001\.tar\)"):
        list(read_sets(tmp_path))
    (tmp_path / "card.json").unlink()  # as a process that was killed leaves it, before its card
    assert list(read_sets(tmp_path)) == [*PAIRS[:3], *PAIRS[6:]]
    write_tar(tmp_path / "00001.tar", {"half": b"a tar"})
    assert [tar.name for tar, _ in list_committed(tmp_path)] == ["00000.tar", "00002.tar"]


@pytest.mark.parametrize("damage", ["truncated", "gone", "longer"])
def test_a_tar_that_is_not_what_was_committed_is_named(tmp_path, damage):
    write_shards(PAIRS, tmp_path, sets_per_shard=3)
    tar = tmp_path / "00001.tar"
    if damage == "gone":
        tar.unlink()
    else:
        size = tar.stat().st_size
        os.truncate(tar, size - 5000 if damage == "truncated" else size + 512)
    with pytest.raises(UserError, match=r"00001\.tar"):
        list(read_sets(tmp_path))


def test_a_damaged_header_is_not_taken_for_the_end(tmp_path):
    write_shards(PAIRS, tmp_path)
    with tarfile.open(tmp_path / "00000.tar") as tar:
        at = tar.getmember("pair-00004_0.png").offset
    with (tmp_path / "00000.tar").open("r+b") as handle:
        handle.seek(at)
        handle.write(b"\xa5" * 512)
    with pytest.raises(UserError, match=r"00000\.tar"):
        list(read_sets(tmp_path))


def test_a_commit_of_another_format_is_refused_by_name(tmp_path):
    write_shards(PAIRS, tmp_path)
    commit = tmp_path / "00000.json"
    commit.write_text(json.dumps(json.loads(commit.read_text()) | {"format": 99}))
    with pytest.raises(UserError, match=r"00000\.json.*99"):
        list_committed(tmp_path)


def test_other_sets_are_not_mixed_with_those_already_there(tmp_path):
    write_shards(PAIRS, tmp_path, sets_per_shard=2)
    with pytest.raises(UserError, match=r"00001\.tar"):
        write_shards([pair(100), pair(101)], tmp_path, sets_per_shard=2)


def test_a_full_disk_names_the_folder_and_keeps_what_was_complete(tmp_path):
    # Where the third shard is first written there is a device that is always full.
    (tmp_path / f"00002.tar.{os.getpid()}.tmp").symlink_to("/dev/full")
    with pytest.raises(UserError, match=f"no space left in {tmp_path}: shard 00002"):
        write_shards(PAIRS, tmp_path, sets_per_shard=2)
    assert list(read_sets(tmp_path)) == PAIRS[:4]
    assert sorted(contents(tmp_path)) == ["00000.json", "00000.tar", "00001.json", "00001.tar"]
    write_shards(PAIRS, tmp_path, sets_per_shard=2)
    assert list(read_sets(tmp_path)) == PAIRS


def test_webdataset_reads_our_shards(tmp_path):
    import webdataset as wds
    from PIL import Image

    write_shards(PAIRS, tmp_path, sets_per_shard=100)
    stream = wds.WebDataset(str(tmp_path / "00000.tar"), shardshuffle=False).decode("pil")
    samples = list(stream)
    members = [(one, i) for one in PAIRS for i in range(len(one.members))]
    assert [s["__key__"] for s in samples] == [f"{one.key}_{i}" for one, i in members]
    for sample, (one, i) in zip(samples, members, strict=True):
        member = one.members[i]
        assert isinstance(sample["png"], Image.Image)
        assert sample["txt"] == member.text
        assert sample["json"]["edit"] == (None if i == 0 else vars(member.edit))
