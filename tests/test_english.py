"""The English that a machine can check: banned phrases, and one whole entry an argument."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENDS = '{.|,|;|:|)|!|?|"|`}'
BANNED = {
    "{come|comes} twice": "is duplicated",
    "{that|which|who} {is|are|was|were} none": "is invalid, is not one of",
    "{is|are} none of": "is not one of",
    "{,|;} none of {a|an|no} ": "empty for",
    "as good as none": "hardly any",
    "to the same bytes": "and produces byte-identical results",
    "{is|are} no merit": "is an artefact",
    "that cannot be" + ENDS: "invalid",
    "unsaid": "silently",
    "own {affair|affairs}": "independent of",
    "Whoever": "code that, a process that, people who",
    "{goes|went} deaf": "ignores",
    "{that|which|what|it} {is|are} no ": "is not a",
    "nothing need be": "nothing needs to be",
    "{go|goes} on where": "resumes",
    "held against": "checked against",
    "called anything": "say what is missing",
    "{stand|stands} twice": "is duplicated",
    "any values that can be compared": "any comparable values",
    "``None`` is none": "``None`` for no ...",
    "as of ``": "as for ``, from ``",
    "what {tables|pages} call it": "its name in tables, on pages",
    "no width is no certainty": "say what is unknown",
    "{What|what} {came|became} of ": "the result of",
    "first asked": "on first use",
    "full or refuses": "full or cannot be written",
    "each as likely": "equally likely",
    "as good as random": "random",
    "cannot be had": "is unavailable",
    "said anew": "paraphrased",
    "as nearly as can be": "as close as possible",
    "What the command takes": "the settings of the command",
    "{is|are} had ": "exists, is available",
    "who goes first": "the order, in alternating order",
}
"""Phrases that are not plain English, with what to write in their place."""

ALLOWED = re.compile(r"(?:that|which|what|it) (?:is|are) no (?:longer|more|matter)\b")
SEAMS = (" # ", ' " "', ' " f"', ' " r"')
"""What stands between two words at the end of a line: of a comment, or of a string literal."""

ENTRY = re.compile(r"\*{0,2}(\w+)(?: \([^)]*\))?: *(.*)")
WHOLE = (".", "!", "?", ")", "`", ":")
"""What an entry ends with; one that ends otherwise runs on into the next."""

FRAGMENT = re.compile(
    r"(?:about|after|against|among|as|at|before|behind|beside|besides|between|by|for|from|if|in|"
    r"instead|into|like|likewise|not|of|on|over|per|since|so|such|than|that|then|those|to|under|"
    r"until|what|when|where|which|who|whom|whose|how|with|within|without|"
    r"given|kept|made|read|taken|used|written)\b(?!-)",
    re.IGNORECASE,
)
"""The beginnings of entries that leave out their noun, such as ``rows: of the index.``."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Compound = Function | ast.ClassDef | ast.If | ast.With


def spell_out(pattern: str) -> list[str]:
    """Return every phrase that a pattern with ``{one|another}`` stands for."""
    parts = re.split(r"\{(.*?)\}", pattern)
    choices = [part.split("|") if i % 2 else [part] for i, part in enumerate(parts)]
    return ["".join(words) for words in product(*choices)]


PHRASES = [(phrase, better) for key, better in BANNED.items() for phrase in spell_out(key)]


def find_banned(text: str) -> Iterator[str]:
    """Yield every banned phrase of a text with what follows it, and what to write instead."""
    line = " ".join(text.split())
    for seam in SEAMS:
        line = line.replace(seam, " ")
    for phrase, better in PHRASES:
        at = line.find(phrase)
        while at >= 0:
            if not ALLOWED.match(line, at):
                yield f"{line[max(0, at - 30) : at + 60]!r}: for {phrase!r} write {better!r}"
            at = line.find(phrase, at + 1)


