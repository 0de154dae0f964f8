"""Old names of settings and classes: answered with names that exist, and read in old files."""

from __future__ import annotations

import shlex
from fnmatch import fnmatch
from importlib import import_module
from importlib.util import find_spec

import pytest
import yaml

from cfaug.core.errors import UserError
from cfaug.core.renames import (
    SETTINGS,
    TARGETS,
    correct_words,
    explain_words,
    old_key,
    update_flat,
    update_record,
    update_settings,
)
from cfaug.run.arguments import flatten, read, sweep_overrides
from cfaug.run.compose import compose_jobs
from tests.test_conf import COMMANDS, CONF, options_of

ROWS = [(script, old, new) for script, rows in SETTINGS.items() for old, new in rows.items()]


def exists(dotted):
    module, _, name = dotted.rpartition(".")
    try:
        found = import_module(module)
    except ImportError:
        return False
    is_package = hasattr(found, "__path__")
    return hasattr(found, name) or (is_package and find_spec(dotted) is not None)


@pytest.mark.parametrize(("old", "new"), TARGETS.items())
def test_every_renamed_class_exists_by_its_new_name_only(old, new):
    assert exists(new)
    assert not exists(old)


@pytest.mark.slow
@pytest.mark.parametrize("script", SETTINGS)
def test_every_renamed_setting_exists_by_its_new_name_only(script):
    known = set()
    for option in (None, *options_of(script)):
        words = [option] if option else []
        if script == "evaluate" and option and option.startswith("data="):
            words += ["weights=zoo:clip-0", "benchmark=heldout"]  # which read all of it
        [(config, _)] = compose_jobs(CONF, script, words, multirun=False, command=COMMANDS[script])
        known |= {key for key in flatten(config) if "_target_" not in key}
    assert len(known) > 20
    for old, new in SETTINGS[script].items():
        group, _, key = new.partition("=")[0].rpartition("@")
        assert not group or (CONF / group / f"{new.partition('=')[2]}.yaml").is_file()
        assert any(fnmatch(one, key) or fnmatch(one, f"{key}.*") for one in known), new
        assert "=" in old or old not in known


@pytest.mark.parametrize(("script", "old", "new"), ROWS)
def test_an_old_name_is_answered_with_the_corrected_command(script, old, new):
    value = "" if "=" in old else "=7"
    with pytest.raises(UserError) as caught:
        read(["-m", "seed=1", f"+{old}{value}"], script)
    assert f"{old}{value} is now " in str(caught.value).replace("+", "")
    sign = "" if "@" in new else "+"
    command = shlex.join(["python", f"{script}.py", "-m", "seed=1", f"{sign}{new}{value}"])
    assert str(caught.value).endswith(command)


@pytest.mark.parametrize(
    ("script", "word", "corrected"),
    [
        ("generate", "draws={p:[0, .2],cfg: 3}", "recipe.draws.p2p_threshold=[0, .2] "
         "recipe.draws.guidance_scale=3"),
        ("generate", "scorer={device:cpu}", "recipe.scorers.scorer.device=cpu"),
        ("generate", "text={filters:{x:{a:1}}}", "recipe.editor.filters.x.a=1"),
        ("train", "data={withheld:0.3,size:5}", "data.counterfactual_holdout=0.3 data.size=5"),
        ("train", "++data={plan:all}", "plan@data.plan=coco_all"),
        ("train", "data.plan=medium,all", "plan@data.plan=coco_medium,coco_all"),
        ("train", "+data.plan=medium", "plan@data.plan=coco_medium"),
        ("generate", "on_error=fail,publish", "publish_incomplete=false,true"),
        ("generate", "--on_error=publish", "--publish_incomplete=true"),
        ("generate", "~on_error", "~publish_incomplete"),
        ("evaluate", "benchmark.folders.mine.withheld=0.2",
         "benchmark.folders.mine.counterfactual_holdout=0.2"),
        ("evaluate", "benchmark.world={mine:{withheld:0.2}}",
         "benchmark.world.mine.counterfactual_holdout=0.2"),
    ],
)  # fmt: skip
def test_every_form_of_a_word_is_corrected(script, word, corrected):
    assert " ".join(correct_words([word], script)) == corrected
    assert f"is now {corrected.lstrip('-')}." in explain_words([word], script)


@pytest.fixture
def conf(tmp_path):
    """A user's copy of conf/, to which files can be added."""
    for file in CONF.rglob("*.yaml"):
        copy = tmp_path / "conf" / file.relative_to(CONF)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.symlink_to(file)
    return tmp_path / "conf"


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("zoo/mine", "name: mine\nchoose: null\n", "zoo.choose is now zoo.ranker"),
        (
            "recipe/mine",
            "# @package _global_\ndraws: {p: [0.1, 0.9]}\n",
            "draws.p is now recipe.draws.p2p_threshold",
        ),
        ("recipe/mine", "editor: null\n", "recipe=mine: recipe.name is missing"),
    ],
)
def test_an_old_file_that_cannot_be_resolved_is_answered(conf, file, text, said):
    (conf / f"{file}.yaml").write_text(text)
    words = [file.replace("/", "=")]
    with pytest.raises(UserError) as caught:
        compose_jobs(conf, "generate", words, multirun=False, command=COMMANDS["generate"])
    assert said in str(caught.value)


