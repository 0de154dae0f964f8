from __future__ import annotations

import json
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.shards.codec import decode_set, encode_set, image_extension
from tests.data.making import noise_image, pair, photo_bytes
from tests.properties import examples

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


def samples_of(one: CounterfactualSet) -> list[dict[str, bytes]]:
    found: dict[str, dict[str, bytes]] = {}
    for name, content in encode_set(one):
        key, _, extension = name.partition(".")
        found.setdefault(key, {})[extension] = content
    return list(found.values())


@given(one=sets())
@settings(max_examples=examples(60), deadline=None)
def test_a_set_comes_back_as_it_was(one):
    assert decode_set(samples_of(one), "here") == one


def test_every_member_is_a_complete_sample_with_the_extension_of_its_bytes():
    one = CounterfactualSet(
        key="mixed",
        group="g",
        members=tuple(Member(f"caption {i}", f"{i}", "s") for i in range(3)),
        images={str(i): image for i, image in enumerate(IMAGES)},
    )
    assert [name for name, _ in encode_set(one)] == [
        "mixed_0.png", "mixed_0.txt", "mixed_0.json",
        "mixed_1.jpg", "mixed_1.txt", "mixed_1.json",
        "mixed_2.webp", "mixed_2.txt", "mixed_2.json",
    ]  # fmt: skip


def test_a_shared_image_is_repeated_for_other_readers_and_one_again_for_ours():
    cat = photo_bytes("chelsea.png")
    members = tuple(Member(f"a cat, told {i} times", "photo", "chelsea") for i in range(5))
    one = CounterfactualSet("cat", "chelsea", members, {"photo": cat})
    assert [content for name, content in encode_set(one) if name.endswith(".jpg")] == [cat] * 5
    assert decode_set(samples_of(one), "here").images == MappingProxyType({"photo": cat})


def test_members_that_contradict_each_other_are_refused_by_name():
    shared = CounterfactualSet(
        "cat", "g", (Member("a cat", "photo", "s"), Member("a pet", "photo", "s")),
        {"photo": IMAGES[0]},
    )  # fmt: skip
    samples = samples_of(shared)
    samples[1]["png"] = IMAGES[1]
    with pytest.raises(UserError, match=r"x\.tar: image 'photo' differs"):
        decode_set(samples, "x.tar")
    with pytest.raises(UserError, match=r"x\.tar: 1 of 2 members"):
        decode_set(samples_of(pair(0))[:1], "x.tar")


@pytest.mark.parametrize("lost", ["png", "txt", "json"])
def test_a_member_that_lacks_a_file_is_refused_by_name(lost):
    samples = samples_of(pair(0))
    del samples[1][lost]
    with pytest.raises(UserError, match=r"x\.tar"):
        decode_set(samples, "x.tar")


@pytest.mark.parametrize(
    "about", [b"", b"[]", b"3", b"{}", b"\xff", b'{"set": "a", "of": 2}', b'{"set": 1, "of": "2"}']
)
def test_a_json_that_cannot_be_used_is_refused_by_name(about):
    samples = samples_of(pair(0))
    for sample in samples:
        sample["json"] = about
    with pytest.raises(UserError, match=r"x\.tar"):
        decode_set(samples, "x.tar")


def test_members_of_two_sets_never_make_one():
    samples = [samples_of(pair(0))[0], samples_of(pair(1))[1]]
    with pytest.raises(UserError, match=r"x\.tar"):
        decode_set(samples, "x.tar")


def test_the_json_holds_scores_once():
    about = [json.loads(sample["json"]) for sample in samples_of(pair(2))]
    assert about[0]["scores"] == {"similarity": 0.5}
    assert "scores" not in about[1]


@pytest.mark.parametrize("data", [b"", b"GIF89a", b"RIFF\0\0\0\0WAVE", b"\x80\x04pickle"])
def test_only_three_kinds_of_image_are_written(data):
    with pytest.raises(UserError, match="pair-7"):
        image_extension(data, "pair-7")
