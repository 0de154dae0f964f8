"""Servers that repeat the key of a request, or answer by single bytes."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.cluster_simulation import Cluster, Workload, simulate
from cfaug.core.errors import UserError
from cfaug.core.safety import addresses
from cfaug.core.safety.addresses import hide_keys, remember_key, scrub
from cfaug.generate.server_requests import (
    QuestionRefusedError,
    ServerClient,
    ServerError,
    ServerSettings,
)
from tests.properties import examples

KEY = "sk-Geheim/Schlüssel+1=".replace("ü", "u")


@contextmanager
def serving(pieces: Sequence[bytes], pause: float = 0.0) -> Iterator[str]:
    """Answer every request by these bytes, one piece after the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client:
                    client.recv(2**16)
                    try:
                        for piece in pieces:
                            client.sendall(piece)
                            time.sleep(pause)
                    except OSError:
                        continue

        threading.Thread(target=answer, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"


def reply(status: str, body: str) -> list[bytes]:
    content = body.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\nX-Key: {KEY}\r\n\r\n"
    return [head.encode() + content]


@pytest.fixture
def asked(monkeypatch) -> ServerSettings:
    monkeypatch.setattr(addresses, "_keys", {})
    monkeypatch.setenv("A_KEY", KEY)
    return ServerSettings(key_variable="A_KEY", retries=0, backoff=0.0, timeout=20.0)


def forms() -> list[str]:
    return [
        KEY, f"Bearer {KEY}", quote(KEY, safe=""), KEY.encode().hex(),
        base64.b64encode(KEY.encode()).decode(), base64.b64encode(f"user:{KEY}".encode()).decode(),
        base64.b64encode(f"Bearer {KEY}".encode()).decode(),
        base64.urlsafe_b64encode(f"a{KEY}b".encode()).decode(),
    ]  # fmt: skip


def leaks(text: str) -> bool:
    return any(part in text for part in (KEY, "Geheim", quote(KEY, safe=""), KEY.encode().hex()))


@pytest.mark.parametrize("form", range(8))
def test_a_repeated_key_is_hidden_in_answers_and_errors(form, asked):
    repeated = forms()[form]
    escaped = "".join(f"\\u{ord(sign):04x}" for sign in repeated)
    for body in (json.dumps({"a": [repeated], repeated: 1}), f'{{"a": "{escaped}"}}', repeated):
        with serving(reply("200 OK", body)) as url:
            answer = json.dumps(ServerClient(url, asked).post("x", {}))
        assert repeated not in answer
        assert not leaks(answer)
    for status, error in (("500 x", ServerError), ("400 x", QuestionRefusedError),
                          ("401 x", UserError)):  # fmt: skip
        with (
            serving(reply(status, f"wrong: {repeated}")) as url,
            pytest.raises(error) as raised,
        ):
            ServerClient(url, asked).post("x", {})
        assert repeated not in str(raised.value)
        assert "HIDDEN" in str(raised.value)


def test_a_status_line_that_repeats_the_key_is_hidden(asked):
    for line in (f"HTTP/1.1 500 {KEY}\r\n\r\n", f"{KEY}\r\n\r\n", f"HTTP/1.1 {KEY} x\r\n\r\n"):
        with serving([line.encode()]) as url, pytest.raises(ServerError) as raised:
            ServerClient(url, asked).post("x", {})
        assert not leaks(str(raised.value))
        assert not leaks(scrub("".join(map(repr, (raised.value, raised.value.__cause__)))))


def test_secrets_of_the_environment_are_hidden_too(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijk")
    assert scrub("401 for Bearer hf_abcdefghijk") == "401 for Bearer HIDDEN"


@settings(max_examples=examples(100), deadline=None)
@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=40),
    st.binary(max_size=5),
    st.binary(max_size=5),
)
def test_no_form_of_a_key_is_left(key, before, after):
    addresses._keys.clear()
    remember_key(key)
    whole = base64.b64encode(before + key.encode() + after).decode()
    texts = (key, quote(key, safe=""), json.dumps(key), key.encode().hex(), whole)
    hidden = [hide_keys(f"<{text}>") for text in texts]
    addresses._keys.clear()
    assert all("HIDDEN" in text for text in hidden)


@pytest.mark.parametrize(
    "pieces",
    [
        [bytes([sign]) for sign in b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 500],
        [b"HTTP/1.1 500 x\r\nContent-Length: 500\r\n\r\n", *[b"a"] * 500],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n", *[b"a"] * 500],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *[b"1\r\na\r\n"] * 500],
        [b""],
    ],
    ids=["headers", "error text", "answer", "chunks", "nothing"],
)
def test_one_deadline_holds_for_the_whole_request(pieces, monkeypatch):
    quick = ServerSettings(retries=0, backoff=0.0, timeout=0.3)
    began = time.monotonic()
    with serving(pieces, pause=0.05) as url, pytest.raises(ServerError):
        ServerClient(url, quick).post("x", {})
    assert time.monotonic() - began < 10


def test_a_simulation_has_bounds():
    for bounded in ({"losses_per_hour": 1_000_000.0}, {"replicates": 10**9}, {"workers": (10**9,)},
                  {"start_up": 1e300}, {"slowdown": 1e9}):  # fmt: skip
        with pytest.raises(UserError, match=rf"cluster\.{next(iter(bounded))}"):
            Cluster(**bounded)
    endless = Cluster(losses_per_hour=60.0, restarts_per_hour=60.0, journal=False, start_up=0.0)
    with pytest.raises(UserError, match="more than 100,000 failures"):
        simulate(Workload(8, 1, 80_000.0), 8, endless)
