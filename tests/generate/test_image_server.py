"""A server that edits and makes images: what is asked, what is believed, what is never lost."""

from __future__ import annotations

import base64
import io
import json
import threading
import zlib
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from cfaug.core.errors import UnavailableError, UserError
from cfaug.core.protocols import ImageEditor
from cfaug.core.types import Draw, Edit, Example, ImageJob, Proposal
from cfaug.generate import image_server
from cfaug.generate.image_server import NO_IMAGE, REFUSED, ImageServer
from cfaug.generate.job import generate
from cfaug.generate.recipe import ShardSettings
from cfaug.generate.sampling import Draws
from cfaug.generate.server_requests import ServerSettings
from cfaug.imaging.instructed_photos import OTHER_SHAPE
from cfaug.imaging.select import Selection
from tests.generate.chatting import serving
from tests.generate.tiny import WordSwap, captions, contents, job, studio
from tests.imaging.test_photo_editing import encoded
from tests.models.tiny import image as noise
from tests.records import Photo

QUICK = ServerSettings(retries=2, backoff=0.001, timeout=60)
PNG = encoded(Image.new("RGB", (32, 32)))


def gives(data, **beside):
    return 200, {"created": 1, "data": [{"b64_json": base64.b64encode(data).decode(), **beside}]}


def paint(number, body):
    """An image that depends on all that is asked."""
    asked = {name: str(value) for name, value in body.items() if name != "image"}
    seed = zlib.crc32(json.dumps(asked, sort_keys=True).encode() + body.get("image", b""))
    width, height = map(int, body["size"].split("x"))
    return gives(encoded(noise(width, height, seed)))


def editor(server, **changes):
    settings = {"side": 32, "square": True, "settings": QUICK, **changes}
    return ImageServer(server.url, "tiny", **settings)


def an_edit(seed=1, photo=None, key="k", after="blue"):
    image = None if photo is None else Photo(encoded(noise(40, 30, photo)))
    texts = ("a red ball", f"a {after} ball")
    edits = (None, Edit("adjective", "red", after))
    return ImageJob(
        Proposal(Example(key, key, texts[:1], image), texts, edits), Draw(seed, 0.0, 1.0)
    )


def test_an_edit_is_a_form_and_a_first_image_is_json(monkeypatch):
    monkeypatch.setenv("OWN_KEY", " secret ")
    with serving(paint) as server:
        asked = editor(
            server, settings=replace(QUICK, key_variable="OWN_KEY"), guidance="guidance_scale",
            fields={"response_format": "b64_json", "num_inference_steps": 4, "sigmas": [1, 0.5]},
        )  # fmt: skip
        assert isinstance(asked, ImageEditor)
        draw = Draw(2**40 + 7, 0.0, 2.5, {"strength": 0.5})
        of_photo, drawn = asked.edit(
            [replace(an_edit(photo=1), draw=draw), replace(an_edit(), draw=draw)]
        )
    forms = [(path, headers, body) for path, headers, body in server.asked if "edits" in path]
    [(path, headers, body)] = [request for request in server.asked if "generations" in request[0]]
    assert path == "/v1/images/generations"
    assert headers["Authorization"] == "Bearer secret"
    assert body == {
        "model": "tiny", "prompt": "a red ball", "n": 1, "size": "32x32", "seed": 7,
        "guidance_scale": 2.5, "strength": 0.5, "response_format": "b64_json",
        "num_inference_steps": 4, "sigmas": [1, 0.5],
    }  # fmt: skip
    assert len(forms) == 2
    shown = {tuple(np.asarray(Image.open(io.BytesIO(f["image"])))[0, 0]) for _, _, f in forms}
    assert shown == {tuple(edited.images[0][0, 0]) for edited in (of_photo, drawn)}
    for path, headers, fields in forms:
        assert path == "/v1/images/edits"
        assert headers["Authorization"] == "Bearer secret"
        assert fields["prompt"].startswith('Change "red" to "blue".')
        assert (fields["seed"], fields["guidance_scale"], fields["n"]) == ("7", "2.5", "1")
        assert json.loads(fields["sigmas"]) == [1, 0.5]
    said = json.dumps(asked.describe())
    assert "another server, version or machine may answer differently" in said
    assert "secret" not in said
    assert server.url not in said


def test_a_service_without_seeds_gets_none_and_the_card_says_so(tmp_path):
    with serving(paint) as server:
        asked = editor(server, seeded=False, fields=None, cache=str(tmp_path))
        asked.edit([an_edit(1, photo=1), an_edit(2, photo=1)])
        assert len(server.asked) == 2  # two candidates
    assert not {"seed", "response_format", "guidance_scale"} & set(server.asked[0][2])
    assert asked.describe()["seed"] == "not sent"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((200, b"<html>"), NO_IMAGE),
        ((200, {"data": []}), NO_IMAGE),
        ((200, [1]), NO_IMAGE),
        ((200, {"data": [{"url": "http://127.0.0.1:9/x.png"}]}), NO_IMAGE),
        ((200, {"data": [{"b64_json": "§"}]}), NO_IMAGE),
        ((200, {"data": [{"b64_json": 1}]}), NO_IMAGE),
        (gives(b"no image"), NO_IMAGE),
        (gives(PNG[:-20]), NO_IMAGE),
        (gives(encoded(Image.new("1", (2**13, 2**12)))), NO_IMAGE),
        (gives(PNG + bytes(2**16)), NO_IMAGE),  # which could be decoded
        (gives(encoded(Image.new("RGB", (64, 32)))), OTHER_SHAPE),
        ((400, b"against our policy"), REFUSED),
    ],
)
def test_an_unusable_answer_is_asked_for_again_and_then_counted(answer, reason, monkeypatch):
    monkeypatch.setattr(image_server, "MOST_BYTES", 2**16)

    def most_are_good(number, body):
        return answer if "green" in body["prompt"] else paint(number, body)

    with serving(most_are_good) as server:
        asked = editor(server, attempts=2, concurrency=1)
        good, bad = asked.edit([an_edit(photo=1), an_edit(photo=1, after="green")])
        assert len(good.images) == 2
        assert (bad.images, bad.rejected) == ((), reason)
        sent = sum("green" in body["prompt"] for _, _, body in server.asked)
    assert sent == (2 if reason == NO_IMAGE else 1)


