"""Weights of the Hub where the network does not answer."""

from __future__ import annotations

import socket
import time

import pytest

from cfaug import weights
from cfaug.errors import UserError

slow = pytest.mark.slow  # importing the Hub's HTTP client takes three seconds


@pytest.fixture
def mute_hub(monkeypatch, tmp_path):
    """A Hub that takes the connection and never answers, and an empty cache beside it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setattr(weights, "HUB_TIMEOUT_S", 0.2)
        yield tmp_path


@slow
def test_a_hub_that_never_answers_is_not_waited_for(mute_hub):
    began = time.monotonic()
    with pytest.raises(UserError, match=r"a/b: no such folder here.*timed out.*hf download a/b"):
        weights.resolve("a/b")
    assert time.monotonic() - began < 5


@slow
def test_what_was_fetched_before_is_used_without_it(mute_hub):
    home, commit = mute_hub / "models--a--b", "0" * 40
    folder = home / "snapshots" / commit
    folder.mkdir(parents=True)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(commit)
    (folder / "model.safetensors").write_bytes(b"")
    assert weights.resolve("a/b") == folder


@pytest.mark.parametrize("name", ["epoch_5.pt", "logs/epoch_5.pt", "model.safetensors"])
def test_a_file_that_is_missing_is_not_asked_of_the_hub(name):
    with pytest.raises(UserError, match=f"{name}: there is no such file"):
        weights.resolve(name)
