from __future__ import annotations

import pytest

from cfaug.core.binding import bind, nearest
from cfaug.core.errors import UserError
from cfaug.run.arguments import flatten, read, sweep_overrides


def test_agents_spellings_are_tolerated():
    line = read(["--data.cf_ratio=0.6", "seed=107", "_wandb={'x': 1}", "--_wandb=2"])
    assert line.overrides == ("data.cf_ratio=0.6", "seed=107")
    assert not line.multirun
    assert line.hydra_flags == ()


def test_hydra_flags_keep_their_argument():
    line = read(["--cfg", "job", "seed=1", "--resolve"])
    assert line.hydra_flags == ("--cfg", "job", "--resolve")
    assert line.overrides == ("seed=1",)


def test_unknown_flag_names_the_nearest():
    with pytest.raises(UserError, match=r"--multirum.*did you mean --multirun"):
        read(["--multirum"])


def test_a_setting_typed_as_a_flag_is_shown_as_a_setting():
    with pytest.raises(UserError) as caught:
        read(["--dry-run"])
    assert "written key=value, as in dry_run=VALUE" in str(caught.value)
    assert "did you mean" not in str(caught.value)


def test_sweep_file_becomes_hydra_overrides(tmp_path):
    file = tmp_path / "grid.yaml"
    file.write_text(
        "method: grid\nparameters:\n  data.cf_ratio: {values: [0, 0.6]}\n  name: {value: curve}\n"
    )
    assert sweep_overrides(file) == ["data.cf_ratio=0,0.6", "name=curve"]
    assert read([f"sweep={file}", "-m"]).overrides == ("data.cf_ratio=0,0.6", "name=curve")


def test_sweep_that_is_no_grid_is_refused(tmp_path):
    file = tmp_path / "bayes.yaml"
    file.write_text("method: bayes\nparameters: {}\n")
    with pytest.raises(UserError, match=r"bayes\.yaml is not a grid"):
        sweep_overrides(file)
    with pytest.raises(UserError, match="no sweep file"):
        sweep_overrides(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", "cannot be read"),
        ("method: grid", "has no `parameters`"),
        ("method: grid\nparameters: {seed: 107}", "'seed' needs `value` or a list"),
        ("method: grid\nparameters: {seed: {values: 107}}", "'seed' needs `value` or a list"),
        ("method: grid\nprogram: evaluate.py\nparameters: {seed: {value: 1}}",
         r"a sweep of evaluate.py: python evaluate.py --multirun sweep=\S+sweep.yaml"),
    ],
)  # fmt: skip
def test_a_sweep_that_cannot_run_says_why(tmp_path, content, message):
    file = tmp_path / "sweep.yaml"
    file.write_text(content)
    with pytest.raises(UserError, match=message):
        read([f"sweep={file}", "-m"], "train")


def test_a_sweep_of_another_script_is_refused_before_it_is_composed(script, capsys):
    assert script("train")(["-m", "sweep=sweeps/coco_cf_2.yaml"]) == 2
    assert "python evaluate.py --multirun sweep=sweeps/coco_cf_2.yaml" in capsys.readouterr().err


def _target(*, cf_ratio: float, size: int) -> None: ...


def test_bind_names_the_culprit_and_the_choices():
    with pytest.raises(UserError, match=r"nothing takes cf_rato: did you mean cf_ratio\?.*size"):
        bind({"cf_ratio": 0.5, "size": 1, "cf_rato": 1}, _target)


def test_bind_looks_into_targets():
    node = {"data": {"_target_": "cfaug.core.types.Edit", "kind": "a", "before": "b", "aftr": "c"}}
    with pytest.raises(UserError, match=r"nothing takes data\.aftr: did you mean data\.after"):
        bind(node, lambda data: None)


def test_bind_names_a_target_that_is_not_there():
    with pytest.raises(UserError, match=r"cfaug\.core\.types\.Absent"):
        bind({"data": {"_target_": "cfaug.core.types.Absent"}}, lambda data: None)


def test_nearest_and_flatten():
    known = list(flatten({"data": {"cf_ratio": 1, "seed": 2}, "seed": 3, "optim": {"lr": 1}}))
    assert nearest("data.cfratio", known) == "data.cf_ratio"
    assert nearest("lr", known) == "optim.lr"
    assert nearest("zzzzzz", known) is None


@pytest.mark.parametrize("form", ["--config-dir {}", "--config-dir={}", "-cd {}"])
def test_settings_of_ones_own_lie_in_a_folder_that_is_named(tmp_path, form, script, capsys):
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe/mine.yaml").write_text(
        "_target_: cfaug.generate.recipe.Recipe\nname: mine_alone\n"
    )
    words = form.format(tmp_path).split(" ")
    line = read([*words, "recipe=mine"])
    assert line.overrides == (f"hydra.searchpath=[file://{tmp_path}]", "recipe=mine")
    assert line.hydra_flags == ()
    assert script("generate")([*words, "recipe=mine", "--cfg", "job"]) == 0
    assert "name: mine_alone" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--config-dir", "/no/where"], ["--config-dir"]])
def test_a_missing_folder_of_settings_is_named(words):
    with pytest.raises(UserError, match=r"--config-dir .*: there is no such folder"):
        read(words)


def test_keys_of_a_dictionary_may_be_quoted():
    """Hydra's grammar has no such keys; the name of an arm is one."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    word = """a={"lr=1,b (c): [2]{x}": loose clip, 'k' : "x: y", plain: "c, 'e': f"}"""
    (found,) = OverridesParser.create().parse_overrides(list(read([word]).overrides))
    assert found.value() == {
        "lr=1,b (c): [2]{x}": "loose clip", "k": "x: y", "plain": "c, 'e': f",
    }  # fmt: skip
