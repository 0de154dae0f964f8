from __future__ import annotations

import json
import os
import signal
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.atomic_files import temporary_name
from cfaug.core.errors import UserError
from cfaug.core.outputs import RECORD
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.index import open_index
from cfaug.data.shards import shards
from cfaug.data.shards.codec import decode_set, encode_set, image_extension
from cfaug.data.shards.shards import list_committed, read_sets, write_card, write_shards
from tests.data.hostile import assert_refused
from tests.data.making import noise_image, pair, photo_bytes, write_tar
from tests.properties import examples

PAIRS = [pair(number, members=2 + number % 2) for number in range(7)]


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_sets_come_back_in_order_and_give_the_same_bytes(tmp_path):
    card = write_shards(PAIRS, tmp_path / "a", sets_per_shard=3)
    assert list(read_sets(tmp_path / "a")) == PAIRS
    assert (card["sets"], card["members"]) == (7, 17)
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


@pytest.mark.parametrize("damage", ["truncated", "gone", "longer", "header"])
def test_a_tar_that_is_not_what_was_committed_is_named(tmp_path, damage):
    write_shards(PAIRS, tmp_path, sets_per_shard=3)
    tar = tmp_path / "00001.tar"
    if damage == "gone":
        tar.unlink()
    elif damage == "header":
        with tarfile.open(tar) as opened, tar.open("r+b") as handle:
            handle.seek(opened.getmember("pair-00004_0.png").offset)
            handle.write(b"\xa5" * 512)
    else:
        size = tar.stat().st_size
        os.truncate(tar, size - 5000 if damage == "truncated" else size + 512)
    with pytest.raises(UserError, match=r"00001\.tar"):
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
        write_shards(PAIRS[:2], tmp_path, sets_per_shard=2)
    with pytest.raises(UserError, match=r"holds other sets, in 00000\.tar"):
        write_shards([pair(100), pair(101)], tmp_path, sets_per_shard=2)
    assert list(read_sets(tmp_path)) == PAIRS