def prose() -> Iterator[Path]:
    """Yield the files that people read."""
    for folder in ("cfaug", "benchmarks", "tools"):
        yield from sorted((ROOT / folder).rglob("*.py"))
    for folder, kind in (("conf", "*.yaml"), ("docs", "*.md")):
        yield from sorted((ROOT / folder).rglob(kind))
    yield from sorted(ROOT.glob("*.py"))
    yield from (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md")


def test_no_page_docstring_comment_or_error_has_a_banned_phrase():
    found = [
        f"{file.relative_to(ROOT)}: {said}"
        for file in prose()
        for said in find_banned(file.read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "a key comes twice",
        '"a key comes "\n    f"twice: {key}"',
        "a share that is\n    none.",
        "# a label that is none\n# of these",
        "a number that cannot be.",
        "A file that is no image",
        "Raises: if it is no image",
        "``None`` is none",
        "rows: as of ``read``",
        "name: what tables\n    call it",
    ],
)
def test_banned_phrases_are_found(text):
    assert list(find_banned(text))


@pytest.mark.parametrize(
    "text",
    [
        "None where there is none",
        "an image that cannot be read",
        "an image that cannot\n    be read",
        "a process that is no longer there",
        "none of the captions is empty",
        "``None`` is nowhere",
        "as of today",
    ],
)
def test_plain_english_is_not_banned(text):
    assert not list(find_banned(text))


def read_entries(docstring: str) -> list[str] | None:
    """Return the entries of a docstring's ``Args:``, one string each; ``None`` without any."""
    lines = docstring.split("\n")
    head = next((number for number, line in enumerate(lines) if line.strip() == "Args:"), None)
    return None if head is None else read_section(lines, head)


def read_section(lines: Sequence[str], head: int) -> list[str]:
    """Return the entries below the line with a section's name, one string each."""
    outer = len(lines[head]) - len(lines[head].lstrip())
    found: list[str] = []
    inner = 0
    for line in filter(str.strip, islice(lines, head + 1, None)):
        indent = len(line) - len(line.lstrip())
        if indent <= outer:
            break
        inner = inner or indent
        if indent == inner:
            found.append(line.strip())
        else:
            found[-1] += " " + line.strip()
    return found


def check_entries(entries: Iterable[str], taken: Iterable[str]) -> list[str]:
    """Return what is wrong with the entries of one docstring.

    Args:
        taken: the arguments that may be named; one that says all by its name and type is left out.
    """
    named, wrong = [], []
    for entry in entries:
        match = ENTRY.fullmatch(entry)
        if match is None:
            wrong.append(f"no entry: {entry!r}")
            continue
        named.append(match[1])
        if not match[2].endswith(WHOLE):
            wrong.append(f"an entry is not whole: {entry!r}")
    wrong += [f"{name} has several entries" for name in set(named) if named.count(name) > 1]
    wrong += [f"{name} is not an argument" for name in named if name not in set(taken)]
    return wrong


def parameters(function: Function) -> list[str]:
    """Return the names of a function's parameters, without that of the object it is called on."""
    given = function.args
    every = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    names = [one.arg for one in every if one is not None]
    return names[names[:1] in (["self"], ["cls"]) :]


@dataclass
class Definition:
    """A function or class, without its tree: hundreds of trees make Python's collector slow."""

    file: Path
    line: int
    name: str
    entries: list[str] | None
    is_class: bool
    takes: list[str] | None
    fields: list[str]
    bases: list[str]


def name_of(node: ast.expr) -> str:
    """Return the last part of a base's or decorator's name."""
    node = node.func if isinstance(node, ast.Call) else node
    node = node.value if isinstance(node, ast.Subscript) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def fields_of(node: ast.ClassDef) -> list[str]:
    """Return the fields that a dataclass's constructor takes beside those of its bases."""
    if not any(name_of(one) == "dataclass" for one in node.decorator_list):
        return []
    return [
        one.target.id
        for one in node.body
        if isinstance(one, ast.AnnAssign)
        and isinstance(one.target, ast.Name)
        and "ClassVar" not in ast.unparse(one.annotation)
        and not (isinstance(one.value, ast.Call) and "init=False" in ast.unparse(one.value))
    ]


def read_definitions(source: str, file: Path) -> Iterator[Definition]:
    """Yield all functions and classes of a file, and those within them."""
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        waiting += [one for one in getattr(node, "body", ()) if isinstance(one, Compound)]
        if not isinstance(node, Function | ast.ClassDef):
            continue
        entries = read_entries(ast.get_docstring(node, clean=False) or "")
        start = file, node.lineno, node.name, entries
        if isinstance(node, ast.ClassDef):
            own = [one for one in node.body if getattr(one, "name", "") == "__init__"]
            takes = parameters(own[0]) if own and isinstance(own[0], Function) else None
            bases = [name_of(base) for base in node.bases]
            yield Definition(*start, True, takes, fields_of(node), bases)
        else:
            yield Definition(*start, False, parameters(node), [], [])


def taken_by(one: Definition, classes: Mapping[str, list[Definition]]) -> list[str]:
    """Return what a function, or the constructor of a class, takes."""
    if one.takes is not None:
        return one.takes
    found: list[str] = []
    for name in one.bases:
        above = sorted(classes.get(name, ()), key=lambda base: base.file != one.file)
        found += taken_by(above[0], classes) if above else []
    return list(dict.fromkeys([*found, *one.fields]))


def check_arguments(files: Mapping[Path, str]) -> tuple[int, list[str]]:
    """Return how many docstrings have an ``Args:`` section, and what is wrong with which.

    A class may name its bases' arguments as well.
    """
    every = [one for file, text in files.items() for one in read_definitions(text, file)]
    classes: dict[str, list[Definition]] = {}
    for one in every:
        if one.is_class:
            classes.setdefault(one.name, []).append(one)
    count, found = 0, []
    for one in every:
        if one.entries is None:
            continue
        count += 1
        taken = taken_by(one, classes)
        wrong = check_entries(one.entries, taken)
        found += [f"{one.file}:{one.line}: {one.name}: {what}" for what in wrong]
    return count, found


def test_every_argument_has_one_whole_entry():
    files = {file.relative_to(ROOT): file.read_text() for file in (ROOT / "cfaug").rglob("*.py")}
    count, found = check_arguments(dict(sorted(files.items())))
    assert not found, "\n".join(found)
    assert count > 800


def find_fragments(source: str) -> Iterator[str]:
    """Yield the entries of a file's docstrings that begin without a noun, with their section."""
    lines = source.split("\n")
    for head, line in enumerate(lines):
        if line.strip().startswith(("Args:", "Attributes:")):
            for entry in read_section(lines, head):
                match = ENTRY.fullmatch(entry)
                if match and FRAGMENT.match(match[2]):
                    yield f"{head + 1}: {entry}"


def test_every_entry_begins_with_its_noun():
    found = [
        f"{file.relative_to(ROOT)}:{entry}"
        for folder in ("cfaug", "benchmarks", "tools")
        for file in sorted((ROOT / folder).rglob("*.py"))
        for entry in find_fragments(file.read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "entry",
    [
        "rows: of the index.",
        "name: as a YAML names it.",
        "model: whose parameters are trained.",
        "trainer: how long, on which device.",
        "form: what a report calls it.",
        "limit: in bytes.",
        "limit: In bytes.",
        "others: those of the other subjects.",
        "ratings: at most one per annotator.",
        "*files (paths): to read.",
        "files: read in this order.",
    ],
)
@pytest.mark.parametrize("section", ["Args", "Attributes"])
def test_entries_without_a_noun_are_found(entry, section):
    text = f'class A:\n    """A.\n\n    {section}:\n        a: the first.\n        {entry}\n    """'
    assert list(find_fragments(text)) == [f"4: {entry}"]


@pytest.mark.parametrize(
    "entry",
    [
        "rows: the rows of the index.",
        "limit: the largest size, in bytes.",
        "weights: per-class weights.",
        "lines: the lines of the file,\n            of the header, and\n            in the table.",
        "shuffle: whether rows are shuffled.",
    ],
)
def test_entries_with_a_noun_are_not_found(entry):
    assert not list(find_fragments(f'def f():\n    """F.\n\n    Args:\n        {entry}\n    """'))


CLASSES = '''
@dataclass
class A:
    """A thing.

    Args:
        a: the first.
    """

    a: int = 0
    kept: dict = field(default_factory=dict, init=False)
    kind: ClassVar[str] = "a"

@dataclass
class B(A):
    """A further thing; the other arguments are those of ``A``.

    Args:
        b: the second, which is explained
            on two lines.
    """

    a: int = 1
    b: int = 0
'''


def test_a_class_may_leave_its_bases_arguments_to_them():
    assert check_arguments({Path("a.py"): CLASSES}) == (2, [])


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("the first.", "the first, and", "not whole: 'a: the first, and'"),
        ("the first.", "the first,", "not whole"),
        ("a: the first.", "a: the first.\n        a: again.", "a has several entries"),
        ("a: the first.", "a: the first.\n        kept: it.", "kept is not an argument"),
        ("a: the first.", "a: the first.\n        kind: it.", "kind is not an argument"),
        ("a: the first.", "the first.", "no entry: 'the first.'"),
    ],
)
def test_what_is_wrong_with_entries_is_said(old, new, says):
    _, found = check_arguments({Path("a.py"): CLASSES.replace(old, new, 1)})
    assert any(says in one for one in found)


def test_functions_may_name_all_that_they_take_and_nothing_else():
    entries = "    Args:\n        x: it.\n        *rows: they.\n        z: it.\n    "
    text = f'def f(x, *rows, y=1, **more):\n    """F.\n\n{entries}"""'
    _, found = check_arguments({Path("a.py"): text})
    assert [one.split(": ", 2)[2] for one in found] == ["z is not an argument"]
