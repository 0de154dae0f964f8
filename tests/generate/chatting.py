"""A server that speaks OpenAI's protocol, and misbehaves as it is told."""

from __future__ import annotations

import email
import email.policy
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def says(content, **choice):
    message = {"role": "assistant", "content": content}
    return 200, {"choices": [{"message": message, "finish_reason": "stop", **choice}]}


def variations(*texts):
    return says(json.dumps({"variations": list(texts)}))


def read_form(content_type, raw):
    """Return the fields of a form: texts, and the bytes of files."""
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    fields = {}
    for part in email.message_from_bytes(head + raw, policy=email.policy.HTTP).iter_parts():
        name = part.get_param("name", header="Content-Disposition")
        content = part.get_payload(decode=True)
        fields[name] = content if part.get_filename() else content.decode()
    return fields


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        form = self.headers["Content-Type"].startswith("multipart/form-data")
        body = read_form(self.headers["Content-Type"], raw) if form else json.loads(raw)
        with self.server.lock:
            self.server.asked.append((self.path, dict(self.headers), body))
            number = len(self.server.asked) - 1
        answer = self.server.answer(number, body)
        if answer is None:  # the server dies in the middle of an answer
            self.connection.close()
            return
        code, content, *headers = answer
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in headers:
            self.send_header(name, value)
        if "Content-Length" not in dict(headers):  # a longer one breaks off in the middle
            self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *args):
        pass


@contextmanager
def serving(answer):
    """Serve ``answer(number, body)``: a code, JSON or bytes, and headers; None hangs up.

    Gives the server, whose ``url`` is asked and which remembers what it was ``asked``.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.answer, server.asked, server.lock = answer, [], threading.Lock()
    server.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def caption_of(body):
    """The caption that a question is about."""
    return body["messages"][0]["content"].split("\n")[1]