def test_a_file_is_no_folder_of_shards(tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(UserError, match="cannot be made a folder"):
        write_shards(PAIRS, tmp_path / "mine")


def test_a_full_disk_names_the_folder_and_keeps_what_was_complete(tmp_path):
    # Where the third shard is first written there is a device that is always full.
    temporary_name(tmp_path / "00002.tar").symlink_to("/dev/full")
    with pytest.raises(UserError, match=f"no space left in {tmp_path}: shard 00002"):
        write_shards(PAIRS, tmp_path, sets_per_shard=2)
    assert list(read_sets(tmp_path)) == PAIRS[:4]
    assert sorted(contents(tmp_path)) == [
        RECORD, "00000.json", "00000.tar", "00001.json", "00001.tar",
    ]  # fmt: skip
    write_shards(PAIRS, tmp_path, sets_per_shard=2)
    assert list(read_sets(tmp_path)) == PAIRS


def test_webdataset_reads_our_shards(tmp_path):
    import webdataset as wds
    from PIL import Image

    write_shards(PAIRS, tmp_path, sets_per_shard=100)
    stream = wds.WebDataset(str(tmp_path / "00000.tar"), shardshuffle=False).decode("pil")
    samples = list(stream)
    members = [(cf_set, i) for cf_set in PAIRS for i in range(len(cf_set.members))]
    assert [s["__key__"] for s in samples] == [f"{cf_set.key}_{i}" for cf_set, i in members]
    for sample, (cf_set, i) in zip(samples, members, strict=True):
        member = cf_set.members[i]
        assert isinstance(sample["png"], Image.Image)
        assert sample["txt"] == member.text
        assert sample["json"]["edit"] == (None if i == 0 else vars(member.edit))


IMAGES = [noise_image(1), noise_image(2, kind="JPEG"), noise_image(3, kind="WEBP")]
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
values = st.one_of(st.none(), st.booleans(), st.integers(-(2**40), 2**40), words)


@st.composite
def sets(draw: st.DrawFn) -> CounterfactualSet:
    names = draw(st.lists(words, min_size=1, max_size=3, unique=True))
    images = {name: draw(st.sampled_from(IMAGES)) for name in names}
    used = draw(st.lists(st.sampled_from(names), min_size=0, max_size=3))
    members = [
        Member(
            text=draw(words.filter(lambda text: bool(text.strip()))),
            image_name=name,
            source_id=draw(words),
            edit=draw(st.none() | st.builds(Edit, words, words, words)),
            label=draw(st.none() | words),
            extra=draw(st.dictionaries(words, values, max_size=3)),
        )
        for name in [*names, *used]  # every image is some member's: an unused one is not written
    ]
    return CounterfactualSet(
        key=draw(st.from_regex(r"[a-z0-9_-]{1,30}", fullmatch=True)),
        group=draw(words),
        members=tuple(members),
        images=images,
        scores=draw(st.dictionaries(words, st.floats(allow_nan=False), max_size=3)),
        provenance=draw(st.dictionaries(words, values, max_size=3)),
    )


def samples_of(cf_set: CounterfactualSet) -> list[dict[str, bytes]]:
    samples: dict[str, dict[str, bytes]] = {}
    for name, content in encode_set(cf_set):
        key, _, extension = name.partition(".")
        samples.setdefault(key, {})[extension] = content
    return list(samples.values())


@given(cf_set=sets())
@settings(max_examples=examples(60), deadline=None)
def test_a_set_comes_back_as_it_was(cf_set):
    assert decode_set(samples_of(cf_set), "here") == cf_set


def test_every_member_is_a_complete_sample_with_the_extension_of_its_bytes():
    cf_set = CounterfactualSet(
        key="mixed",
        group="g",
        members=tuple(Member(f"caption {i}", f"{i}", "s") for i in range(3)),
        images={str(i): image for i, image in enumerate(IMAGES)},
    )
    assert [name for name, _ in encode_set(cf_set)] == [
        "mixed_0.png", "mixed_0.txt", "mixed_0.json",
        "mixed_1.jpg", "mixed_1.txt", "mixed_1.json",
        "mixed_2.webp", "mixed_2.txt", "mixed_2.json",
    ]  # fmt: skip


def test_a_shared_image_is_repeated_for_other_readers_and_one_again_for_ours():
    cat = photo_bytes("chelsea.png")
    members = tuple(Member(f"a cat, told {i} times", "photo", "chelsea") for i in range(5))
    cf_set = CounterfactualSet("cat", "chelsea", members, {"photo": cat})
    assert [content for name, content in encode_set(cf_set) if name.endswith(".jpg")] == [cat] * 5
    assert decode_set(samples_of(cf_set), "here").images == MappingProxyType({"photo": cat})


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda samples: samples[1].update(png=IMAGES[1]), "image 'image0' differs"),
        (lambda samples: samples.pop(), "1 of 2 members"),
        (lambda samples: samples[1].pop("png"), ""),
        (lambda samples: samples[1].pop("txt"), ""),
        (lambda samples: samples[1].pop("json"), ""),
        (lambda samples: samples[1].update(samples_of(pair(1))[1]), ""),
        (lambda samples: samples[1].update(json=b"[]"), ""),
        (lambda samples: samples[1].update(json=b"\xff"), ""),
        (lambda samples: samples[1].update(json=b'{"set": 1, "of": "2"}'), ""),
    ],
)
def test_members_that_are_no_set_are_refused_by_name(harm, said):
    shared = pair(0)
    members = tuple(replace(member, image_name="image0") for member in shared.members)
    samples = samples_of(replace(shared, members=members, images={"image0": IMAGES[0]}))
    harm(samples)
    with pytest.raises(UserError, match=rf"x\.tar.*{said}"):
        decode_set(samples, "x.tar")


def test_the_json_holds_scores_once():
    about = [json.loads(sample["json"]) for sample in samples_of(pair(2))]
    assert about[0]["scores"] == {"similarity": 0.5}
    assert "scores" not in about[1]


@pytest.mark.parametrize("data", [b"", b"GIF89a", b"RIFF\0\0\0\0WAVE", b"\x80\x04pickle"])
def test_only_three_kinds_of_image_are_written(data):
    with pytest.raises(UserError, match="pair-7"):
        image_extension(data, "pair-7")


def test_a_start_reads_no_commit_of_an_indexed_folder(tmp_path, monkeypatch):
    """At 100,000 shards the commits were most of the time of a start."""
    folder, cache, read = tmp_path / "shards", tmp_path / "cache", []
    write_shards(PAIRS, folder, sets_per_shard=2)
    first = open_index(folder, cache)
    real = shards._commit
    monkeypatch.setattr(shards, "_commit", lambda file: read.append(file) or real(file))
    assert open_index(folder, cache).hash == first.hash
    assert len(read) == 1  # by which the folder is recognised
    (folder / "00001.json").unlink()
    assert_refused(folder, cache, r"counts 1 of its shards \(00001\.tar\)")