def test_two_recipes_at_once_are_answered(conf):
    (conf / "recipe" / "mine.yaml").symlink_to(CONF / "recipe" / "coco_cf.yaml")
    words = ["recipe=[coco_cf,mine]"]
    with pytest.raises(UserError, match=r"mine\]: choose one of (\w+, )*mine"):
        compose_jobs(conf, "generate", words, multirun=False, command=COMMANDS["generate"])


@pytest.mark.parametrize(
    "word", ["data={size:5}", "data={}", "data={", "arm={p}", "data.plan=medium,mine"]
)
def test_braces_and_lists_without_old_names_are_left_alone(word):
    assert correct_words([word], "train") == [word]


def test_a_command_without_old_names_is_left_alone():
    words = ["--multirun", "data.cf_ratio=0,1", "-m", "arm=pack", "~tuning"]
    assert correct_words(words, "train") == words
    assert explain_words(words, "train") is None


def test_a_class_named_by_hand_is_answered():
    with pytest.raises(UserError, match=r"--data\._target_=cfaug\.data\.mixture\.settings\.D"):
        read(["--data._target_=cfaug.data.settings.DataSettings"], "train")


def test_a_sweep_file_with_an_old_name_is_named(tmp_path):
    file = tmp_path / "sweep.yaml"
    parameters = {"seed": {"values": [1, 2]}, "data.withheld": {"value": 0.3}}
    file.write_text(
        yaml.safe_dump({"program": "train.py", "method": "grid", "parameters": parameters})
    )
    with pytest.raises(UserError, match=r"sweep\.yaml: .*data\.counterfactual_holdout=0\.3"):
        sweep_overrides(file, "train")


def test_a_configuration_file_with_an_old_name_is_answered(conf):
    mine = conf / "experiment" / "mine.yaml"
    mine.write_text("# @package _global_\ndata: {withheld: 0.3}\npack: true\n")
    words = ["experiment=mine"]
    with pytest.raises(UserError) as caught:
        compose_jobs(conf, "train", words, multirun=False, command=COMMANDS["train"])
    assert "data.withheld is now data.counterfactual_holdout" in str(caught.value)
    assert "pack is now share_image_cache" in str(caught.value)
    mine.write_text("# @package _global_\ndata: {plan: medium}\n")
    with pytest.raises(UserError, match=r'plan: medium is now "override /plan@data.plan: coco_me'):
        compose_jobs(conf, "train", words, multirun=False, command=COMMANDS["train"])
    mine.write_text("# @package _global_\nmodel: {_target_: cfaug.data.settings.DataSettings}\n")
    with pytest.raises(UserError, match=r"model\._target_: cfaug\.data\.settings\.DataSettings is"):
        compose_jobs(conf, "train", words, multirun=False, command=COMMANDS["train"])


def test_settings_of_an_old_run_are_read_by_their_new_names():
    config = {
        "data": {
            "_target_": "cfaug.data.settings.DataSettings",
            "withheld": 0.3,
            "world": {"_target_": "cfaug.shapescapes.WorldSettings"},
        },
        "pack": False,
        "seed": 1,
    }
    record = {"state": "done", "identity": flatten(config), "by_seed": {"data.withheld": "x"}}
    updated = update_settings(config, "train")
    assert updated == {
        "data": {
            "_target_": "cfaug.data.mixture.settings.DataSettings",
            "counterfactual_holdout": 0.3,
            "world": {"_target_": "cfaug.shapescapes.WorldSettings"},
        },
        "share_image_cache": False,
        "seed": 1,
    }
    found = update_record(record)
    assert found["identity"] == flatten(updated)
    assert found["by_seed"] == {"data.counterfactual_holdout": "x"}
    assert update_flat(flatten(updated), "train") == flatten(updated)
    assert old_key("data.counterfactual_holdout", "train") == "data.withheld"


@pytest.mark.parametrize(
    "text",
    [
        "&a {data: *a}",
        "data: &a [*a, {_target_: &b {x: *b}}]",
        "data: 3",
        "data: {withheld: [1]}\nbenchmark: []",
        "x: " + "[" * 40 + "]" * 40,
    ],
)
def test_settings_that_hold_anything_are_walked_once(text):
    update_settings(yaml.safe_load(text), "train")


def test_settings_that_multiply_are_walked_once():
    text = "a0: &a0 [x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40)
    )
    assert update_settings(yaml.safe_load(text), "train")["a0"] == ["x"]
