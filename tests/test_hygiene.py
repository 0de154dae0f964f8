"""What every file of the tree keeps to, and what modules import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Set
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cfaug.settings.settings_files import settings_folders, sweep_files
from tests.hygiene import ROOT, problems, tracked

LIGHT = (
    "cfaug.run.launch", "cfaug.run.run_plan", "cfaug.run.train", "cfaug.run.evaluate",
    "cfaug.data.index",
    "cfaug.data.mixture.mixture", "cfaug.data.mixture.settings",
    "cfaug.models.specs", "cfaug.train.settings",
    "cfaug.evaluation.suites", "cfaug.report.results", "cfaug.worlds.shapescapes",
)  # fmt: skip
HEAVY = (
    "torch",
    "transformers",
    "lightning",
    "open_clip",
    "diffusers",
    "matplotlib",
    "scipy.stats",
)


def test_tracked_files_are_clean():
    assert problems(tracked()) == []


def test_what_help_and_dry_run_import_stays_light():
    code = (
        f"import importlib, sys\nfor name in {LIGHT!r}: importlib.import_module(name)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    """Every module of the package, the zoo, benchmarks and tools, parsed once for all tests."""
    return {
        file.relative_to(ROOT): ast.parse(file.read_text(encoding="utf-8"))
        for folder in ("cfaug", "zoo", "benchmarks", "tools")
        for file in sorted((ROOT / folder).rglob("*.py"))
    }


def of_package(trees: dict[Path, ast.Module], package: str = "cfaug") -> dict[Path, ast.Module]:
    return {file: tree for file, tree in trees.items() if file.is_relative_to(package)}


MOST = 8


def list_parameters(tree: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """Yield the functions of a module and their parameters, without the object or class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            named = [
                argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)
            ]
            yield node.name, named[named[:1] in (["self"], ["cls"]) :]


def test_parameters_are_counted():
    source = "class A:\n async def f(self, a, /, b=1, *c, d, **e): ...\ndef g(x, *, y): ..."
    assert dict(list_parameters(ast.parse(source))) == {"f": ["a", "b", "d"], "g": ["x", "y"]}


@pytest.mark.slow
def test_no_public_signature_is_longer_than_eight(trees):
    """A private function takes what it needs: no record is made to carry arguments over one hop."""
    too_long = [
        f"{file}: {name} takes {len(names)}: {', '.join(names)}"
        for file, tree in of_package(trees).items()
        for name, names in list_parameters(tree)
        if len(names) > MOST and not name.startswith("_")
    ]
    assert not too_long, "\n".join(too_long)


EMPTY_NAMES = {"one", "found", "own", "told"}
"""Names of local variables that do not say what a variable holds."""


@pytest.mark.slow
def test_local_variables_are_named_after_what_they_hold(trees):
    tests = {
        file.relative_to(ROOT): ast.parse(file.read_text(encoding="utf-8"))
        for file in sorted((ROOT / "tests").rglob("*.py"))
    }
    empty = [
        f"{file}:{node.lineno}: {name}"
        for file, tree in (trees | tests).items()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
        if (isinstance(node, ast.arg) and (name := node.arg) in EMPTY_NAMES)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            and (name := node.id) in EMPTY_NAMES)
    ]  # fmt: skip
    assert not empty, "\n".join(dict.fromkeys(empty))


APART = {"errors.py", "__main__.py", "evaluator_scores.py"}
"""Files that may print themselves; the last is a script of its own."""


@pytest.mark.slow
def test_nothing_is_printed_past_what_makes_text_safe(trees):
    printing = [
        file
        for file, tree in of_package(trees).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
    ]
    assert [file for file in printing if file.name not in APART and "zoo" not in file.parts] == []


ENCODINGS = {"read_text": 0, "write_text": 1}
"""The place of the encoding among the arguments."""

TALKING = {"run", "Popen", "check_output"}
"""Functions of ``subprocess`` that return text."""


def find_unspecified(tree):
    """Return the lines of calls that read or write text without saying in which encoding."""
    lines = []
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        named = {keyword.arg for keyword in call.keywords}
        if "encoding" in named:
            continue
        talks = call.func.attr in TALKING and named & {"text", "universal_newlines"}
        if talks or ENCODINGS.get(call.func.attr) == len(call.args):
            lines.append(call.lineno)
    return lines


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("file.read_text()\nfile.read_text('utf-8')\nfile.read_text(encoding='ascii')", [1]),
        ("(folder / 'a').write_text(f'{x}')\nfile.write_text(x, encoding='utf-8')", [1]),
        ("subprocess.run(words, text=True)\nsubprocess.run(words)\nrow.make(text=x)", [1]),
    ],
)
def test_what_is_found(code, lines):
    assert find_unspecified(ast.parse(code)) == lines


