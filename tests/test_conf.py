"""Every shipped YAML: its targets bind to their signatures, and every experiment composes."""

from __future__ import annotations

import copy
import functools
import inspect
import math
import operator
import re
from itertools import product, zip_longest
from pathlib import Path
from typing import get_args

import pytest
import yaml

from cfaug.core.errors import UserError
from cfaug.core.fitting import bind
from cfaug.core.targets import OF_NODES, locate
from cfaug.generate.recipe import Stage
from cfaug.planning.build import SETTINGS_OF_A_RUN, build, build_untrusted
from cfaug.run.generate import build_recipe
from cfaug.run.generate_settings import GenerateSettings
from cfaug.settings.arguments import flatten, sweep_overrides
from cfaug.settings.choices import names_itself, options_in
from cfaug.settings.compose import compose_jobs
from cfaug.settings.settings_files import (
    find_settings,
    find_sweep,
    settings_folders,
    sweep_files,
)
from tests.contributed import contributed
from tests.files_of_settings import settings_file, settings_files
from tests.run.conftest import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
CONF = ROOT / "conf"
FILES = sorted(
    path.relative_to(CONF.parent).as_posix()
    for folder in settings_folders()
    for path in folder.rglob("*.yaml")
)
EXPERIMENTS = sorted(set(options_in("train")("experiment")) - {"null"})
ELSEWHERE = contributed("recipes", "ARMS_ELSEWHERE")
"""Arms of an experiment whose runs belong to another one."""
SWEEPS = sorted(path.name for path in sweep_files())


def _compose(name, *overrides, multirun=False):
    return compose_jobs(name, overrides, multirun=multirun, command=COMMANDS[name])


@pytest.mark.parametrize("file", FILES)
def test_every_target_binds(file):
    tree = yaml.safe_load((ROOT / file).read_text()) or {}
    tree.pop("defaults", None)
    for target, node in _targets(tree):
        taken = inspect.signature(locate(target)).parameters
        assert set(node) - {"_target_"} <= set(taken)
        assert "weights" in taken or not {"revision", "name_or_path", "pretrained"} & set(taken)


def _targets(tree):
    """Yield every node of a file with its target; what a file takes from others is not there."""
    if isinstance(tree, dict):
        if "_target_" in tree:
            yield tree["_target_"], tree
        for value in tree.values():
            yield from _targets(value)


SETTINGS = "cfaug.data.mixture.settings.RatioData"
ANY_TYPE = (
    "by_seed.", "data.world", "table.columns", "table.rows", "table.controls", "table.worlds",
)  # fmt: skip
"""Settings of which a constructor itself says what they may hold."""
CHECKED: set[str] = set()
"""Settings whose type a test of this process checked: many options have the same ones."""


def check_types(name, config):
    """Refuse what fits no setting, wherever it stands: no annotation is skipped."""
    for key, value in flatten(config).items():
        if key in CHECKED or key.startswith(ANY_TYPE) or value == {} or "_target_" in key:
            continue
        CHECKED.add(key)
        wrong = copy.deepcopy(config)
        *parents, last = key.split(".")
        functools.reduce(dict.__getitem__, parents, wrong)[last] = [{"no": "setting"}]
        with pytest.raises(UserError, match=re.escape(key)):
            bind(wrong, COMMANDS[name])


def check_every_node(config):
    """Bind every node of a composed configuration to what it names; ``???`` is no value."""
    assert "???" not in flatten(config).values()
    nodes = list(_targets(config))
    for target, node in nodes:
        arguments = {key: value for key, value in node.items() if key not in OF_NODES}
        signature = inspect.signature(locate(target))
        (signature.bind_partial if node.get("_partial_") else signature.bind)(**arguments)
    return nodes


def options_of(script):
    """Yield ``group=option`` for every option of every group of a script."""
    for entry in yaml.safe_load((CONF / f"{script}.yaml").read_text())["defaults"]:
        if isinstance(entry, dict):
            for file in settings_files(next(iter(entry))):
                if file.parent.name != "experiment" or names_itself(file):
                    yield f"{file.parent.name}={file.stem}"


TOGETHER = {
    "train": ("model", "optim", "tuning", "trainer", "logger", "callbacks"),
    "evaluate": ("benchmark", "model", "data"),
}
"""Groups that know nothing of each other: the first options of all are composed at once."""
READERS = {
    "evaluate": {"data": ["weights=zoo:clip-0"]},
    "annotate": {"world": ["annotate=export", "pairs=shapescapes:counterfactual"]},
}
"""{command: {group: what reads its options where nothing does by default}}."""
REQUIRED = {"table": ["table=wise_ft"], "annotate": ["annotate=export"]}
"""{command: the words without which it does nothing}."""


