"""Shards in a real S3 server on this machine, behind a proxy that fails as networks do."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import ClassVar

import pytest

from cfaug.core import stores
from cfaug.data.index import open_index
from cfaug.generate.folder import work_folder
from cfaug.generate.job import generate
from cfaug.planning.sources import open_source
from tests.data.loading import loader, mixture_of
from tests.generate import tiny
from tests.skips import skip

ADDRESS = "s3://bucket/shards"
SERVER = ("moto==5.2.5", "flask==3.1.3", "flask-cors==6.0.5")
"""Its pins of botocore are not s3fs's, so it has an environment of its own."""


class Proxy(BaseHTTPRequestHandler):
    """Hands requests on; of those that are not the first, some end badly."""

    protocol_version = "HTTP/1.1"
    server_port: ClassVar[int]
    fails: ClassVar[bool] = False
    numbers: ClassVar = count(1)

    def log_message(self, *_):
        pass

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        number = next(self.numbers) if self.fails else -1
        if number % 11 == 0:  # before it reaches the server
            self.send_error(503, "Slow Down")
            return
        server = http.client.HTTPConnection("127.0.0.1", self.server_port)
        server.request(self.command, self.path, body, dict(self.headers))
        came = server.getresponse()
        content = came.read()
        if number % 11 == 4:  # after it was done
            self.close_connection = True
            return
        self.send_response(came.status)
        for name, value in came.getheaders():
            if name.lower() not in ("date", "server", "connection", "transfer-encoding"):
                self.send_header(name, value)
        if came.getheader("Content-Length") is None:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if number % 11 == 7:  # truncated
            content, self.close_connection = content[: len(content) // 2], True
        self.wfile.write(b"" if self.command == "HEAD" else content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The environment of the server is made once, the server of each test is empty."""
    if find_spec("s3fs") is None:
        skip("s3")
    folder = tmp_path_factory.mktemp("server")
    uv = Path(sys.executable).with_name("uv")
    uv = uv if uv.exists() else Path(".venv/bin/uv").absolute()
    python = folder / "bin" / "python"
    for words in (["venv", folder], ["pip", "install", "--python", python, *SERVER]):
        if subprocess.run([uv, *words, "--quiet"], check=False).returncode:
            skip("s3")
    port = free_port()
    with subprocess.Popen(
        [python.with_name("moto_server"), "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.1)
        Proxy.server_port = port
        proxy = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{proxy.server_port}"
        proxy.shutdown()
        process.terminate()


@pytest.fixture
def bucket(server, monkeypatch):
    for name, value in {
        "AWS_ENDPOINT_URL": server, "AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "1", "NO_PROXY": "127.0.0.1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(stores, "PAUSE", 0.01)
    import fsspec

    direct = f"http://127.0.0.1:{Proxy.server_port}"
    client = fsspec.filesystem("s3", endpoint_url=direct, use_listings_cache=False)
    client.mkdir("bucket")
    yield client
    Proxy.fails = False
    client.rm("bucket", recursive=True)


def copied(client, folder: Path) -> Path:
    for path in client.find("bucket/shards"):
        file = folder / path.removeprefix("bucket/shards/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(client.cat_file(path))
    return folder


@pytest.mark.slow
def test_made_killed_and_read_through_a_network_that_fails(bucket, whole, tmp_path, monkeypatch):
    Proxy.fails = True
    child = os.fork()
    if child == 0:  # killed while it uploads
        with work_folder(ADDRESS, tmp_path / "killed") as folder:
            generate(tiny.job(folder))
        os._exit(0)
    try:
        until = time.monotonic() + 60
        while not bucket.exists("bucket/shards/00001.tar"):
            assert time.monotonic() < until
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with work_folder(ADDRESS, tmp_path / "other") as folder:
        generate(tiny.job(folder))
    assert tiny.contents(copied(bucket, tmp_path / "copy")) == tiny.contents(whole)

    monkeypatch.setenv(stores.LIMIT, "1e-9")
    local = open_index(whole, tmp_path / "local")
    index = open_source(ADDRESS, None, None, tmp_path, tmp_path / "cache", fetch=True)
    assert index.hash == local.hash
    batches = [
        [(batch["texts"], batch["pixels"].tolist()) for batch in
         loader((None, cf), mixture_of((None, cf), 1), workers=w, steps=4, batch_size=8)]
        for cf, w in ((local, 0), (index, 2))
    ]  # fmt: skip
    assert batches[0] == batches[1]
