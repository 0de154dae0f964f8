"""What is typed reaches the settings as it was meant, or is refused with what to type instead."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import hydra
import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.fitting import bind, lists_of_numbers
from cfaug.run.evaluate_settings import EvaluateSettings
from cfaug.settings import compose as compose_module
from cfaug.settings import merging
from cfaug.settings.arguments import read, sweep_overrides
from cfaug.settings.choices import (
    Options,
    name_both,
    names_itself,
    options_in,
    read_arms,
)
from cfaug.settings.compose import compose_jobs
from cfaug.settings.usage import WIDTH, usage
from tests.files_of_settings import settings_file
from tests.properties import examples
from tests.run.conftest import COMMANDS, compose, jobs_of, refusal, stdout_of

PARSER = OverridesParser.create()
TEXTS = st.text("ab1 ()[]{}#&;!~`<>^=\"'/.,:+-_%*@?|äß日", max_size=12).map(
    lambda text: f"x{text.rstrip()}."
)


def composed(*words: str, key: str = "arm") -> list[Any]:
    """Return one setting of every job of a command line."""
    return [config[key] for config, _ in jobs_of("train", *words)]


@given(TEXTS)
def test_a_text_is_read_whole_whatever_its_signs(text):
    text = text.replace(",", ", ")  # without a space it may part the values of a sweep
    (override,) = read([f"arm={text}"]).overrides
    assert PARSER.parse_override(override).value() == text


@given(texts=st.lists(TEXTS, min_size=2, max_size=3))
def test_the_texts_of_a_sweep_file_are_read_whole(tmp_path_factory, texts):
    file = tmp_path_factory.mktemp("sweep") / "grid.yaml"
    file.write_text(yaml.safe_dump({"method": "grid", "parameters": {"arm": {"values": texts}}}))
    (override,) = read([f"sweep={file}", "-m"]).overrides
    values = PARSER.parse_override(override).value().list
    assert [getattr(value, "text", value) for value in values] == texts


@given(st.lists(TEXTS.filter(lambda text: not set(text) & set("[](){}'\"$,")), min_size=1))
def test_the_texts_of_a_list_are_read_whole(texts):
    (override,) = read([f"runs=[{','.join(texts)}]"]).overrides
    assert PARSER.parse_override(override).value() == texts


@pytest.mark.slow
def test_a_call_in_brackets_needs_no_quotes():
    assert composed("data.shuffle=window(8)", key="data")[0]["shuffle"] == "window(8)"
    assert composed("-m", "arm=tree(2)", "seed=range(0,2)") == ["tree(2)"] * 2
    assert composed("-m", "arm=choice(a,b)") == ["a", "b"]
    assert composed("arm=/data/Büro (1)") == ["/data/Büro (1)"]
    assert composed("arm=(x\\") == ["(x\\"]
    assert composed(r"arm=window\(8\)", 'name="a"') == ["window(8)"]  # Hydra's own ways


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["-m", "arm=tree(2),it's,c"], ["tree(2)", "it's", "c"]),
        (["-m", "arm=rnage(0,3)"], ["rnage(0,3)"]),
        (["arm=a,b(c)"], ["a,b(c)"]),
        (["arm=[a"], ["[a"]),
        (['arm="a'], ['"a']),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_to_type(typed, meant):
    with pytest.raises(UserError, match=r"cannot read arm=.* in double quotes") as refused:
        composed(*typed)
    (fix,) = shlex.split(str(refused.value).rsplit("single ones: ", 1)[1])
    assert composed(*typed[:-1], fix) == meant


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("modl=tiny_clip", "did you mean model?"),
        ("~zzzzzz", "--help lists them all"),
        ("=3", "is not a setting: write key=value"),
        ("model=open_clip model.architecture=RN50 optim.lrr=1",
         "no setting is called 'optim.lrr': did you mean optim.lr?"),
        ("tuning=lora tuning.lora.r=4 tuning.lora.alhpa=1", "did you mean tuning.lora.alpha?"),
        ("tuning.lora.r=4", "as long as tuning is null: choose tuning="),
        ("trainer.epochs=3", "did you mean trainer.max_epochs?"),
        ("lr=4", "did you mean optim.lr?"),
        ("model.name_or_path=zoo:clip-1",
         "it is called model.weights now; type model.weights=zoo:clip-1"),
        ("model=torchvision model.pretrained=MINE", "type model.weights=MINE"),
        ("weights=zoo:clip-1 model.weights=zoo:clip-1", "is the short name of model.weights"),
        ("model=open_clip weights=zoo:clip-1 model.architecture=RN50",
         "model.architecture is read with model.weights that are a tag or a file"),
        ("limit=4", "'limit': generate.py takes it; --help lists them all"),
        ("benchmark.data=x", "evaluate.py takes it; --help lists them all"),
        ("xyzzy=4", "'xyzzy': --help lists them all"),
        ("plan@data.plan=", "plan': nothing that is chosen has a choice of that name"),
        ("paths=5 paths.runs=x", "paths=5: paths has settings of its own"),
        ("model=tiny_clip model=nope", "model=nope: "),
        ("data=5", "data=5: choose from "),
        ("model=null", "model=null: choose from bridgetower"),
        ("trainer={}", "trainer={}: choose from default"),
        ("tuning=5", "tuning=5: choose from freeze_text"),
        ("~model", "~model: choose from bridgetower"),
        ("~data.real", "data.real is missing"),
        ("+paths.runs=x", "+paths.runs=x: "),
    ],
)  # fmt: skip
def test_the_word_at_fault_is_named_beside_the_groups_that_were_chosen(typed, said):
    with pytest.raises(UserError) as refused:
        composed(*typed.split())
    assert said in str(refused.value)
    for word in ("did you mean _", "._", "search path"):
        assert word not in str(refused.value)


FILTER = "recipe.editor.filters.sibling"


@pytest.mark.parametrize(
    ("name", "typed", "added"),
    [
        ("train", ["model.max_length=4", "optim.betas=[0.5,0.9]"], 2),
        ("generate", [f"{FILTER}._target_=cfaug.editing.filters.NotASibling"], 1),
    ],
)  # fmt: skip
def test_a_setting_that_its_file_leaves_out_needs_no_plus(name, typed, added):
    [(config, words)] = jobs_of(name, *typed)
    assert words == typed
    [(_, words)] = compose_jobs(
        name, typed, multirun=False, command=COMMANDS[name], for_hydra=True
    )  # a launcher of Hydra's own needs it
    assert sum(word.startswith("+") for word in words) == added
    assert jobs_of(name, *words) == [(config, words)]  # typed with it: the same settings


@pytest.mark.parametrize(
    "typed", ["zoo.clop.weights=x", "recipe.editor.noun_run=head", "recipe_prt@recipe=found_labels"]
)  # fmt: skip
def test_a_mistyped_setting_is_not_added(typed):
    with pytest.raises(UserError, match=f"no setting is called '{typed.partition('=')[0]}'"):
        jobs_of("generate", typed)


def test_null_leaves_a_group_as_it_is_where_nothing_is_chosen():
    assert composed("tuning=null", key="optim") == composed(key="optim")
    assert len(composed("-m", "tuning=null,lora", key="seed")) == 2


def test_a_word_holds_for_its_own_job_alone():
    jobs = jobs_of("evaluate", "-m", "benchmark=entailment", "benchmark.data={a: x},{b: y}")
    assert [config["benchmark"]["data"] for config, _ in jobs] == [{"a": "x"}, {"b": "y"}]


KEYS = [
    "name", "arm", "seed", "data", "model", "optim", "tuning", "loss", "trainer", "logger", "scale",
    "experiment", "paths", "data.world", "data.world.edits", "data.cf_ratio", "data.real",
    "model.weights", "optim.lr", "optim.betas", "tuning.lora", "tuning.lora.r", "overwrite",
    "trainer.max_steps", "paths.runs", "hydra", "hydra.run", "preset", "preset.optim.lr", "nothing",
    "data.nothing", "world@data.world", "data._target_", "a.b.c",
]  # fmt: skip
VALUES = [
    "5", "1.5", "1e400", "-0", "null", "true", "no", "''", "[]", "{}", "[1,2]", "[a,[b]]", "{a:1}",
    "{_target_:os.system}", "lora", "paper", "folder", "???", "${seed}", "${nope}",
    "${oc.env:NOPE}", "${", "a b", "007", "日本", "tiny_clip", "range(0,2)", "choice()",
    "os.system",
]  # fmt: skip
WORDS = st.builds(
    lambda sign, key, value: f"{sign}{key}={value}",
    st.sampled_from(["", "", "", "+", "++", "~"]), st.sampled_from(KEYS), st.sampled_from(VALUES),
)  # fmt: skip


def outcome(*words: str) -> Any:
    """Return the settings of the jobs, or the words of the refusal."""
    try:
        return jobs_of("train", *words)
    except UserError as refused:
        return str(refused)


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=3))
def test_whatever_is_typed_composes_as_hydra_has_it_or_is_a_sentence(words):
    """Words set in a copy of what the files give, against all words given to Hydra."""
    fast = outcome(*words)
    known = words
    if not isinstance(fast, str):
        assert all(type(config["seed"]) is int for config, _ in fast)
        [(_, known)] = compose_jobs(
            "train", read(words).overrides, multirun=False, command=COMMANDS["train"],
            for_hydra=True,
        )  # fmt: skip

    def merge_by_hydra(
        name: str, words: Sequence[str], options: Options, command: Any
    ) -> tuple[Any, list[str]]:
        typed = tuple(word for word in words if not merging.says_nothing(word, options))
        tree = deepcopy(merging.merge_words(name, typed))
        merging.add_defaults(tree, command)
        return tree, list(words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compose_module, "merge", merge_by_hydra)
        slow = outcome(*known)
    assert isinstance(slow, str) if isinstance(fast, str) else repr(slow) == repr(fast)


def test_files_are_merged_anew_only_if_one_of_them_changes(tmp_path, monkeypatch):
    merged, merge = [], hydra.compose
    monkeypatch.setattr("hydra.compose", lambda **job: merged.append(job) or merge(**job))
    folders = merging.settings_folders
    monkeypatch.setattr(merging, "settings_folders", lambda *users: (*folders(*users), tmp_path))
    for text in ("a: 1", "a: 12"):
        (tmp_path / "other.yaml").write_text(text)
        settings = [compose("train", f"seed={seed}")["seed"] for seed in (3, 4)]
        assert settings == [3, 4]
    assert len(merged) == 2


@pytest.mark.parametrize("name", ["train", "evaluate"])
def test_weights_are_named_by_one_word_in_every_command_and_form(name, tmp_path):
    [(config, words)] = jobs_of(name, "weights=zoo:clip-1")
    assert (config["model"]["weights"], words) == ("zoo:clip-1", ["model.weights=zoo:clip-1"])
    assert "weights" not in config
    assert read(["--weights=zoo:clip-1"], name).overrides == ("model.weights=zoo:clip-1",)
    file = tmp_path / "grid.yaml"
    grid = {"seed": {"value": 3}, "weights": {"values": ["zoo:clip-0", "zoo:clip-1"]}}
    program = {"program": f"{name}.py", "method": "grid", "parameters": grid}
    file.write_text(yaml.safe_dump(program))
    swept = read([f"sweep={file}", "-m"], name).overrides
    assert swept == ("seed=3", "model.weights=zoo:clip-0,zoo:clip-1")
    typed = read([f"sweep={file}", "model.weights=zoo:clip-things", "-m"], name).overrides
    assert typed == ("seed=3", "model.weights=zoo:clip-things")
    assert "weights the short name of model.weights" in " ".join(usage(name, "").split())


def test_what_takes_the_seed_is_known_by_how_it_is_written():
    """Four seeds of the five have the same weights: other seeds are no way to find out."""
    rule = "${alternate:${seed},[a,a,a,a,b]}"
    config = compose("train", f'model.weights="{rule}"', "seed=0")
    assert config["by_seed"] == {"model.weights": rule}
    assert compose("train", "model=tiny_clips", "seed=3")["by_seed"].keys() == {"model.weights"}
    assert compose("train", "data.seed=4", "seed=3")["by_seed"] == {}


def test_a_file_that_other_choices_bring_along_is_no_choice():
    with pytest.raises(UserError) as refused:
        compose("generate", "recipe=substitution/sd35")
    assert "a part of recipe=substitution zoo=sd35: type these" in str(refused.value)


@pytest.mark.parametrize(
    ("word", "meant"), [("seeds=107,108", [107, 108]), ("wise_ft=0,0.5", [0, 0.5])]
)
def test_a_list_of_numbers_needs_no_brackets(word, meant):
    lists = lists_of_numbers(EvaluateSettings)
    (override,) = read([word], "evaluate", lists).overrides
    assert PARSER.parse_override(override).value() == meant
    (swept,) = read([word, "-m"], "evaluate", lists).overrides
    assert PARSER.parse_override(swept).is_sweep_override()


def test_a_tilde_is_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/anna")
    [paths] = composed("paths.runs=~/runs", "paths.shards=~/x", key="paths")
    places = [paths[name] for name in ("runs", "shards", "cache")]
    assert places == ["/home/anna/runs", "/home/anna/x", "/home/anna/x/index"]


def test_agents_spellings_are_tolerated_and_flags_of_hydra_kept():
    line = read(["--data.cf_ratio=0.6", "seed=107", "_wandb={'x': 1}", "--_wandb=2"])
    assert (line.overrides, line.hydra_flags) == (("data.cf_ratio=0.6", "seed=107"), ())
    assert not line.multirun
    line = read(["--cfg", "job", "seed=1", "--resolve"])
    assert (line.overrides, line.hydra_flags) == (("seed=1",), ("--cfg", "job", "--resolve"))


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--multirum", r"--multirum.*did you mean --multirun"),
        ("--dry-run", "written key=value, as in dry_run=VALUE"),
    ],
)
def test_an_unknown_flag_is_refused_with_what_to_type(flag, said):
    with pytest.raises(UserError, match=said):
        read([flag])


def test_sweep_file_becomes_hydra_overrides(tmp_path):
    file = tmp_path / "grid.yaml"
    file.write_text(
        "method: grid\nparameters:\n  data.cf_ratio: {values: [0, 0.6]}\n  name: {value: curve}\n"
    )
    assert sweep_overrides(file) == ["data.cf_ratio=0,0.6", "name=curve"]
    assert read([f"sweep={file}", "-m"]).overrides == ("data.cf_ratio=0,0.6", "name=curve")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", "is not valid YAML"),
        ("method: bayes\nparameters: {}", r"sweep\.yaml is not a grid"),
        ("method: grid", "has no `parameters`"),
        ("method: grid\nparameters: {seed: {values: 107}}", "'seed' needs `value` or a list"),
        ("method: grid\nparameters: {seed: {value: 5, values: [1]}}", "both `value` and `values`"),
        ("method: grid\nprogram: evaluate.py\nparameters: {seed: {value: 1}}",
         r"a sweep of evaluate.py: python evaluate.py --multirun sweep=\S+sweep.yaml"),
    ],
)  # fmt: skip
def test_a_sweep_that_cannot_run_says_why(tmp_path, content, message):
    file = tmp_path / "sweep.yaml"
    file.write_text(content)
    with pytest.raises(UserError, match=message):
        read([f"sweep={file}", "-m"], "train")
    with pytest.raises(UserError, match="no sweep file"):
        sweep_overrides(tmp_path / "absent.yaml")


def test_bind_names_a_target_that_is_not_there():
    with pytest.raises(UserError, match=r"cfaug\.core\.types\.Absent"):
        bind({"data": {"_target_": "cfaug.core.types.Absent"}}, lambda data: None)


@pytest.mark.parametrize("form", ["--config-dir {}", "--config-dir={}", "-cd {}"])
def test_settings_of_ones_own_lie_in_a_folder_that_is_named(tmp_path, form, script):
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe/mine.yaml").write_text(
        "_target_: cfaug.generate.recipe.Recipe\nname: mine_alone\n"
    )
    words = form.format(tmp_path).split(" ")
    line = read([*words, "recipe=mine"])
    assert line.overrides == (f"hydra.searchpath=[file://{tmp_path}]", "recipe=mine")
    assert line.hydra_flags == ()
    said = stdout_of(script("generate"), [*words, "recipe=mine", "--cfg", "job"])
    assert "name: mine_alone" in said


@pytest.mark.parametrize("words", [["--config-dir", "/no/where"], ["--config-dir"]])
def test_a_missing_folder_of_settings_is_named(words):
    with pytest.raises(UserError, match=r"--config-dir .*: there is no such folder"):
        read(words)


def test_keys_of_a_dictionary_may_be_quoted():
    """Hydra's grammar has no such keys; the name of an arm is one."""
    word = """a={"lr=1,b (c): [2]{x}": loose clip, 'k' : "x: y", plain: "c, 'e': f"}"""
    assert PARSER.parse_override(read([word]).overrides[0]).value() == {
        "lr=1,b (c): [2]{x}": "loose clip", "k": "x: y", "plain": "c, 'e': f",
    }  # fmt: skip


