"""The file of a shard's edits: none, one or several proposals an example, and all that is known."""

from __future__ import annotations

import json

import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import Edit, Edited, Example, Proposal, Rejected
from cfaug.data.shards.shards import read_edits, read_proposals
from cfaug.generate.captions import edit_captions, write_captions
from cfaug.generate.failures import Attempt
from cfaug.generate.folder import write_card
from tests.records import Photo

EDIT = Edit("noun", "cat", "dog")


def write(folder, *edited):
    examples = [example for example, _ in edited]
    found = Attempt(dict(enumerate(one for _, one in edited)), {})
    write_captions(examples, found, folder, 0, {"editor": "hand"})
    return (folder / "captions" / "00000.jsonl").read_text()


def test_a_caption_with_one_proposal_has_the_line_it_always_had(tmp_path):
    one = Example("k", "g", ("a cat",))
    found = Edited((Proposal(one, ("a cat", "a dog"), (None, EDIT), {"rank": 1}),), {"words": 2})
    line = write(tmp_path, (one, found))
    assert line == (
        '{"key": "k", "group": "g", "text": "a cat", "survivors": {"words": 2}, "set": {"key": '
        '"k", "group": "g", "texts": ["a cat", "a dog"], "edits": [null, {"kind": "noun", '
        '"before": "cat", "after": "dog"}], "extra": {"rank": 1}}}\n'
    )
    assert read_edits(tmp_path, 0) == [(one, found)]


def test_everything_known_of_an_example_comes_back(tmp_path):
    photo = Photo(b"photo")
    bare = Example("bare", "g", (), photo, "cat", {"options": ["a", "b"]})
    several = Example("several", "g", ("a cat", "it sleeps"), photo, extra={"box": [1, 2]})
    none = Example("none", "h", ("nothing here",))
    edited = [
        (bare, Edited((Proposal(bare, ("a photo of a cat",), (None,), key="said"),))),
        (
            several,
            Edited(
                (
                    Proposal(several, ("a dog",), (EDIT,), {"rank": 0}, details=({"age": 3},)),
                    Proposal(several, ("a cow", "a cat"), (None, None)),
                ),
                {"words": 2},
            ),
        ),
        (none, Edited((), {"words": 0})),
    ]
    write(tmp_path, *edited)
    assert read_edits(tmp_path, 0, {"bare": photo, "several": photo}.get) == edited
    keys = [one.key for one in read_proposals(tmp_path, 0, {"bare": photo, "several": photo}.get)]
    assert keys == ["said", "several-0", "several-1"]
    commit = json.loads((tmp_path / "captions" / "00000.json").read_text())
    assert (commit["captions"], commit["sets"], commit["members"]) == (3, 3, 4)
    assert commit["rejected"] == {"words": 1}


def test_an_image_that_is_gone_or_another_is_refused_and_texts_need_none(tmp_path):
    one = Example("k", "g", ("a cat",), Photo(b"photo"))
    write(tmp_path, (one, Edited((Proposal(one, ("a cat",), (None,)),))))
    with pytest.raises(UserError, match=r"'k' is missing in the source.*data\.source"):
        read_edits(tmp_path, 0, {}.get)
    with pytest.raises(UserError, match="another than when it was edited"):
        read_edits(tmp_path, 0, {"k": Photo(b"other")}.get)
    [(found, _)] = read_edits(tmp_path, 0)
    assert found.image.digest == Photo(b"photo").digest
    with pytest.raises(UserError, match=r"data\.source"):
        found.image.read()


def test_proposals_of_two_examples_may_not_share_a_key(tmp_path):
    edited = [
        (one, Edited((Proposal(one, ("a dog",), (None,), key="same"),)))
        for one in (Example("a", "g", ("a cat",)), Example("b", "g", ("a cow",)))
    ]
    with pytest.raises(UserError, match="'same' is duplicated: examples 'a' and 'b'"):
        write(tmp_path, *edited)


def test_rejected_edits_come_back_and_are_counted_by_reason_and_kind(tmp_path):
    one, other = Example("k", "g", ("a cat",)), Example("l", "h", ("a\u2028dog",))
    lost = (
        Rejected("a dog", EDIT, "label", {"similarity": 0.5}),
        Rejected("a cow", Edit("noun", "cat", "cow"), "label"),
        Rejected("", Edit("domain", "", ""), "no JSON"),
    )
    edited = [(one, Edited((), {"label": 0}, lost)), (other, Edited((), {}, lost[:1]))]
    text = write(tmp_path, *edited)
    assert text.count("\n") == 2
    assert read_edits(tmp_path, 0) == edited
    expected = {"label": {"noun": 3}, "no JSON": {"domain": 1}}
    commit = json.loads((tmp_path / "captions" / "00000.json").read_text())
    assert commit["rejected_edits"] == expected
    (tmp_path / "captions" / "00001.json").write_text(json.dumps(commit))
    (tmp_path / ".work").mkdir()
    twice = {reason: {k: 2 * n for k, n in kinds.items()} for reason, kinds in expected.items()}
    assert write_card(tmp_path)["edits"]["rejected_edits"] == twice


def test_a_rejected_edit_is_json_or_refused():
    class Careless:
        def edit(self, examples):
            lost = Rejected("a dog", EDIT, "label", {"similarity": float("nan")})
            return [Edited((), {}, (lost,)) for _ in examples]

        def describe(self):
            return {}

    found = edit_captions(Attempt({0: Example("k", "g", ("a cat",))}, {}), Careless())
    assert "the rejected edit 'a dog' is not JSON" in found.lost["k"].error
    with pytest.raises(UserError, match="should be a Rejected"):
        Edited((), {}, ("a dog",))
    with pytest.raises(UserError, match="should be an Edit"):
        Rejected("a dog", None, "label")