@pytest.mark.slow
def test_every_text_file_is_read_and_written_as_utf_8(trees):
    """What ruff's PLW1514 misses where it knows no type."""
    unspecified = {
        str(file): lines for file, tree in trees.items() if (lines := find_unspecified(tree))
    }
    assert not unspecified


PLACES = {
    "pages": [ROOT / "README.md", *(ROOT / "docs").glob("*.md")],
    "settings": [
        *(file for folder in settings_folders() for file in folder.rglob("*.yaml")),
        *sweep_files(),
    ],
    "code": (ROOT / "cfaug").rglob("*.py"),
}
DOTTED = re.compile(r"\bcfaug(?:\.[a-z_]\w*)+\.[A-Z]\w*[a-z]\w*")


def names_of(tree: ast.Module) -> set[str]:
    """Return what a module defines or imports."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def is_there(name: str, trees: dict[Path, ast.Module]) -> bool:
    *parts, last = name.split(".")
    tree = trees.get(Path(*parts).with_suffix(".py")) or trees.get(Path(*parts, "__init__.py"))
    return tree is not None and last in names_of(tree)


@pytest.mark.parametrize("place", PLACES)
def test_every_class_that_is_named_is_there(trees, place):
    said = {
        name: file.relative_to(ROOT)
        for file in PLACES[place]
        if file.is_file()
        for name in DOTTED.findall(file.read_text(encoding="utf-8"))
    }
    assert said
    assert {name: str(file) for name, file in said.items() if not is_there(name, trees)} == {}


IMPORT = re.compile(r"^ *(?:import|from(?= \S+ import )) (\w+)", re.MULTILINE)
"""Of a tenth of the time that parsing takes; one module a line, as ruff has it."""


def module_name(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(tree: ast.Module, modules: Set[str]) -> set[str]:
    """Return the modules that a module imports: at the top, in functions, or for types only."""
    imports = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            imports |= {module if module in modules else node.module for module in whole}
        elif isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
    return imports & modules


def test_no_module_imports_itself_by_way_of_others(trees):
    """Over all folders at once, so that the files of each can be read in an order."""
    modules = {module_name(file): tree for file, tree in trees.items()}
    graph = {name: imports_of(tree, modules.keys()) - {name} for name, tree in modules.items()}
    assert sum(map(len, graph.values())) > 1000
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_folder_of_the_package_has_more_than_thirty_modules(trees):
    folders = Counter(file.parent.as_posix() for file in trees if file.parts[0] == "cfaug")
    assert folders.total() > 300
    assert {folder: count for folder, count in folders.items() if count > 30} == {}


def test_no_two_classes_of_the_package_have_one_name(trees):
    named = Counter(
        node.name
        for file, tree in trees.items()
        for node in tree.body
        if file.parts[0] == "cfaug" and isinstance(node, ast.ClassDef)
    )
    assert named.total() > 500
    assert {name: count for name, count in named.items() if count > 1 and name[0] != "_"} == {}


def test_a_circle_is_found_wherever_it_is_imported():
    first = "if TYPE_CHECKING:\n from a.b import B\n"
    second = "def f():\n from a import c\n"
    for source, name in (
        (first, "a.b"),
        (second, "a.c"),
        ("import a.b", "a.b"),
        ("import d", None),
    ):
        imports = imports_of(ast.parse(source), {"a.b", "a.c"})
        assert imports == ({name} if name else set())


Classes = dict[str, list[ast.ClassDef]]
"""The classes of all files by their names."""


def list_classes(body: list[ast.stmt]) -> Iterator[ast.ClassDef]:
    """Yield the classes of a module or a class, without those inside functions."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield node
            yield from list_classes(node.body)


def bases_of(node: ast.ClassDef, classes: Classes) -> list[ast.ClassDef]:
    """Return the classes that a class extends, nearest first, as far as they are in the tree."""
    names = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
    direct = [base for name in names for base in classes.get(name, []) if base is not node]
    return direct + [further for base in direct for further in bases_of(base, classes)]


def methods_of(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}


def names_in(node: ast.ClassDef) -> set[str]:
    """Return the names of a class's methods and attributes, those that its methods set too."""
    stored = {
        inner.attr if isinstance(inner, ast.Attribute) else inner.id
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name | ast.Attribute) and isinstance(inner.ctx, ast.Store)
    }
    return stored | methods_of(node).keys()