# The arms of an experiment in one file.


def test_an_arm_has_the_shared_settings_and_its_own():
    arms = read_arms(settings_file("experiment/demo"))
    assert (arms["real"]["arm"], arms["real"]["name"]) == ("real", "demo")
    assert arms["real"]["data"] == {"world": {"seed": 108}, "cf_ratio": 0, "size": 600}
    assert not names_itself(settings_file("experiment/demo"))


def test_nested_settings_are_joined(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "data: {size: 3, world: {seed: 1}}\narms:\n  a: {data: {world: {bias: 2}}}\n  b:\n"
    )
    arms = read_arms(file)
    assert arms["a"] == {"arm": "a", "data": {"size": 3, "world": {"seed": 1, "bias": 2}}}
    assert arms["b"] == {"arm": "b", "data": {"size": 3, "world": {"seed": 1}}}


@pytest.mark.parametrize("arms", ["[a, b]", "3", "{a: 3}"])
def test_arms_that_are_none_are_refused(arms, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(f"name: x\narms: {arms}\n")
    with pytest.raises(UserError, match="arms should hold the settings of each arm by its name"):
        read_arms(file)


def test_an_experiment_of_several_arms_names_them(place):
    said = refusal(place.train, "experiment=demo", "dry_run=true")
    assert "experiment=demo has several arms: choose experiment=demo/before, " in (said)
    said = refusal(place.train, "experiment=demo/rael", "dry_run=true")
    assert "did you mean experiment=demo/real?" in said


# ``--help`` of every script, and what it lists.


def choices_in(said: str, group: str) -> list[str]:
    """Return the options that a help text lists for a group."""
    listed = re.search(rf"(?m)^  {group}: (.*(?:\n {{8}}.*)*)$", said)
    assert listed is not None
    return re.split(r",\s+", listed[1])


def test_what_follows_from_other_choices_is_no_choice_but_is_shown():
    candidates = "recipe.draws.candidates="
    assert f"{candidates}2 " in usage("generate", "", words=["recipe"])  # the shipped zoo's
    assert f"{candidates}100 " in usage("generate", "", words=["recipe", "zoo=paper"])
    printed = usage("generate", "")
    assert {"substitution*", "photo_edits"} <= set(choices_in(printed, "recipe"))
    assert "substitution/" not in printed
    assert {"substitution", "photo_edits"} <= set(options_in("generate")("recipe"))
    assert "demo/real" in options_in("train")("experiment")
    assert name_both("generate", "recipe", "clare/paper") == "recipe=clare zoo=paper"
    assert name_both("generate", "recipe", "substitution/none") is None


def test_choices_of_ones_own_are_listed_beside_ours(tmp_path, script, capsys):
    (tmp_path / "benchmark").mkdir()
    (tmp_path / "benchmark/mine.yaml").write_text("defaults: [retrieval]\nname: mine\n")
    ours, both = (
        set(choices_in(stdout_of(script("evaluate"), words), "benchmark"))
        for words in (["--help"], ["--config-dir", str(tmp_path), "--help"])
    )
    assert both - ours == {"mine"}
    assert ours < both
    shown = stdout_of(script("evaluate"), ["--config-dir", str(tmp_path), "benchmark=mine", "-h"])
    assert "benchmark.name=mine " in shown


def test_a_choice_within_a_group_beside_help_shows_its_settings(script):
    said = stdout_of(script("train"), ["data.mixture=negatives", "--help"])
    assert "data.negatives=text " in said
    assert "data.pairs_in_batch" not in said
    assert "labels, negatives, plan" in stdout_of(script("train"), ["data", "-h"])
    assert "data.mixture=mine: choose from " in refusal(
        script("train"), ["data.mixture=mine", "--help"]
    )


def test_a_choice_beside_help_shows_its_settings(script):
    said = stdout_of(script("evaluate"), ["benchmark=stress", "--help"])
    assert "benchmark.clusters=null " in said
    assert "benchmark.batch_size=256 " in said  # which the file leaves out
    assert "auto*" not in said  # of this choice alone
    assert "benchmark.without_leaks: with" in said
    alone = stdout_of(script("evaluate"), ["--help"])
    assert "auto*" in alone
    assert "evaluate the initial weights of runs as well" in alone  # which the class says
    assert len(alone.splitlines()) <= 80
    assert "failure_rule.minimum" not in alone
    assert "failure_rule.minimum=0.1 " in stdout_of(script("evaluate"), ["failure_rule", "--help"])
    assert "world.bias=0.9 " in stdout_of(script("annotate"), ["world", "--help"])
    arm = stdout_of(script("train"), ["experiment=demo/real", "--help"])
    assert "data.cf_ratio=0\n" in arm  # elsewhere


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_of_one_width_and_about_a_screen(name, script):
    lines = stdout_of(script(name), ["--help"]).splitlines()
    assert len(lines) <= 80
    settings = usage(name, "", command=COMMANDS[name]).partition("Settings that are read only")[0]
    assert [line for line in settings.splitlines() if len(line) > WIDTH] == []


def test_a_setting_of_a_part_of_the_zoo_is_answered_with_the_one_to_set():
    with pytest.raises(UserError, match=r"model is a part of the zoo: set zoo\.diffusion\.weights"):
        compose("generate", "recipe.image_editor.model.weights=x")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("seed=1_0", "seed=1_0 is read as 10"), ("data.size=1_0", "is read as 10"),
        ("data.size=1_000", ""), ("arm=1_0", ""), ("name='1_0'", ""),
    ],
)  # fmt: skip
def test_underscores_that_group_no_thousands_are_said(word, said, capsys):
    composed(word)
    err = capsys.readouterr().err
    assert said in err
    assert bool(said) == ("underscores" in err)
