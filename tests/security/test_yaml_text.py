"""YAML of somebody else's: plain values, within limits, by one reader."""

from __future__ import annotations

import ast
import time

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.files import read_yaml
from cfaug.core.safety.yaml_text import parse_yaml
from cfaug.report.records import read_config
from cfaug.settings.arguments import read
from cfaug.settings.choices import check_files
from tests.hygiene import ROOT
from tests.properties import examples

BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{level + 1}: &a{level + 1} [{', '.join([f'*a{level}'] * 10)}]\n" for level in range(10)
)
MERGED = "m0: &m0 {k: v}\n" + "".join(
    f"m{level + 1}: &m{level + 1}\n  <<: [{', '.join([f'*m{level}'] * 10)}]\n" for level in range(9)
)
HOSTILE = {
    "aliases of aliases": (BOMB, "aliases"),
    "merged mappings": (MERGED, "aliases"),
    "one long text repeated": (f"a: &a {'x' * 100_000}\nb: [{'*a, ' * 100}]", "aliases"),
    "a part in itself": ("a: &a [*a]", r"\*a"),
    "brackets": ("[" * 100_000, "levels"),
    "dashes": ("- " * 100_000 + "x", "levels"),
    "levels by aliases": ("a: &a " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 40 + "*a" + "]" * 40,
                          "levels"),
    "a number of base 60": ("a: " + "1:" * 300_000 + "1", "digits"),
    "the same, tagged": ("a: !!int '" + "1:" * 300_000 + "1'", "digits"),
    "a hexadecimal number": ("a: 0x" + "f" * 5000, "digits"),
    "a doubled key": ("a: 1\nb: {c: 1, c: 2}", "'c' is duplicated"),
    "a class": ("a: !!python/object/apply:os.system ['true']", "not valid YAML"),
    "no such day": ("a: 2024-99-99", "not valid YAML"),
    "no truth value": ("a: !!bool 7", "not valid YAML"),
    "an empty number": ("a: !!int ''", "not valid YAML"),
    "two documents": ("a: 1\n---\na: 2", "not valid YAML"),
    "a large file": ("#" * (2**20 + 1), "1,048,576"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_yaml_is_refused_at_once(case):
    text, said = HOSTILE[case]
    began = time.process_time()
    with pytest.raises(UserError, match=said):
        parse_yaml(text, "theirs.yaml")
    assert time.process_time() - began < 5


def test_every_received_file_is_read_by_it(tmp_path):
    for name in ("sweep.yaml", "config.yaml", "prompts.yaml", "conf/recipe/mine.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(BOMB)
    readers = (
        lambda: read([f"sweep={tmp_path / 'sweep.yaml'}", "-m"], "train"),
        lambda: read_config(tmp_path),
        lambda: read_yaml(tmp_path / "prompts.yaml"),
        lambda: check_files([tmp_path / "conf"]),
    )
    for reader in readers:
        with pytest.raises(UserError, match=r"\.yaml.*aliases"):
            reader()


def test_nothing_else_in_the_package_reads_yaml():
    loading = {"load", "safe_load", "load_all", "safe_load_all", "full_load", "unsafe_load"}
    for file in sorted((ROOT / "cfaug").rglob("*.py")):
        if file.name == "yaml_text.py":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            called = isinstance(node, ast.Attribute) and node.attr in loading
            assert not (called and ast.unparse(node.value) in ("yaml", "OmegaConf")), file


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=examples(100), deadline=None)
@given(VALUES)
def test_what_pyyaml_writes_is_read_as_pyyaml_reads_it(value):
    text = yaml.safe_dump(value)
    assert parse_yaml(text, "ours.yaml") == yaml.safe_load(text)


def test_aliases_within_the_limits_are_expanded():
    text = "usual: &usual {lr: 1, eps: 2}\nmine:\n  <<: *usual\n  lr: 3\nlist: &l [1]\nsame: *l\n"
    content = parse_yaml(text, "ours.yaml")
    assert content["mine"] == {"lr": 3, "eps": 2}
    assert content["same"] == [1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1:30", "1:30 as 90"), ("seed: [010]", "010 as 8"), ("a: -1:30:00", "as -5400"),
        ("a: '1:30'", ""), ("a: 10", ""), ("a: 0", ""), ("a: 1_000", ""), ("a: 089", ""),
        ("a: 12:75", ""), ("a: 0.5", ""), ("a: 1_0", "1_0 as 10"), ("a: [-1_0.5]", "as -10.5"),
        ("a: 12_34", "as 1234"), ("a: -12_345_678", ""), ("a: '1_0'", ""), ("a: b_1_0", ""),
    ],
)  # fmt: skip
def test_a_number_of_another_base_is_said(text, said, capsys):
    parse_yaml(text, "theirs.yaml")
    err = capsys.readouterr().err
    assert said in err
    assert bool(said) == ("theirs.yaml" in err)
