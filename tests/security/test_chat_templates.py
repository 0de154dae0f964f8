"""Chat templates are rendered in a process with limits, exactly as transformers renders them.

Finding N23 of the second round of hostile use: one operation of a template ran for ever, or took
gigabytes, in the process of the command.
"""

from __future__ import annotations

import os
import re
import signal
import time

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from cfaug.core.safety import safe_loading as untrusted
from cfaug.core.safety.chat_templates import ChatRenderer, TemplateFailureError
from cfaug.core.safety.safe_loading import render_chat

MESSAGES = [
    {"role": "system", "content": "Be brief. <b>&amp;</b> höhe 日本 \u2028"},
    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": 'What\'s "it"?\n'}]},
    {"role": "assistant", "content": "A cat."},
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "additional_special_tokens": ["<a>", "<b>"]}


class Writer:
    """A tokenizer with a template."""

    special_tokens_map = TOKENS

    def __init__(self, template: object) -> None:
        self.chat_template = template


TEMPLATES = [
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}",
    "{{ messages | tojson }}{{ messages | tojson(indent=2) }}",
    "{{ messages | tojson(sort_keys=true) }}{{ messages | tojson(ensure_ascii=true) }}",
    "{% for m in messages %}{% if loop.index0 == 1 %}{% continue %}{% endif %}{{ m.role }}"
    "{% if m.role == 'assistant' %}{% break %}{% endif %}{% endfor %}",
    "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
    "{{ ns.n }}{{ dict(a=1) }}{{ dict.fromkeys('ab', 1) }}",
    "{{ strftime_now('%Y') }}{{ tools is none }}{{ documents is none }}{{ eos_token | length }}",
    "  {%- if tools %}x{% endif %}  \n  {% set x = messages[1].content %}\n {{ x[1].text | trim }}",
    "{% macro say(x) -%} [{{ x | upper }}] {%- endmacro %}{{ say(messages[0].role) }}",
    "{{ missing }}{{ additional_special_tokens }}{{ messages | map(attribute='role') | list }}",
]
FAILING = [
    "{{ raise_exception('roles must alternate') }}",
    "{{ missing.attribute }}",
    "{% for %}",
    "{{ ''.__class__.__mro__ }}",
    "{{ namespace(_x=1) }}",
    "{{ messages.append(1) }}",
    "{{ 1 / 0 }}",
]


def theirs(template: str) -> str:
    prompts, _ = render_jinja_template(
        [MESSAGES], chat_template=template, add_generation_prompt=True, **TOKENS
    )
    return prompts[0]


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_writes_what_transformers_writes(template: str) -> None:
    assert render_chat(Writer(template), MESSAGES) == theirs(template)
    assert render_chat(Writer({"default": template, "rag": "x"}), MESSAGES) == theirs(template)


@pytest.mark.parametrize("template", FAILING)
def test_a_template_fails_as_with_transformers(template: str) -> None:
    with pytest.raises(Exception) as ours:  # noqa: PT011  # of many types
        render_chat(Writer(template), MESSAGES)
    with pytest.raises(Exception) as expected:  # noqa: PT011
        theirs(template)
    kind = type(expected.value)
    assert type(ours.value) is kind or str(ours.value).startswith(kind.__name__)


HOSTILE = {
    "power": ("{% set a=9 %}{{ a**(a**a) }}", "it takes more than 2 s"),
    "width": ('{{ "%999999999d" % 1 }}', "MemoryError"),
    "repeat": ('{% set a="a" %}{{ a*3000000000*2 }}', "MemoryError"),
    "list": ("{{ ([1] * 999999999) | length }}", "MemoryError"),
    "long": ("{{ 'a' * 9000000 }}", "writes more than 8,388,608 characters"),
    "deep": ("{{" + "(" * 5000 + "1" + ")" * 5000 + "}}", "Error|more than|ended"),
    "regular": ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
                "it takes more than 2 s"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_template_is_ended_n23(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    template, said = HOSTILE[case]
    monkeypatch.setattr(untrusted, "RENDER_S", 2.0)
    began = time.monotonic()
    kinds = (TemplateFailureError, TimeoutError, MemoryError, ValueError, RecursionError)
    with pytest.raises(kinds) as error:
        render_chat(Writer(template), MESSAGES)
    assert re.search(said, f"{type(error.value).__name__}: {error.value}")
    assert time.monotonic() - began < 120  # on a busy machine
    assert render_chat(Writer("{{ bos_token }}"), MESSAGES) == "<s>"  # the next one is rendered


def test_a_process_that_was_ended_is_replaced_and_one_of_a_parent_is_not_shared() -> None:
    renderer = ChatRenderer(5.0)
    assert renderer.render("{{ a }}", {"a": 1}) == "1"
    first = renderer._process
    assert first is not None
    os.kill(first.pid, signal.SIGINT)  # a Ctrl-C in the terminal does not end it
    assert renderer.render("{{ a }}", {"a": 2}) == "2"
    assert renderer._process is first
    os.kill(first.pid, signal.SIGKILL)
    assert renderer.render("{{ a }}", {"a": 3}) == "3"
    assert renderer._process is not first
    renderer._owner = -1  # as in a forked child
    assert renderer.render("{{ a }}", {"a": 4}) == "4"
    renderer.stop()


def test_a_writer_without_a_template_is_refused() -> None:
    for template in (None, {"rag": "x"}):
        with pytest.raises(ValueError, match="none"):
            render_chat(Writer(template), MESSAGES)
