"""Every setting of a table and of a comparison is read by its class, or declared as unread."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from dataclasses import dataclass, fields
from types import FunctionType
from typing import Any

import pytest

from cfaug.core.files import read_yaml
from cfaug.core.targets import locate
from cfaug.report.comparison import ComparisonSettings
from cfaug.report.paper_tables import PaperTable
from cfaug.settings.read_if import declared_by
from tests.files_of_settings import settings_file, settings_files

TABLES = sorted(file.stem for file in settings_files("table"))


def target_of(name: str) -> type:
    """Return the class of a shipped table, which may be that of the file it begins with."""
    node = read_yaml(settings_file(f"table/{name}"))
    if "_target_" in node:
        return locate(node["_target_"])
    return target_of(next(base for base in node["defaults"] if base in TABLES))


def names_used(function: Any) -> set[str]:
    """Return the attributes that a function reads of any object, or passes by name."""
    every = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))))
    named = [value for call in every if isinstance(call, ast.Call) for value in call.args]
    return {node.attr for node in every if isinstance(node, ast.Attribute)} | {
        str(argument.value) for argument in named if isinstance(argument, ast.Constant)
    }


def code_of(target: type, name: str) -> list[Any]:
    """Return the methods behind an attribute: the class's own, and what it extends by super()."""
    methods = []
    for base in target.__mro__:
        code = vars(base).get(name)
        code = getattr(code, "fget", None) or getattr(code, "func", None) or code
        code = getattr(code, "__func__", code)
        if isinstance(code, FunctionType) and code.__module__.split(".")[0] in ("cfaug", "tests"):
            methods.append(code)
            if "super()" not in inspect.getsource(code):
                break
    return methods


def fields_read(target: type, start: str = "build") -> set[str]:
    """Return the fields that a class reads when it is built, by the methods that it reaches.

    Functions of its module may take it as an argument, so what they read counts as well.
    """
    waiting, seen = [start], set[str]()
    module = sys.modules[target.__module__]
    helpers = [
        helper
        for helper in vars(module).values()
        if isinstance(helper, FunctionType) and helper.__module__ == module.__name__
    ]
    used = set().union(*map(names_used, helpers)) if helpers else set[str]()
    waiting += used
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for function in code_of(target, name):
            waiting += names_used(function)
    return seen & {field.name for field in fields(target)}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_reads_every_setting_or_says_that_it_does_not(name):
    target = target_of(name)
    never = {name for name, conditions in declared_by(target).items() if not conditions}
    taken = {field.name for field in fields(target) if field.init}
    assert fields_read(target) & taken == taken - never


@dataclass(frozen=True, kw_only=True)
class WithDead(PaperTable):
    """A table with a setting that no method reaches."""

    dead: int = 0
    read: int = 0

    def build(self, runs: Any) -> Any:
        """Return a document."""
        return self.document(notes=[self._note()])

    def _note(self) -> str:
        return str(self.read)

    def _forgotten(self) -> str:
        return str(self.dead)


def test_a_setting_that_no_method_reads_is_found():
    dead = {field.name for field in fields(WithDead)} - fields_read(WithDead)
    assert dead == {"dead", "partial", "commands"}


def test_a_comparison_reads_every_setting():
    from cfaug.run import compare

    read = fields_read(ComparisonSettings, "choose_baselines") | fields_read(
        ComparisonSettings, "headline"
    )
    assert read | names_used(compare) >= {field.name for field in fields(ComparisonSettings)}
