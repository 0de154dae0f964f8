"""What classes declare of their settings: complete, on the page, in --help and as a JSON Schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, is_typeddict

import pytest
import yaml
from annotated_types import Interval
from jsonschema import Draft202012Validator

from cfaug.core.annotations import annotation_of, base_of, plain_defaults
from cfaug.core.targets import TARGET, locate
from cfaug.run.list_settings import class_of, list_parts, list_settings, main, schema
from cfaug.settings.declarations import declarations, meanings_of, schema_of
from cfaug.settings.read_if import ReadIf
from cfaug.settings.settings_files import find_settings, settings_folders
from cfaug.settings.unread import nodes_of
from tests.files_of_settings import is_whole, settings_file, settings_files
from tests.run.conftest import COMMANDS, compose
from tests.scripts import ROOT

PAGE = ROOT / "docs" / "settings.md"


@dataclass(frozen=True)
class Base:
    """A class.

    Args:
        share: the share that is kept: all
            of it by default.

    Raises:
        UserError: if it is invalid.
    """

    share: Annotated[float, Interval(ge=0, le=1)] = 1.0


@dataclass(frozen=True)
class Sampled(Base):
    """A class of another one."""

    order: Literal["given", "shuffled"] | None = "given"
    """The order of the items; ``None`` sorts them."""
    seed: Annotated[int, ReadIf({"order": ("shuffled",)})] = 3
    """The seed of ``order``."""


def test_a_setting_is_declared_once_and_said_everywhere():
    share, order, seed = declarations(Sampled)
    assert (share.name, share.default) == ("share", "1.0")
    assert share.values == "a number from 0 to 1"
    assert share.meaning == "the share that is kept: all of it by default"
    assert order.values == "given, shuffled or null"
    assert order.meaning == "The order of the items; null sorts them"
    assert seed.read_if == "with order=shuffled"
    properties = schema_of(Sampled)["properties"]
    assert properties["seed"]["description"] == "The seed of order. Read with order=shuffled"
    good = [{"share": 0.5}, {"order": None}, {"order": "shuffled", "seed": 4}, {"seed": "${seed}"}]
    wrong = [{"share": 1.5}, {"order": "sorted"}, {"seed": "x"}, {"sed": 3}, {"seed": 1.5}]
    validator = Draft202012Validator(schema_of(Sampled))
    assert [validator.is_valid(node) for node in good + wrong] == [True] * 4 + [False] * 5


@pytest.fixture(scope="module")
def parts():
    return list_parts(settings_folders())


def test_every_setting_of_every_shipped_class_says_what_it_means(parts):
    lacking = {
        f"{part.kind.__module__}.{part.kind.__qualname__}": names
        for part in parts
        if (names := [s.name for s in declarations(part.kind) if not s.meaning])
    }
    assert lacking == {}


@pytest.mark.skipif(
    not is_whole(), reason="a paper or a world is away, whose settings the page has"
)
def test_the_page_is_that_of_the_classes():
    message = "docs/settings.md is out of date: run python -m cfaug settings > docs/settings.md"
    assert PAGE.read_text(encoding="utf-8") == list_settings([]) + "\n", message


def nodes(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every node of composed settings that names a class."""
    if isinstance(value, Mapping):
        if TARGET in value and "_partial_" not in value:
            yield value
        for item in value.values():
            yield from nodes(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from nodes(item)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("train", []),
        ("train", ["model=clip_vit_b32", "tuning=lora", "loss=pair_aware", "trainer=paper"]),
        ("generate", []),
        ("generate", ["recipe=photo_edits", "zoo=paper", "data.source=x"]),
        ("evaluate", ["weights=zoo:clip-0", "benchmark=stress", "benchmark.data=x"]),
        ("annotate", ["annotate=export", "pairs=x"]),
    ],
)
def test_the_schema_accepts_what_composes_and_refuses_a_slip(parts, command, words):
    whole = schema(parts)
    Draft202012Validator.check_schema(whole)
    known = whole["$defs"]
    tried = 0
    for node in nodes(compose(command, *words)):
        kind = known.get(node[TARGET])
        if kind is None:
            continue
        validator = Draft202012Validator({**kind, "$defs": known})
        plain = json.loads(json.dumps(node))
        assert [error.message for error in validator.iter_errors(plain)] == []
        slipped = {**plain, "no_such_setting": 1}
        assert [error.message for error in validator.iter_errors(slipped)] != []
        assert Draft202012Validator(whole).is_valid({"a": [plain]})
        assert not Draft202012Validator(whole).is_valid({"a": [slipped]})
        tried += 1
    assert tried > 2