def test_an_answer_of_another_size_gets_that_of_its_photo():
    with serving(lambda number, body: gives(encoded(noise(64, 62, 1), "WEBP"))) as server:
        [edited] = editor(server).edit([an_edit(photo=1)])
    assert [image.shape for image in edited.images] == [(32, 32, 3)] * 2


def test_answers_are_kept_by_content_and_damaged_ones_asked_for_again(tmp_path):
    with serving(paint) as server:
        before = editor(server, cache=str(tmp_path)).edit([an_edit(photo=1), an_edit()])
        assert len(server.asked) == 3
        again = editor(server, cache=str(tmp_path)).edit([an_edit(photo=1), an_edit()])
        assert len(server.asked) == 3
        for first, second in zip(before, again, strict=True):
            assert all(map(np.array_equal, first.images, second.images))
        others = (
            {"fields": {"steps": 3}}, {"guidance": "guidance_scale"}, {"instructions": "captions"},
        )  # fmt: skip
        for settings, asked in zip(others, (6, 9, 11), strict=True):  # a caption is itself
            editor(server, cache=str(tmp_path), **settings).edit([an_edit(photo=1), an_edit()])
            assert len(server.asked) == asked
        [file, *_] = sorted(tmp_path.rglob("*.image"))
        file.write_bytes(file.read_bytes()[:-1])
        count = len(server.asked)
        for settings in ({}, *others):
            editor(server, cache=str(tmp_path), **settings).edit([an_edit(photo=1), an_edit()])
        assert len(server.asked) == count + 1


def test_requests_are_sent_at_once():
    together = threading.Barrier(4)

    def wait(number, body):
        together.wait(timeout=60)
        return paint(number, body)

    with serving(wait) as server:
        edited = editor(server, concurrency=4).edit([an_edit(n, photo=1) for n in range(8)])
    assert all(len(pair.images) == 2 for pair in edited)


def made(folder, server, cache):
    """A job of twelve captions in three shards, drawn by a server."""
    pipeline = studio(
        editor=editor(server, cache=str(cache), concurrency=1), scorers={}, report={},
        select=Selection(),
    )  # fmt: skip
    draws = Draws(candidates=1, p2p_threshold=(0.0, 0.0), guidance_scale=(1.0, 1.0))
    return job(
        folder, captions=captions(12), editor=WordSwap(), studio=pipeline, draws=draws,
        shards=ShardSettings(sets_per_shard=4, batch=2),
    )  # fmt: skip


def test_a_server_that_is_gone_is_named_and_the_rest_resumes_with_the_same_bytes(tmp_path):
    with serving(paint) as server:
        generate(made(tmp_path / "whole", server, tmp_path / "a"))
        total = len(server.asked)

    def dying(number, body):
        return paint(number, body) if number < total // 2 else None

    with serving(dying) as server:
        with pytest.raises(UserError, match=r"fails: .* Answers are kept in .*start the server"):
            generate(made(tmp_path / "shards", server, tmp_path / "b"))
        assert len(list((tmp_path / "shards").glob("0*.tar"))) == 1
        assert len(list((tmp_path / "b").rglob("*.image"))) == total // 2
    with serving(paint) as server:
        generate(made(tmp_path / "shards", server, tmp_path / "b"))
        assert len(server.asked) == total - total // 2  # nothing is asked twice
    assert contents(tmp_path / "shards") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, b"no key"), "refuses all questions: HTTP 401 no key"),
        ((400, b"unknown field seed"), "gives no image for any request: HTTP 400 unknown field s"),
        ((200, b"<html>"), "gives no image for any request: no answer of an image server, but: <h"),
        ((200, {"data": [{"url": "http://x"}]}), "is an address, which is not followed"),
    ],
)
def test_a_wrong_address_key_or_field_stops_with_what_to_do(answer, said):
    with (
        serving(lambda number, body: answer) as server,
        pytest.raises(UnavailableError, match=said),
    ):
        editor(server, attempts=1, concurrency=1).edit([an_edit(photo=1), an_edit(2, photo=1)])


def test_a_key_that_a_server_repeats_is_not_shown(monkeypatch, capsys):
    monkeypatch.setenv("OWN_KEY", "secret-key")
    settings = replace(QUICK, key_variable="OWN_KEY")
    for code in (401, 400, 500):
        with (
            serving(lambda number, body, code=code: (code, b"bad key: secret-key")) as server,
            pytest.raises(UnavailableError, match="bad key: HIDDEN") as raised,
        ):
            editor(server, settings=settings).edit([an_edit(photo=1)])
        assert "secret-key" not in str(raised.value)
    assert "secret-key" not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"base_url": "http://me:secret@host/v1"}, "holds a name, a password or a query"),
        ({"fields": {"seed": 1}}, "fields.seed: every request has its own seed"),
    ],
)
def test_invalid_settings_are_named(changes, said):
    with pytest.raises(UserError, match=said) as raised:
        ImageServer(**{"base_url": "http://host/v1", "model": "tiny", **changes})
    assert "secret" not in str(raised.value)
