"""Weights of the Hub without an answer, and which sources are parts of the embedded world."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cfaug.core import weights
from cfaug.core.errors import UserError
from cfaug.core.weights import is_questions, is_world, questions_part, world_part

slow = pytest.mark.slow  # importing the Hub's HTTP client takes three seconds


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Return the cache of the Hub and a function that sets the Hub's address."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    def set_port(port):
        address = f"http://127.0.0.1:{port}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
        template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(
            "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False
        )

    return tmp_path, set_port


@pytest.fixture
def mute_hub(hub, monkeypatch):
    """A Hub that takes the connection and never answers, and an empty cache beside it."""
    cache, set_port = hub
    with socket.create_server(("127.0.0.1", 0)) as server:
        set_port(server.getsockname()[1])
        monkeypatch.setattr(weights, "HUB_TIMEOUT_S", 0.2)
        yield cache


COMMITS = "1" * 40, "2" * 40


def find_questions(asked):
    """Return the requests that asked which commit the model is."""
    return [path for path in asked if path.startswith("/api/models") and "/tree/" not in path]


@contextmanager
def serving(files, asked):
    """Serve a model's files; every question about the model finds the next commit.

    Args:
        files: {name: content}.
        asked: a list to which the path of each request is added.
    """

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            path, _, _ = self.path.partition("?")
            asked.append(path)
            if "/tree/" in path:
                tree = [
                    {"type": "file", "path": name, "size": len(content), "oid": f"{number:040d}"}
                    for number, (name, content) in enumerate(files.items())
                ]
                self.say(json.dumps(tree).encode())
            elif path.startswith("/api/models/a/b"):
                commit = COMMITS[len(find_questions(asked)) - 1]
                self.say(json.dumps({"id": "a/b", "sha": commit, "siblings": []}).encode())
            elif (name := path.rpartition("/")[2]) in files and "/resolve/" in path:
                commit = path.split("/resolve/")[1].partition("/")[0]
                self.say(files[name], {"X-Repo-Commit": commit, "ETag": f'"{name}"'})
            else:
                self.send_error(404)

        def say(self, content, headers=None):
            self.send_response(200)
            for key, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@slow
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_the_hub_is_asked_once_which_commit_it_is(hub, name):
    cache, set_port = hub
    files, asked = {"config.json": b"{}", name: b"weights"}, []
    with serving(files, asked) as port:
        set_port(port)
        folder = weights.resolve("a/b")
        assert folder.name == COMMITS[0], asked
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == files
        assert len(find_questions(asked)) == 1
        assert sum("/tree/" in path for path in asked) == 1
        assert not any(COMMITS[1] in path for path in asked)
    assert (cache / "models--a--b" / "refs" / "main").read_text() == COMMITS[0]
    # The Hub is gone by now, and so is its answer to what "main" is.
    assert weights.resolve("a/b") == weights.resolve("a/b", fetch=False) == folder


@slow
@pytest.mark.timeout(60)  # without a limit of time it would wait for ever
def test_a_hub_that_never_answers_is_not_waited_for(mute_hub):
    with pytest.raises(UserError, match=r"a/b: no such folder here.*timed out.*hf download a/b"):
        weights.resolve("a/b")


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


@pytest.mark.parametrize("part", ["ood", "ood@photo", "real_test"])
def test_a_part_is_told_from_a_folder(part):
    assert is_world(f"shapescapes:{part}")
    assert world_part(f"shapescapes:{part}") == part


@pytest.mark.parametrize("folder", ["shapescapes", "/data/shapescapes:ood", "photos"])
def test_a_folder_is_no_part(folder):
    assert not is_world(folder)
    assert not is_questions(folder)


def test_questions_about_the_world_are_no_part_of_its_pictures():
    assert is_questions("shapescapes_vqa:test@fog")
    assert questions_part("shapescapes_vqa:test@fog") == "test@fog"
    assert not is_world("shapescapes_vqa:test")
    assert is_world("shapescapes_compositional:choice@photo")
    assert world_part("shapescapes_compositional:choice@photo") == "compositional_choice@photo"
    assert not is_questions("shapescapes:ve_test")
