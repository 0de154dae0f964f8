"""Values of the wrong type or range are refused where they enter, before anything is done."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, TypedDict

import pytest

from cfaug.core.annotations import annotation_of
from cfaug.core.errors import UserError
from cfaug.core.fitting import bind
from cfaug.core.targets import locate
from cfaug.core.validation import Node, Positive, accepts
from cfaug.run.evaluate import main as evaluate
from cfaug.run.generate import main as generate
from cfaug.run.generate_settings import GenerateSettings
from cfaug.run.train import main as train
from cfaug.settings.settings_files import settings_folders
from tests.files_of_settings import is_whole
from tests.run.conftest import compose, refusal

if TYPE_CHECKING:
    from cfaug.data.index import Index

composed = partial(compose, "train")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("off", False), ("NO", False), ("false", False), ("on", True), ("Yes", True),
    ],
)  # fmt: skip
def test_yes_and_no_are_booleans_wherever_one_is_wanted(typed, meant):
    config = composed(f"overwrite={typed}", f"data.pairs_in_batch={typed}")
    assert config["overwrite"] is meant
    assert config["data"]["pairs_in_batch"] is meant


@pytest.mark.parametrize("typed", ["007", "1e3", "1_000", "no"])
def test_a_name_is_the_text_that_was_typed(typed):
    config = composed(f"name={typed}", f"arm={typed}")
    assert (config["name"], config["arm"]) == (typed, typed)


def test_a_number_in_a_file_is_a_name_too():
    assert composed("name=${seed}")["name"] == "0"
    assert composed('name="2024"')["name"] == "2024"
    assert composed("trainer.precision=32")["trainer"]["precision"] == "32"


def test_whole_numbers_stay_what_they_are_where_any_number_will_do():
    share = composed("data.counterfactual_holdout=0")["data"]["counterfactual_holdout"]
    assert (share, type(share)) == (0, int)  # an identity is the hash of what is written


@pytest.mark.slow
def test_one_text_is_a_list_of_it_where_there_may_be_several():
    assert composed("data.world.edits=subject")["data"]["world"]["edits"] == ["subject"]
    assert composed("data.world.edits=[subject,colour]")["data"]["world"]["edits"][1] == "colour"


class _Options(TypedDict):
    size: int | None
    how: Literal["a", "b"]


def _command(
    *,
    flag: bool,
    parts: Mapping[str, Node | None],
    options: _Options,
    several: Sequence[str] | str,
    pair: tuple[float, float],
    index: Index | None = None,
) -> None: ...


RIGHT = {
    "flag": "on",
    "parts": {"x": {"_target_": "cfaug.core.types.Edit", "kind": 5, "before": "b", "after": "c"}},
    "options": {"size": 1, "how": "a"},
    "several": ["a", 5],
    "pair": [0, 0.5],
}


def test_every_kind_of_annotation_is_followed():
    bound = bind(RIGHT, _command, {"parts.x.kind": "5"})
    assert bound["flag"] is True
    assert bound["parts"]["x"]["kind"] == "5"
    assert bound["several"] == ["a", "5"]
    assert bound["pair"] == [0, 0.5]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"options": {"size": 1}}, "options.how is missing"),
        ({"options": {"size": 1, "how": "c"}}, "options.how=c: choose from a, b"),
        ({"options": {"size": 1, "how": "a", "hwo": 1}}, "nothing takes options.hwo: did"),
        ({"parts": {"x": {"kind": 1}}}, "parts.x={kind:1} lacks _target_"),
        (
            {"experiment": {"flag": True}},
            r"nothing takes experiment: a file of .*@package _global_",
        ),
        ({"parts": {"x": 5}}, "parts.x=5 should be settings of its own"),
        ({"several": [["a"]]}, r"several\[0\]=\[a\] should be a text"),
        ({"pair": [1, 2, 3]}, r"pair=\[1,2,3\] should be a list of 2 numbers"),
        ({"pair": [1, "x"]}, r"pair\[1\]=x should be a number"),
        ({"index": "x"}, "index=x should be settings of its own"),
        ({"flag": None}, "flag=null should be true or false"),
    ],
)
def test_what_does_not_fit_is_named(wrong, said):
    with pytest.raises(UserError, match=said):
        bind(RIGHT | wrong, _command)


def test_an_inherited_argument_is_read_where_it_was_declared():
    from cfaug.models.specs import BridgeTower

    assert annotation_of(BridgeTower, "max_length") == Positive | None


COMMANDS = {"train": train, "generate": generate, "evaluate": evaluate}
FACTORS = "number.* from 0 to 1 .*such as wise_ft=\\[0,0.25,0.5,0.75,1\\]"


@pytest.mark.parametrize(
    ("name", "word", "said"),
    [
        ("evaluate", "wise_ft=2", FACTORS),
        ("evaluate", "wise_ft=[0,x]", rf"wise_ft\[1\]=x .*{FACTORS}"),
        ("evaluate", "wise_ft=[0,0.0]", "wise_ft=.0,0.0.: .* each once, such as wise_ft="),
        ("evaluate", "threads=0", "from 1 to 1024 or null .all cores."),
        ("train", "parallel=0", "from 1 to 1024 .runs at once."),
        ("train", "image_cache_mib=0", "at least 1 .MiB of decoded images."),
        ("evaluate", "forgetting_threshold=2", "0 to 1 .such as 0.02 for two .* null .no warning."),
        ("generate", "limit=0", "at least 1 or null .all."),
        ("train", "seed=-1", "seed=-1 should be a whole number from 0 to 4294967294"),
        ("train", "-m seed=range(-2,2)", "seed=-2 should be a whole number from 0"),
        ("train", "data.seed=-1", "seed=-1 should be a whole number from 0 to 4294967295"),
        ("generate", "seed=-1", "seed=-1 should be a whole number from 0 to 4294967295"),
        ("generate", "recipe=eda recipe.editor.seed=-1", "seed=-1 should be"),
        ("evaluate", "seed=-1", "seed=-1 should be a whole number from 0 to 4294967294"),
        # N19, and its neighbours: numbers beyond what islice, numpy and torch take.
        ("generate", f"limit={10**21}", "the largest whole number is 9223372036854775807"),
        ("generate", "limit=1e99", r"limit=1e\+99 should be a whole number of at least 1"),
        ("train", f"data.size={10**30}", "the largest whole number is 9223372036854775807"),
        # In a dry run: no process starts if the bound is lost.
        ("train", "dry_run=true data.workers=1025", "should be a whole number from 0 to 1024"),
    ],
)
def test_a_refusal_says_what_the_values_mean(tmp_path, monkeypatch, name, word, said):
    monkeypatch.chdir(tmp_path)
    words = word.split()
    error = refusal(COMMANDS[name], words)
    assert error.startswith(f"error: {words[-1].partition('=')[0]}")
    assert re.search(said, error), error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def settings_called_seed() -> list[tuple[str, str]]:
    """Return the class and name of every setting of ``conf`` that is a seed."""
    targets = {
        target
        for folder in settings_folders()
        for file in folder.rglob("*.yaml")
        for target in re.findall(r"_target_: *(cfaug[\w.]+)", file.read_text())
    }
    return sorted(
        (target, name)
        for target in targets
        for name in inspect.signature(locate(target)).parameters
        if re.fullmatch(r"(\w+_)?seed", name)
    )


def test_no_class_of_the_settings_takes_a_seed_beyond_the_range():
    """Section 4: seed=-1 was a run of its own, and data.seed, world and stage seeds likewise."""
    seeds = settings_called_seed()
    assert len(seeds) > (20 if is_whole() else 10)
    for target, name in seeds:
        annotation = annotation_of(locate(target), name)
        assert accepts(0, annotation), target
        assert accepts(2**32 - 1, annotation), target
        for wrong in (-1, 2**32, 10**30, 1.5, True):
            assert not accepts(wrong, annotation), (target, wrong)
    assert not accepts(-1, annotation_of(GenerateSettings, "seed"))
