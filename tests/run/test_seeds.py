"""Every setting called seed has one range, and whole numbers have 64 bits."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from cfaug.core.binding import locate
from cfaug.core.errors import UserError
from cfaug.core.validation import accepts, annotation_of
from cfaug.run.api import mix
from cfaug.run.generate import GenerateSettings
from cfaug.run.scripts.evaluate import main as evaluate
from cfaug.run.scripts.generate import main as generate
from cfaug.run.scripts.train import main as train

CONF = Path(__file__).parents[2] / "conf"

COMMANDS = {"train": train, "generate": generate, "evaluate": evaluate}


def settings_called_seed() -> list[tuple[str, str]]:
    """Return the class and name of every setting of ``conf`` that is a seed."""
    targets = {
        target
        for file in CONF.rglob("*.yaml")
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
    found = settings_called_seed()
    assert len(found) > 20
    for target, name in found:
        annotation = annotation_of(locate(target), name)
        assert accepts(0, annotation), target
        assert accepts(2**32 - 1, annotation), target
        for wrong in (-1, 2**32, 10**30, 1.5, True):
            assert not accepts(wrong, annotation), (target, wrong)
    assert not accepts(-1, annotation_of(GenerateSettings, "seed"))


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("train", ["seed=-1"], "seed=-1 should be a whole number from 0 to 4294967294"),
        ("train", ["-m", "seed=range(-2,2)"], "seed=-2 should be a whole number from 0"),
        ("train", ["seed=4294967295"], "seed=4294967295 should be a whole number from 0"),
        ("train", ["data.seed=-1"], "data.seed=-1 should be a whole number from 0 to 4294967295"),
        ("train", ["data.world.seed=-1"], "data.world.seed=-1 should be"),
        ("generate", ["seed=-1"], "seed=-1 should be a whole number from 0 to 4294967295"),
        ("generate", [f"seed={10**30}"], f"seed={10**30} should be a whole number from 0"),
        ("generate", ["recipe=eda", "recipe.editor.seed=-1"], "recipe.editor.seed=-1 should be"),
        ("evaluate", ["seed=-1"], "seed=-1 should be a whole number from 0 to 4294967294"),
        ("evaluate", ["benchmark=matching", "benchmark.seed=-1"], "benchmark.seed=-1 should be"),
        ("evaluate", ["annotate=taxonomy", "annotate.seed=-1"], "annotate.seed=-1 should be"),
        # N19, and its neighbours: numbers beyond what islice, numpy and torch take.
        ("generate", [f"limit={10**21}"], f"limit={10**21} should be a whole number of at least 1"),
        ("generate", [f"limit={10**21}"], "the largest whole number is 9223372036854775807"),
        ("generate", ["limit=1e99"], "limit=1e+99 should be a whole number of at least 1"),
        ("train", [f"data.size={10**30}"], "the largest whole number is 9223372036854775807"),
        ("train", [f"trainer.max_steps={10**19}"], "the largest whole number is"),
        ("train", [f"part={10**20}"], f"part={10**20} should be a whole number"),
        ("train", ["data.workers=1000000000"], "should be a whole number from 0 to 1024"),
        ("train", ["trainer.devices=5000"], "should be a whole number from 1 to 1024"),
    ],
)
def test_a_number_out_of_range_is_refused_with_the_range(
    tmp_path, monkeypatch, capsys, name, words, said
):
    monkeypatch.chdir(tmp_path)
    assert COMMANDS[name](words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_python_refuses_a_negative_seed():
    with pytest.raises(UserError, match="seed=-1 should be a whole number from 0"):
        mix(seed=-1)