def test_a_part_of_the_page_is_printed_and_a_slip_answered(capsys):
    assert main(["benchmark=retrieval"]) == 0
    said = capsys.readouterr().out
    assert "| `captions_per_image` |" in said
    assert "read with data=FOLDER and finished runs" in said
    assert "# Settings\n" not in said
    assert main(["benchmark=retreival"]) == 2
    assert "did you mean benchmark=retrieval?" in capsys.readouterr().err
    assert main(["evaluate", "--json"]) == 0
    assert (
        "cfaug.run.evaluate_settings.EvaluateSettings"
        in json.loads(capsys.readouterr().out)["$defs"]
    )


def test_the_classes_of_ones_own_are_described(tmp_path, monkeypatch, capsys):
    (tmp_path / "own_benchmark.py").write_text(
        "from dataclasses import dataclass\n\n\n@dataclass\nclass Mine:\n"
        '    """A benchmark of mine."""\n\n    depth: int = 2\n    """how deep it looks"""\n'
    )
    (tmp_path / "benchmark").mkdir()
    (tmp_path / "benchmark/mine.yaml").write_text("_target_: own_benchmark.Mine\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["--config-dir", str(tmp_path), "benchmark=mine"]) == 0
    assert "| `depth` | a whole number | `2` | how deep it looks |" in capsys.readouterr().out


def test_every_choice_of_the_tool_is_on_the_page(parts):
    named = {place.partition(" (")[0] for part in parts for place in part.places}
    for group in ("benchmark", "model", "trainer", "optim", "loss", "tuning", "logger"):
        for file in settings_files(group):
            if find_settings(settings_folders(), f"{group}/{file.stem}") is None:
                continue
            text = yaml.safe_load(settings_file(f"{group}/{file.stem}").read_text()) or {}
            ours = str(text.get(TARGET, "")).startswith("cfaug.")
            assert not ours or f"{group}={file.stem}" in named, file


@pytest.mark.parametrize(
    "words",
    [
        "train", "train model=clip_vit_b32 tuning=lora", "train task=vqa", "generate",
        "generate recipe=photo_edits zoo=paper", "evaluate weights=zoo:clip-0 benchmark=ood",
        "generate recipe=eda recipe.selection={_target_:cfaug.imaging.select.Selection}",
    ],
)  # fmt: skip
def test_every_setting_of_a_class_is_in_the_tree_whatever_its_file_holds(words):
    command, *typed = words.split()
    config = compose(command, *typed)
    nodes = [(place, locate(node[TARGET]), node) for place, node in nodes_of(config)]
    assert len(nodes) > 3
    for place, kind, node in [("", COMMANDS[command], config), *nodes]:
        assert plain_defaults(kind).keys() - {*node, "preset"} == set(), place


SOURCE = re.compile(r"section|\bTable|[A-C]\.\d|appendix|et al|paper|docs/|20\d\d", re.IGNORECASE)
"""What a comment about a value may name: its source."""
OTHERS = {"benchmark/stress.yaml", "benchmark/ood.yaml"}
"""Files with a comment on how to type a longer value."""


def settings_in(node: yaml.Node | None, kind: Any) -> Iterator[tuple[str, yaml.Node, Any]]:
    """Yield (setting, its value, the class that takes it; ``None`` if it is unknown)."""
    if not isinstance(node, yaml.MappingNode):
        return
    target = next((value.value for key, value in node.value if key.value == TARGET), None)
    kind = kind if target is None else locate(target)
    for key, value in node.value:
        yield key.value, value, kind
        inner = None if kind is None else base_of(annotation_of(kind, key.value))
        yield from settings_in(value, inner if is_typeddict(inner) else None)


PINNED = {"optim/paper.yaml", "trainer/paper.yaml", "data/entailment.yaml"}
"""Files with numbers that stay when a default changes, or that another file has changed."""


@pytest.mark.parametrize(
    "group",
    ["trainer", "data", "optim", "loss", "tuning", "logger", "engine", "comparison", "benchmark",
     "model", "annotate"],
)  # fmt: skip
def test_no_file_says_again_what_the_class_says(group):
    for file in sorted((ROOT / "conf" / group).rglob("*.yaml")):
        if f"{group}/{file.name}" in OTHERS:
            continue
        lines = file.read_text(encoding="utf-8").splitlines()
        name = file.relative_to(ROOT / "conf").with_suffix("").as_posix()
        target = class_of(name, settings_folders())
        top = yaml.compose("\n".join(lines), yaml.SafeLoader)
        for key, value, kind in settings_in(top, None if target is None else locate(target)):
            line = lines[value.start_mark.line]
            comment = line.partition(" #")[2]
            has_source = SOURCE.search(comment)
            if kind is not None and meanings_of(kind).get(key):
                assert not comment or has_source, f"{file}: {line}"
            default = {} if kind is None else plain_defaults(kind)
            if key in default and not has_source and f"{group}/{file.name}" not in PINNED:
                assert yaml.safe_load(yaml.serialize(value)) != default[key], f"{file}: {line}"