def list_rows(script):
    """Return options of a script that are composed together, so that every one is composed once.

    An experiment and a recipe have tests of their own; of tables that differ in their settings
    alone the first, since ``tests/contracts/test_tables.py`` builds each.
    """
    groups, kinds = {}, set()
    for option in options_of(script):
        group, _, stem = option.partition("=")
        if group == "table":
            kind = yaml.safe_load(settings_file(f"table/{stem}").read_text()).get("_target_")
            if kind in kinds:
                continue
            kinds.add(kind)
        if group not in ("experiment", "recipe"):
            groups.setdefault(group, []).append(option)
    joined = [groups.pop(name) for name in TOGETHER.get(script, ())]
    rows = [list(filter(None, row)) for row in zip_longest(*joined)]
    return rows + [[option] for many in groups.values() for option in many]


def _marked_rows():
    """Give every row of every script; tables are slow, since quicker tests build each of them."""
    for name in COMMANDS:
        for row in list_rows(name):
            marks = [pytest.mark.slow] if row[0].startswith("table=") else []
            yield pytest.param(name, row, marks=marks, id=f"{name}-{','.join(row)}")


@pytest.mark.parametrize(("name", "row"), _marked_rows())
def test_every_option_of_every_group_composes_and_its_types_are_checked(name, row):
    known = READERS.get(name, {})
    readers = [word for option in row for word in known.get(option.partition("=")[0], ())]
    [(config, _)] = _compose(name, *row, *readers)
    assert check_every_node(config)
    check_types(name, config)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_missing_required_setting_is_refused_wherever_it_is_missing(name):
    """What a YAML forgets is found when settings are composed, not when a run is under way."""
    [(config, _)] = _compose(name, *REQUIRED.get(name, ()))
    count = 0
    for path, target in [((), COMMANDS[name]), *_places(config)]:
        for argument, parameter in inspect.signature(target).parameters.items():
            wrong = copy.deepcopy(config)
            node = functools.reduce(operator.getitem, path, wrong)
            if (
                parameter.default is not parameter.empty
                or argument not in node
                or node.get("_partial_")
            ):
                continue
            del node[argument]
            dotted = re.escape(".".join([*map(str, path), argument]).replace(".[", "["))
            with pytest.raises(UserError, match=rf"^{dotted} is missing"):
                bind(wrong, COMMANDS[name])
            count += 1
    assert count > 3


def _places(config, path=()):
    """Yield what every node binds to, after the keys that lead there."""
    if "_target_" in config:
        yield path, locate(config["_target_"])
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _places(value, (*path, key))


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_composes_and_builds(experiment):
    [(config, _)] = _compose("train", f"experiment={experiment}")
    assert config["name"] == ELSEWHERE.get(experiment, experiment.split("/")[0])
    assert check_every_node(config)
    check_types("train", config)
    for group in ("data", "model", "optim", "trainer", "logger"):
        assert build(config[group]) is not None


@pytest.mark.slow
@pytest.mark.parametrize("sweep", SWEEPS)
def test_every_sweep_is_a_wandb_grid_and_a_multirun(sweep):
    content = yaml.safe_load(find_sweep(sweep).read_text())
    program = content["program"].removesuffix(".py")
    # The module, not the program: there is no train.py where cfaug is installed.
    command = ["${env}", "${interpreter}", "-m", "cfaug", program, "${args_no_hyphens}"]
    assert content["command"] == command
    points = {key: len(spec.get("values", [0])) for key, spec in content["parameters"].items()}
    assert math.prod(points.values()) > 1
    words = sweep_overrides(find_sweep(sweep))
    assert len(words) == len(points)
    # Composing takes a while a job; one seed tells as much as all, and each experiment composes.
    assert set(content["parameters"].get("experiment", {}).get("values", [])) <= set(EXPERIMENTS)
    first = [w.split(",")[0] if w.startswith(("seed=", "experiment=")) else w for w in words]
    jobs = _compose(program, *first, multirun=True)
    others = points.keys() - {"seed", "experiment"}
    assert len(jobs) == math.prod(points[key] for key in others)


