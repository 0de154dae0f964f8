"""The process that renders chat templates: a script that ``chat_templates`` starts.

A template from somebody else can keep one operation busy for ever, or have it fill the memory,
which no sandbox inside Python prevents. This process has limits of both and imports nothing but
Jinja; it reads requests and writes answers, one JSON object a line.

The environment is that of transformers' ``apply_chat_template`` (``chat_template_utils``), which a
test compares on the features that templates use.
"""

from __future__ import annotations

import json
import math
import resource
import signal
import sys
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MEMORY = 2**29
"""Limit of the address space in bytes, of which Python with Jinja needs a tenth."""

LONGEST = 2**23
"""Most characters of a rendered text: a prompt of a million words is a mistake."""


class Generation(Extension):
    """The tag around an assistant's answer, which here only renders its content."""

    tags = {"generation"}  # noqa: RUF012  # as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        """Return a block with the content of the tag."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_render")
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render(self, caller: Any) -> Any:
        return caller()


class PlainDict:
    """``dict`` without its attributes."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        """Return a dictionary, as ``dict.fromkeys`` does."""
        return dict.fromkeys(*args, **kwargs)


class PlainNamespace(Namespace):
    """A namespace whose attributes do not begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # as Jinja's, so that it may have a "self"
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        Namespace.__setitem__(self, name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace has no attribute {name!r}")


def _raise(message: str) -> None:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def make_environment() -> ImmutableSandboxedEnvironment:
    """Return the environment of chat templates."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    made.filters["tojson"] = _to_json
    made.globals |= {
        "raise_exception": _raise, "strftime_now": _now,
        "dict": PlainDict(), "namespace": PlainNamespace,
    }  # fmt: skip
    return made


@lru_cache(4)
def _compile(template: str) -> Template:
    return make_environment().from_string(template)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the text of a request, or the type and message of an error.

    Args:
        request: the ``template`` and its ``variables``.
    """
    try:
        text = _compile(request["template"]).render(**request["variables"])
        if len(text) > LONGEST:
            return {"error": "ValueError", "message": f"it writes more than {LONGEST:,} characters"}
        json.dumps(text).encode()
    except Exception as error:  # a template may raise anything
        return {"error": type(error).__name__, "message": str(error)[:1000]}
    return {"text": text}


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(seconds: float) -> None:
    """Answer requests until there are no more.

    Args:
        seconds: the limit of computing time of a request, if the parent does not end it before.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when a Ctrl-C ends its work
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    _write("{}")
    for line in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        until = math.ceil(used.ru_utime + used.ru_stime + seconds) + 1
        if most in (resource.RLIM_INFINITY,) or until < most:
            resource.setrlimit(resource.RLIMIT_CPU, (until, most))
        _write(json.dumps(answer(json.loads(line))))


if __name__ == "__main__":
    main(float(sys.argv[1]))