def undocumented_methods(trees: dict[Path, ast.Module]) -> list[str]:
    """Return public methods without a docstring, but for those that override one with it.

    Overridden is a method of a base class, or that of a protocol whose members a class has, with
    as many parameters.
    """
    nodes = [(file, node) for file, tree in trees.items() for node in list_classes(tree.body)]
    classes: Classes = {}
    for _, node in nodes:
        classes.setdefault(node.name, []).append(node)
    lines = {node: [node, *bases_of(node, classes)] for _, node in nodes}
    members = {node: set().union(*map(names_in, line)) for node, line in lines.items()}
    protocols = [node for _, node in nodes if "Protocol" in map(ast.unparse, node.bases)]
    missing = []
    for file, node in nodes:
        for name, method in methods_of(node).items():
            known = {ast.unparse(item) for item in method.decorator_list}
            if (
                node.name.startswith("_") or name.startswith("_") or ast.get_docstring(method)
                or known & {"override", f"{name}.setter"}
            ):  # fmt: skip
                continue
            similar = [
                base
                for protocol in protocols
                if protocol is not node and members[protocol] <= members[node]
                for base in lines[protocol]
                if name in methods_of(base)
                and len(methods_of(base)[name].args.args) == len(method.args.args)
            ]
            overridden = [methods_of(base).get(name) for base in [*lines[node][1:], *similar]]
            if not any(base is not None and ast.get_docstring(base) for base in overridden):
                missing.append(f"{file}:{method.lineno}: {node.name}.{name}")
    return missing


@pytest.mark.slow
def test_what_has_no_docstring_overrides_what_has_one(trees):
    """Ruff's D102 would ask for one again, which could only repeat it."""
    assert undocumented_methods(trees) == []


def test_an_undocumented_method_is_found():
    source = """
class Reads(Protocol):
    def read(self, n): "Read."
class Base:
    def write(self): "Write."
    def send(self): ...
class Child(Base):
    def write(self): ...
    def send(self): ...
    def read(self, m): ...
class Other:
    def write(self): ...
    def read(self, n, m): ...
"""
    missing = undocumented_methods({Path("a.py"): ast.parse(source)})
    assert [line.rpartition(" ")[2] for line in missing] == [
        "Base.send", "Child.send", "Other.write", "Other.read",
    ]  # fmt: skip


def names_required(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(requirement).name) for requirement in requirements}


@pytest.fixture(scope="module")
def imported() -> set[str]:
    """The distributions that the package and its scripts import, stubs such as _typeshed aside."""
    # trackio, an extra with a web server of its own, has a stand-in in the tests.
    distributions = {**packages_distributions(), "trackio": ["trackio"]}
    example = ROOT / "cfaug/run/example_recipe"  # whose test its new owner runs
    files = [file for file in (ROOT / "cfaug").rglob("*.py") if file.parent != example]
    files += ROOT.glob("*.py")
    modules = {name for file in files for name in IMPORT.findall(file.read_text())}
    modules -= {*sys.stdlib_module_names, "cfaug", "_typeshed"}
    assert modules <= set(distributions), "every one is installed where tests run"
    return {canonicalize_name(name) for module in modules for name in distributions[module]}


@pytest.fixture(scope="module")
def declared() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_required_package_is_imported(imported, declared):
    assert names_required(declared["dependencies"]) <= imported


def test_every_imported_package_is_declared(imported, declared):
    extras = declared["optional-dependencies"]
    optional = [
        requirement for extra in extras.keys() - {"dev", "docs"} for requirement in extras[extra]
    ]
    assert imported <= names_required([*declared["dependencies"], *optional])


def test_no_release_of_lightning_with_malware_is_allowed_or_pinned(declared):
    """2.6.2 and 2.6.3 stole credentials when imported (GHSA-w37p-236h-pfx3)."""
    malware = ["2.6.2", "2.6.3"]
    required = {
        requirement.name: requirement.specifier
        for requirement in map(Requirement, declared["dependencies"])
    }
    assert list(required["lightning"].filter(["2.6.1", *malware, "2.6.6"])) == ["2.6.1", "2.6.6"]
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "lightning==" in line)
    assert pins.keys() == {"lightning", "pytorch-lightning"}  # the first installs the second
    assert not {pin.split()[0] for pin in pins.values()} & set(malware)


UNNEEDED = (
    "datasets", "diffusers", "fontTools.ttLib", "nltk", "open_clip", "peft",
    "pyarrow.dataset", "sklearn", "tensorboard", "timm", "transformers.trainer", "wandb",
    "webdataset",
)  # fmt: skip
"""What a short run of the tiny CLIP has no use for, though another run would."""


@pytest.mark.slow
def test_a_short_run_imports_only_what_it_needs(tmp_path):
    words = [
        "data.cf_ratio=0.5", "data.size=16", "data.batch_size=8", "trainer.max_steps=1",
        "data.world.real_scenes=40", "data.world.counterfactual_pairs=20",
        f"paths.runs={tmp_path}/runs", f"paths.shards={tmp_path}/shards",
    ]  # fmt: skip
    code = (
        f"import sys, train\nassert train.main({words!r}) == 0\n"
        f"print([name for name in {UNNEEDED!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
