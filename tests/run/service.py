"""A stand-in for the service of Weights & Biases: what sweeps and their agents ask, on loopback.

It keeps sweeps, expands their grids and hands the points out, as the service does; the queries are
those of the installed wandb (``wandb/apis/public/sweeps.py`` and wandb-core).
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml

Point = dict[str, Any]

PROFILE = {
    "id": "user", "name": "user", "entity": "lab", "username": "user", "email": "", "flags": "{}",
    "teams": {"edges": []},
}  # fmt: skip


@dataclass
class Sweep:
    """A grid, and which of its points nobody has run yet."""

    name: str
    config: str
    points: list[Point] = field(default_factory=list)
    handed_out: list[Point] = field(default_factory=list)

    def __post_init__(self) -> None:
        parameters = yaml.safe_load(self.config)["parameters"]
        values = [
            parameter.get("values", [parameter.get("value")]) for parameter in parameters.values()
        ]
        self.points = [dict(zip(parameters, p, strict=True)) for p in itertools.product(*values)]


class Service:
    """What the service knows, and the log of what it was asked: (operation, variables)."""

    def __init__(self) -> None:
        self.log: list[tuple[str, dict[str, Any]]] = []
        self.sweeps: dict[str, Sweep] = {}
        self.agents: dict[str, Sweep] = {}
        self.states: dict[str, list[dict[str, bool]]] = {}
        self.unknown: list[str] = []
        self._lock = threading.Lock()

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the ``data`` of a GraphQL response."""
        words = query.replace("(", " ").replace("{", " ").split()
        operation = words[1] if words[0] in {"query", "mutation"} else words[0]
        with self._lock:
            self.log.append((operation, variables))
            handler = getattr(self, f"_{operation.lower()}", None)
            if handler is None:
                self.unknown.append(operation)
                return {}
            return handler(variables)

    def _viewer(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"viewer": PROFILE}

    def _upsertsweep(self, variables: dict[str, Any]) -> dict[str, Any]:
        name = f"sweep{len(self.sweeps)}"
        self.sweeps[name] = Sweep(name, variables["config"])
        project = {"id": "p", "name": "grid", "entity": {"id": "e", "name": "lab"}}
        sweep = {"id": name, "name": name, "project": project}
        return {"upsertSweep": {"sweep": sweep, "configValidationWarnings": []}}

    def _sweepwithruns(self, variables: dict[str, Any]) -> dict[str, Any]:
        sweep = self.sweeps[variables["sweep"]]
        node = {
            "id": sweep.name, "name": sweep.name, "method": "grid", "state": "RUNNING",
            "config": sweep.config, "runs": {"edges": []},
        }  # fmt: skip
        return {"project": {"sweep": node}}

    def _createagent(self, variables: dict[str, Any]) -> dict[str, Any]:
        name = f"agent{len(self.agents)}"
        self.agents[name] = self.sweeps[variables["sweep"]]
        self.states[name] = []
        return {"createAgent": {"agent": {"id": name}}}

    def _heartbeat(self, variables: dict[str, Any]) -> dict[str, Any]:
        name = variables["id"]
        sweep, state = self.agents[name], json.loads(variables["runState"])
        self.states[name].append(state)
        commands: list[dict[str, Any]] = []
        # One run at a time, as the service does.
        if not state:
            commands = [self._next(sweep)] if sweep.points else [{"type": "exit"}]
        answer = {"agent": {"id": name}, "commands": json.dumps(commands)}
        return {"agentHeartbeat": answer}

    def _next(self, sweep: Sweep) -> dict[str, Any]:
        point = sweep.points.pop(0)
        sweep.handed_out.append(point)
        # A run that was preempted comes back with this key among its own.
        stray = {"_wandb": {"value": {"cli_version": "0.31.0"}}}
        return {
            "type": "run", "id": "command", "run_id": f"{sweep.name}run{len(sweep.handed_out)}",
            "program": yaml.safe_load(sweep.config)["program"],
            "args": {**{key: {"value": value} for key, value in point.items()}, **stray},
        }  # fmt: skip


@contextmanager
def serving() -> Iterator[tuple[Service, str]]:
    """Run a service on a free port of this machine; yield it and its address."""
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path == "/graphql":
                asked = json.loads(body)
                data = service.answer(asked["query"], asked.get("variables") or {})
                self._send(json.dumps({"data": data}).encode())
            else:  # telemetry
                self._send(b"{}")

        def _send(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Keep the tests' output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield service, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