@pytest.mark.slow
def test_the_clear_arm_of_demo_full_differs_in_the_weather_alone():
    """What is generated for ``generated_clear`` is what ``generated`` has, but for the weather."""
    made = {}
    for name in ("demo_full_generate", "demo_full_generate_clear"):
        words = sweep_overrides(ROOT / "sweeps" / f"{name}.yaml")
        one_seed = [w.split(",")[0] if w.startswith("data.world.seed=") else w for w in words]
        ((made[name], _),) = _compose("generate", *one_seed, multirun=True)
    usual, clear = (flatten(made[name]) for name in made)
    changed = {key for key in usual.keys() | clear.keys() if usual.get(key) != clear.get(key)}
    assert {key for key in changed if not key.startswith("recipe.postprocess")} == {"paths.shards"}
    assert usual["recipe.postprocess._target_"] == "cfaug.worlds.shapescapes.drawing.Weather"
    assert clear["recipe.postprocess"] is None
    ((arm, _),) = _compose("train", "experiment=demo_full/generated_clear", "seed=107")
    assert (
        arm["data"]["counterfactual"] == clear["paths.shards"] == "shards/generated_clear/world-108"
    )


RECIPES = sorted(file.stem for file in settings_files("recipe"))
ZOOS = sorted(file.stem for file in settings_files("zoo"))
LIKE_PAPER = ("flux2_klein", "sd35")
"""Zoos that differ from the paper's in their image model: recipes with a file for it are tried."""
WHOLE = {
    "substitution": ("shapescapes", "paper"),
    "photo_edits": ("shapescapes", "paper"),
    "photo_edits_oracle": ("shapescapes",),
    "fixed_edit": ("shapescapes", "paper"),
    **contributed("recipes", "WHOLE"),
}
"""{recipe: zoos that have every part of it}."""
OF_PHOTOS = {"photo_edits", "fixed_edit", *contributed("recipes", "OF_PHOTOS")}
PHOTO_EDITOR = "recipe.image_editor='${zoo.photo_editor}'"
IMAGE_SERVER = "recipe.image_editor='${zoo.image_server}'"


def _recipes():
    """Give every recipe with every zoo; all but the paper's are slow."""
    for recipe, zoo in product(RECIPES, ZOOS):
        if (
            zoo not in LIKE_PAPER
            or find_settings(settings_folders(), f"recipe/{recipe}/{zoo}") is not None
        ):
            yield pytest.param(recipe, zoo, marks=[] if zoo == "paper" else [pytest.mark.slow])


@pytest.mark.parametrize(("recipe", "zoo"), _recipes())
def test_every_recipe_builds_with_every_zoo_that_has_its_parts(recipe, zoo):
    [(config, _)] = _compose("generate", f"recipe={recipe}", f"zoo={zoo}")
    assert check_every_node(config)
    check_types("generate", config)
    lacking = [role for role, node in config["zoo"].items() if node is None]
    for stage in get_args(Stage):
        try:
            built = build_recipe(GenerateSettings(**{**config, "stage": stage}))
        except UserError as error:
            assert lacking
            assert zoo not in WHOLE.get(recipe, ())
            assert (recipe, zoo, stage) != ("substitution", "captions", "captions")
            assert f"zoo={zoo} has no such model" in str(error)  # noqa: PT017
            assert stage != "captions" or "stage=captions" not in str(error)  # noqa: PT017
        else:
            assert built.name == recipe
            if stage != "captions" and zoo in WHOLE.get(recipe, ()) and recipe in OF_PHOTOS:
                assert built.set_per == "example"


@pytest.mark.parametrize(
    ("recipe", "words", "kind"),
    [
        ("substitution", ["zoo=sd35"], "SharedPipeline"),
        ("photo_edits", [PHOTO_EDITOR, "zoo=flux2_klein"], "InstructedPhotos"),
        ("substitution", [PHOTO_EDITOR, "zoo=flux2_klein"], "InstructedPhotos"),
        ("substitution", [IMAGE_SERVER, "zoo=flux2_klein"], "ImageServer"),
    ],
)
def test_a_zoo_has_image_editors_of_several_kinds(recipe, words, kind):
    [(config, _)] = _compose("generate", f"recipe={recipe}", *words)
    assert type(build_recipe(GenerateSettings(**config)).image_editor).__name__ == kind


@pytest.mark.parametrize("zoo", ZOOS)
def test_a_zoo_names_models_only(zoo):
    """How a recipe differs with a zoo stands beside the recipe: recipe/NAME/ZOO.yaml."""
    text = settings_file(f"zoo/{zoo}").read_text()
    assert "@package" not in text
    roles = yaml.safe_load(text)
    assert roles.pop("defaults", ["paper", "_self_"]) == ["paper", "_self_"]
    assert roles.pop("name") == zoo
    assert roles.pop("knows", None) == {"shapescapes": "drawn scenes"}.get(zoo)
    assert all(node is None or "_target_" in node for node in roles.values())


