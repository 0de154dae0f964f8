"""Secrets of addresses live in the request alone: real commands, then a search of all they wrote.

Findings N2 of the second round of hostile use: a password and a token stood in the model's card,
run.json, config.yaml, the cache, the name of the run's folder, and every error.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import pytest

import cfaug
from cfaug.core.errors import UserError
from cfaug.core.safety.addresses import HIDDEN, scrub
from tests.data.test_sources import img2dataset

ROOT = Path(__file__).resolve().parents[2]
USER, PASSWORD, TOKEN = "planteduser", "pla/nt:ed@pw", "plantedtoken"
ENCODED = quote(PASSWORD, safe="")
BASIC = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
PLANTED = (USER, PASSWORD, ENCODED, TOKEN, BASIC, "nt:ed", "plantedheader")


class Guarded(SimpleHTTPRequestHandler):
    """A server that answers only with user info and token, or with a header."""

    answered: ClassVar[list[str]] = []

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.path, _, query = self.path.partition("?")
        basic = self.headers.get("Authorization") == f"Basic {BASIC}" and TOKEN in query
        if not basic and self.headers.get("X-Key") != "plantedheader":
            self.send_error(403)
            return
        self.answered.append(query)
        super().do_GET()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "served"
    folder.mkdir()
    img2dataset(folder)
    (folder / "cut.tar").write_bytes((folder / "00000.tar").read_bytes()[:5000])
    Guarded.answered.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Guarded, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()


def address(host: str, name: str = "{00000..00001}.tar", scheme: str = "http") -> str:
    return f"{scheme}://{USER}:{ENCODED}@{host}/{name}?token={TOKEN}"


def pipe(host: str, name: str = "{00000..00001}.tar") -> str:
    return f"pipe:curl -sf -H 'X-Key: plantedheader' http://{host}/{name}"


def search(*folders: Path) -> list[str]:
    """Return every planted secret in a file or in the name of a file or folder."""
    leaks = []
    for folder in folders:
        for path in [folder, *folder.rglob("*")]:
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            for secret in PLANTED:
                if secret.encode() in content or secret in str(path.relative_to(folder)):
                    leaks.append(f"{secret} in {path}")
    return leaks


def places(out: Path) -> list[str]:
    return [f"paths.runs={out / 'runs'}", f"paths.cache={out / 'cache'}", f"paths.shards={out}/s"]


FAST = ["data=folder", "data.cf_ratio=0", "data.holdout=0.3", "data.batch_size=2",
        "trainer.max_steps=1", "model=tiny_clip"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["address", "pipe"])
def test_no_secret_of_the_data_is_left_behind_by_any_command_n2(
    kind, host, tmp_path, script, capfd
) -> None:
    """Training, its repetition, evaluation and generation, without arm=."""
    out = tmp_path / "out"
    source = address(host) if kind == "address" else pipe(host)
    words = [*FAST, f"data.real={source}", *places(out)]
    assert script("train")([*words, "dry_run=true"]) == 0
    assert script("train")(words) == 0
    assert script("train")(words) == 0
    assert "already done" in capfd.readouterr().out
    if kind == "address":  # a new token is the same data and the same run
        asked = len(Guarded.answered)
        source = f"{source}&new=1"
        words = [*FAST, f"data.real={source}", *places(out)]
        assert script("train")(words) == 0
        assert "already done" in capfd.readouterr().out
        assert len(Guarded.answered) == asked + 1
    assert script("evaluate")(places(out)) == 0
    test = [f"weights={ROOT}/cfaug/weights/clip-0", "benchmark=retrieval"]
    assert script("evaluate")([*test, f"benchmark.data={source}", *places(out)]) == 0
    generated = [f"data.source={source}", "recipe=deletion", "limit=1", "stage=captions"]
    assert script("generate")([*generated, *places(out)[1:]]) == 2
    assert script("train")([*words, "--cfg", "job"]) == 0
    said = "".join(capfd.readouterr())
    assert "error:" in said
    assert [secret for secret in PLANTED if secret in said] == []
    assert search(out) == []
    assert HIDDEN in next(out.glob("runs/*/*/*/checkpoint/README.md")).read_text()
    assert HIDDEN in next(out.glob("runs/*/*/*/config.yaml")).read_text()


WRONG = {
    "missing file": lambda host: address(host, "{00008..00009}.tar"),
    "no server": lambda host: address("127.0.0.1:9"),
    "password not encoded": lambda host: f"http://{USER}:{PASSWORD}@{host}/{{0..1}}.tar#{TOKEN}",
    "truncated": lambda host: address(host, "cut.tar"),
    "no tar": lambda host: address(host, "00000.parquet"),
    "no tls": lambda host: address(host, scheme="https"),
    "twice": lambda host: address(host, "{a,b}/0.tar"),
    "s3": lambda host: address("bucket", scheme="s3"),
    "ftp": lambda host: address("bucket", scheme="FTP"),
    "upper case": lambda host: address(host, scheme="HTTP"),
    "file": lambda host: address("", scheme="file"),
    "hub": lambda host: f"hf://{USER}:{ENCODED}@datasets/o/n/0.tar?token={TOKEN}",
    "pipe fails": lambda host: pipe(host, "{00008..00009}.tar"),
    "pipe says it": lambda host: f"pipe:echo the key {TOKEN} is bad >&2; exit 3",
    "pipe with options": lambda host: f"pipe:curl -u{USER}:{ENCODED} --oauth2-bearer {TOKEN} x:9",
    "pipe with variables": lambda host: f"pipe:KEY={TOKEN} SECRET='{PASSWORD}' false",
    "pipe with an open quote": lambda host: f"pipe:curl -H '{TOKEN} http://{USER}@{host}/0.tar",
}


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG)
def test_no_error_shows_a_secret_n2(wrong, host, tmp_path, script, capfd, monkeypatch) -> None:
    """The address stood in every error, and with CFAUG_TRACEBACK=1 in those of the libraries."""
    monkeypatch.setenv("CFAUG_TRACEBACK", "1")
    source = WRONG[wrong](host)
    for command in ("train", "evaluate", "generate"):
        words = {
            "train": [*FAST, f"data.real={json.dumps(source)}"],
            "evaluate": ["weights=zoo:clip-0", f"benchmark.data={json.dumps(source)}"],
            "generate": ["recipe=deletion", f"data.source={json.dumps(source)}"],
        }[command]
        paths = places(tmp_path / "out")[command == "generate" :]
        assert script(command)([*words, *paths]) == 2
        said = "".join(capfd.readouterr())
        assert "error: " in said
        assert [secret for secret in PLANTED if secret in said] == []
    assert search(tmp_path / "out") == []


@pytest.mark.parametrize(
    "words",
    [
        ["data.reel={}"],
        ["data.real={}x", "data.cf_ratio=[", "seed=1"],
        ["{}"],
        ["--data.real:{}"],
        ['data.real="{}'],
        ["data={{real: {}}}"],
        ["-m", "data.real='{}','{}&b'"],
        ["weights={}"],
        ["paths.cache={}", "data.real=/nowhere"],
        ["logger={}"],
    ],
)
def test_no_mistyped_command_shows_a_secret_n2(words, tmp_path, script, capfd) -> None:
    source = address("host", "0.tar")
    typed = [word.format(*[source] * 2) for word in words]
    assert script("train")([*typed, *places(tmp_path)[:1]]) == 2
    said = "".join(capfd.readouterr())
    assert "error: " in said
    assert [secret for secret in PLANTED if secret in said] == []


@pytest.mark.slow
def test_addresses_in_files_and_variables_are_hidden_too_n2(
    host, tmp_path, script, capfd, monkeypatch
) -> None:
    conf = tmp_path / "conf"
    (conf / "data").mkdir(parents=True)
    (conf / "data/mine.yaml").write_text(
        f"defaults: [folder]\nreal: {json.dumps(address(host))}\ncf_ratio: 0\nbatch_size: 2\n"
    )
    paths = places(tmp_path / "out")
    words = ["data=mine", "dry_run=true", f"--config-dir={conf}", "model=tiny_clip", *paths]
    assert script("train")(words) == 0
    monkeypatch.setenv("PLANTED", TOKEN)
    named = address(host).replace(TOKEN, "${oc.env:PLANTED}")
    assert script("train")([*FAST, f"data.real={named}", "dry_run=true", *paths]) == 0
    said = "".join(capfd.readouterr())
    assert [secret for secret in PLANTED if secret in said] == []
    assert search(tmp_path / "out") == []
    assert len(Guarded.answered) == 2  # the second found the copies of the first


@pytest.mark.slow
def test_queries_that_choose_the_data_are_not_taken_for_one_another(host, tmp_path) -> None:
    """The hidden forms are equal: a mistake that would train on the wrong data must be refused."""
    cache = {"paths.cache": str(tmp_path / "cache")}
    first = cfaug.open_source(address(host, "00000.tar"), cache)
    other = address(host, "00000.tar") + "&part=2"
    assert cfaug.open_source(other, cache).hash == first.hash  # as after a new token
    served = tmp_path / "served"
    (served / "00000.tar").write_bytes((served / "00001.tar").read_bytes())
    with pytest.raises(UserError, match="copies of other shards, made with another user info"):
        cfaug.open_source(f"{other}3", cache)
    words = {"data": "folder", "data.real": other, "data.counterfactual": f"{other}3"}
    with pytest.raises(UserError, match="two addresses of this command are both http://HIDDEN@"):
        cfaug.mix(words)


def test_the_hidden_form_typed_back_is_explained(host, tmp_path) -> None:
    with pytest.raises(UserError, match="type it whole"):
        cfaug.open_source(f"http://{HIDDEN}@other/0.tar", {"paths.cache": str(tmp_path)})


def test_messages_of_programs_are_shown_without_secrets(tmp_path) -> None:
    program = tmp_path / "get.sh"
    program.write_text("echo it begins >&2; echo the key $KEY for $1 is bad >&2; exit 3")
    source = f"pipe:KEY={TOKEN} sh {program} {USER}"
    with pytest.raises(UserError, match=r"exit code 3 \(the key HIDDEN for HIDDEN is bad\)"):
        cfaug.open_source(source, {"paths.cache": str(tmp_path)})
    assert scrub("nothing to hide") == "nothing to hide"


def test_the_program_of_a_bucket_does_not_show_its_address(tmp_path, monkeypatch) -> None:
    program = tmp_path / "bin/gsutil"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho cannot read $2 >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    source = f"gs://{USER}:{ENCODED}@bucket/0.tar?token={TOKEN}"
    with pytest.raises(UserError, match=r"gs://HIDDEN@bucket/0.tar.*cannot read") as error:
        cfaug.open_source(source, {"paths.cache": str(tmp_path / "cache")})
    assert not any(secret in str(error.value) for secret in PLANTED)
    assert search(tmp_path / "cache") == []


@pytest.mark.parametrize("url", [f"ftp://{USER}:{ENCODED}@h/v1", f"http://h/v1?key={TOKEN}"])
def test_a_chat_servers_address_is_refused_without_its_secret(url) -> None:
    from cfaug.generate.chat_asking import ChatSettings

    with pytest.raises(UserError, match="base_url") as error:
        ChatSettings.check_url(url)
    assert not any(secret in str(error.value) for secret in PLANTED)


@pytest.mark.slow
def test_loggers_do_not_record_a_secret_n2(host, tmp_path, script) -> None:
    """Weights & Biases records the command line of the process."""
    words = [*FAST, f"data.real={address(host)}", *places(tmp_path / "out")]
    assert script("train")([*words, "logger=tensorboard", "arm=tensorboard"]) == 0
    words += ["logger=wandb", "logger.mode=offline", "arm=wandb"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "train.py"), *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [secret for secret in PLANTED if secret in done.stdout + done.stderr] == []
    assert search(tmp_path) == []


def test_a_list_that_names_addresses_shows_no_secret(tmp_path):
    """Found by a third round: the error repeated a signed address, and did not say the remedy."""
    lines = f"image,caption\n{address('example.org', '0.jpg')},a dog\n"
    (tmp_path / "captions.csv").write_text(lines, encoding="utf-8")
    with pytest.raises(UserError, match="images that a list names are not fetched") as caught:
        cfaug.open_source(tmp_path, {"paths.cache": str(tmp_path / "cache")})
    assert "example.org/0.jpg" in str(caught.value)
    assert not [secret for secret in PLANTED if secret in str(caught.value)]
