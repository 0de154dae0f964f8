"""The English that a machine can check: banned phrases, and one whole entry an argument."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice, product
from pathlib import Path
from types import ModuleType
from typing import ClassVar

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


def spell_out(pattern: str) -> list[str]:
    """Return every phrase that a pattern with ``{one|another}`` stands for."""
    parts = re.split(r"\{(.*?)\}", pattern)
    choices = [part.split("|") if i % 2 else [part] for i, part in enumerate(parts)]
    return ["".join(words) for words in product(*choices)]


NOT_A_NOUN = re.compile(r"(?i)(?:^|_)asked(?:_|$)|^_?Asked(?=[A-Z]|$)")
"""Identifiers that leave out what was asked: a question, a request, a name, a setting."""

TEXT = re.compile(r'"""[\s\S]*?"""|"(?:[^"\\\n]|\\.)*"|#.*')
"""A text or a comment of a program."""

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
    banned = [
        f"{file.relative_to(ROOT)}: {said}"
        for file in prose()
        for said in find_banned(file.read_text())
    ]
    assert not banned, "\n".join(banned)


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


def find_identifiers(source: str) -> set[str]:
    """Return the words of a program outside its texts and comments."""
    return set(re.findall(r"\b[A-Za-z_]\w*", TEXT.sub(" ", source)))


def test_what_is_asked_has_the_name_of_a_thing():
    named = [
        f"{file.relative_to(ROOT)}: {name}"
        for folder in ("cfaug", "zoo", "benchmarks", "tools")
        for file in sorted((ROOT / folder).rglob("*.py"))
        if "asked" in (source := file.read_text()).lower()
        for name in sorted(find_identifiers(source))
        if NOT_A_NOUN.search(name)
    ]
    assert not named, "\n".join(named)


def test_identifiers_are_found_outside_texts_and_comments():
    source = 'def f(asked):  # unasked\n    """Asked."""\n    return [g("was_asked"), asked_of]'
    assert find_identifiers(source) == {"def", "f", "asked", "return", "g", "asked_of"}


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("asked", True), ("_asked", True), ("ASKED_BY", True), ("AskedImage", True),
        ("settings_asked", True), ("masked", False), ("asker", False), ("ask", False),
        ("MaskedLM", False),
    ],
)  # fmt: skip
def test_names_that_leave_out_their_noun_are_found(name, refused):
    assert bool(NOT_A_NOUN.search(name)) == refused


def read_entries(docstring: str) -> list[str] | None:
    """Return the entries of a docstring's ``Args:``, one string each; ``None`` without any."""
    lines = docstring.split("\n")
    head = next((number for number, line in enumerate(lines) if line.strip() == "Args:"), None)
    return None if head is None else read_section(lines, head)


def read_section(lines: Sequence[str], head: int) -> list[str]:
    """Return the entries below the line with a section's name, one string each."""
    outer = len(lines[head]) - len(lines[head].lstrip())
    entries: list[str] = []
    inner = 0
    for line in filter(str.strip, islice(lines, head + 1, None)):
        indent = len(line) - len(line.lstrip())
        if indent <= outer:
            break
        inner = inner or indent
        if indent == inner:
            entries.append(line.strip())
        else:
            entries[-1] += " " + line.strip()
    return entries


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


def find_documented(modules: Iterable[ModuleType]) -> Iterator[Callable[..., object]]:
    """Yield the functions, classes and methods that modules define."""
    for module in modules:
        for member in vars(module).values():
            if getattr(member, "__module__", "") != module.__name__:
                continue
            if inspect.isfunction(member):
                yield member
            elif inspect.isclass(member):
                yield member
                for method in vars(member).values():
                    plain = getattr(method, "__func__", method)
                    if inspect.isfunction(plain):
                        yield plain


def check_arguments(documented: Iterable[Callable[..., object]]) -> tuple[int, list[str]]:
    """Return how many docstrings have an ``Args:`` section, and what is wrong with which."""
    count, problems = 0, []
    for member in documented:
        entries = read_entries(member.__doc__ or "")
        if entries is not None:
            count += 1
            wrong = check_entries(entries, inspect.signature(member).parameters)
            problems += [f"{member.__module__}.{member.__qualname__}: {what}" for what in wrong]
    return count, problems


def test_every_argument_has_one_whole_entry():
    modules = [
        import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
        for file in sorted((ROOT / "cfaug").rglob("*.py"))
        if file.stem not in ("__init__", "__main__") and file.parent.name != "example_recipe"
    ]
    count, problems = check_arguments(find_documented(modules))
    assert not problems, "\n".join(problems)
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
    fragments = [
        f"{file.relative_to(ROOT)}:{entry}"
        for folder in ("cfaug", "benchmarks", "tools")
        for file in sorted((ROOT / folder).rglob("*.py"))
        for entry in find_fragments(file.read_text())
    ]
    assert not fragments, "\n".join(fragments)


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

    b: int = 0


def test_a_class_may_leave_its_bases_arguments_to_them():
    assert check_arguments([A, B]) == (2, [])


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        (["a: the first, and"], "not whole: 'a: the first, and'"),
        (["a: the first,"], "not whole"),
        (["a: the first.", "a: again."], "a has several entries"),
        (["kept: it."], "kept is not an argument"),
        (["kind: it."], "kind is not an argument"),
        (["the first."], "no entry: 'the first.'"),
    ],
)
def test_what_is_wrong_with_entries_is_said(entries, says):
    assert any(
        says in problem for problem in check_entries(entries, inspect.signature(A).parameters)
    )


def test_functions_may_name_all_that_they_take_and_nothing_else():
    def f(x, *rows, y=1, **more):
        """F.

        Args:
            x: it.
            *rows: they.
            z: it.
        """

    _, problems = check_arguments([f])
    assert [problem.split(": ", 1)[1] for problem in problems] == ["z is not an argument"]