def test_the_papers_numbers():
    """COCO-Counterfactuals, B.1.1 and B.1.2."""
    [(config, _)] = _compose("generate", "zoo=paper")
    recipe = config["recipe"]
    draws, select, text = recipe["draws"], recipe["selection"], recipe["editor"]
    assert draws["candidates"] == 100
    assert (draws["p2p_threshold"], draws["guidance_scale"]) == ([0.1, 0.9], [7.5, 15.0])
    clip = [select[f"min_clip_{name}"] for name in ("text", "image", "direction")]
    assert clip == [0.2, 0.7, 0.2]
    band = text["filters"]["similarity"]
    assert (text["top_k"], band["low"], band["high"]) == (10, 0.8, 0.91)
    assert recipe["image_editor"]["steps"] == 100


@pytest.mark.slow
def test_lances_numbers():
    """LANCE, Table 6, and section 3.2's choice among all f."""
    [(config, _)] = _compose("generate", "recipe=photo_edits", "zoo=paper")
    recipe, captioner = config["recipe"], config["zoo"]["captioner"]
    assert captioner["weights"] == "Salesforce/blip2-opt-2.7b"
    named = ("num_beams", "min_new_tokens", "max_new_tokens", "repetition_penalty", "prefix")
    assert [captioner[name] for name in named] == [5, 20, 100, 1.0, "A photo of "]
    draws, editor = recipe["draws"], recipe["image_editor"]
    assert draws["self_replace_steps"] == [0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    assert (draws["guidance_scale"], editor["steps"]) == (7.5, 50)
    assert (editor["cross"]["steps"], editor["cross"]["edited_weight"]) == (0.8, 2.0)
    assert config["zoo"]["photo_diffusion"]["weights"] == "CompVis/stable-diffusion-v1-4"
    assert recipe["editor"]["editor"]["guards"]["label"]["threshold"] == 0.5
    select = recipe["selection"]
    assert select["minimum"] == {"sim_0": 0.2, "sim_1": 0.2, "sim_image": 0.7, "sim_direction": 0.2}
    assert (select["above"], select["maximise"]) == ({"consistency": 0}, "sim_direction")
    assert recipe["scorers"]["clip"]["consistency"] == "caption"
    [(oracle, _)] = _compose("generate", "recipe=photo_edits_oracle")
    [(world, _)] = _compose("generate", "recipe=photo_edits")
    assert oracle["recipe"]["editor"] == world["recipe"]["editor"]
    assert oracle["data"] == world["data"]


def test_what_a_run_may_name_is_what_exists():
    for dotted in SETTINGS_OF_A_RUN:
        assert isinstance(locate(dotted), type)


def test_an_added_key_that_nothing_takes_is_refused():
    with pytest.raises(
        UserError, match=r"nothing takes data\.cf_ration: did you mean data\.cf_ratio"
    ):
        _compose("train", "+data.cf_ration=0.6")
    with pytest.raises(UserError, match="nothing takes colour"):
        _compose("train", "+colour=red")


@pytest.mark.slow
def test_a_multirun_composes_all_jobs_before_any_runs():
    with pytest.raises(UserError, match="seed"):
        _compose("train", "seed=1,2,3", "+nonsense=1", multirun=True)
    jobs = _compose("train", "seed=1,2,3", "data.cf_ratio=0,0.6", multirun=True)
    assert [(c["seed"], c["data"]["cf_ratio"]) for c, _ in jobs] == [
        (s, r) for s in (1, 2, 3) for r in (0, 0.6)
    ]


def test_a_benchmarks_name_means_one_thing():
    nodes = {}
    for file in sorted(settings_files("benchmark")):
        content = yaml.safe_load(file.read_text())
        for place in ("world", "folders"):
            for name, node in content.get(place, {}).items():
                assert nodes.setdefault(name, node) == node, f"{file.name}: {name}"
    assert len(nodes) > 20


@pytest.mark.parametrize(
    "node",
    [
        {"_target_": "os.system", "command": "true"},
        {"_target_": SETTINGS, "world": {"_target_": "os.system"}},
        {"_target_": SETTINGS, "real": [{"_target_": "builtins.exec"}]},
    ],
)
def test_a_run_may_not_name_foreign_targets(node):
    with pytest.raises(UserError, match="may not name"):
        build_untrusted(node)
