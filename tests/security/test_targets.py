"""A setting names a class, and one of what its place takes; nothing else is ever called."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from cfaug.core.errors import UserError
from cfaug.core.fitting import bind
from cfaug.core.protocols import Editor
from cfaug.core.targets import Makes
from cfaug.core.validation import Node
from cfaug.planning.build import build

HERE = __name__


class Part:
    """A part of the user's own."""

    def __init__(self, inside: Any = None, texts: str = "a") -> None:
        self.inside = inside

    def edit(self, examples):
        return []

    def describe(self):
        return {}


class Special(Part):
    """A part of another kind."""


@dataclass
class Whole:
    """A class that says what it takes."""

    part: Part | None = None
    editor: Editor | None = None
    anything: Any = None
    parts: tuple[Part, ...] = ()
    named: dict[str, Part] | None = None


def command(
    whole: Node | None = None,
    callbacks: dict[str, Annotated[Node, Makes("logging.Handler")]] | None = None,
) -> None:
    """Take the settings of a test."""


def whole(**arguments):
    return {"whole": {"_target_": f"{HERE}.Whole", **arguments}}


OWN = {"_target_": f"{HERE}.Part"}


@pytest.mark.parametrize(
    "settings",
    [
        whole(part=OWN, editor=OWN, anything=OWN, parts=[OWN], named={"a": OWN}),
        whole(part={"_target_": f"{HERE}.Special", "inside": [OWN, {"x": OWN}]}),
        whole(anything={**OWN, "_partial_": True}),
        {"callbacks": {"x": {"_target_": "logging.StreamHandler"}}},
    ],
)
def test_classes_of_what_is_taken_are_made(settings):
    bound = bind(settings, command)
    assert build(bound["whole"]) if "whole" in bound else bound


FUNCTIONS = [
    "torch.load", "numpy.load", "os.system", "builtins.eval", "builtins.exec", "shutil.rmtree",
    "pickle.loads", "pandas.read_pickle", "importlib.import_module", f"{HERE}.command",
    "cfaug.core.atomic_files.write_file",
]  # fmt: skip
CLASSES = ["functools.partial", "subprocess.Popen", "zipfile.ZipFile", "pathlib.Path"]
PLACES = [
    lambda node: {"callbacks": {"x": node}},
    lambda node: whole(part=node),
    lambda node: whole(editor=node),
    lambda node: whole(anything=node),
    lambda node: whole(anything=[{"deep": node}]),
    lambda node: whole(parts=[OWN, node]),
    lambda node: whole(named={"a": node}),
    lambda node: whole(part={**OWN, "inside": node}),
    lambda node: whole(unknown=node),
]


@pytest.mark.parametrize("target", [*FUNCTIONS, *CLASSES])
def test_functions_and_classes_of_another_kind_are_never_called(target):
    for number, place in enumerate(PLACES):
        for extra in ({}, {"_partial_": True}, {"_args_": ["touch RAN"]}):
            settings = place({"_target_": target, **extra})
            with pytest.raises(UserError):
                bind(settings, command)
            if "whole" in settings and number != 8:
                with pytest.raises(UserError):
                    build(settings["whole"])


def test_nothing_is_made_before_all_is_checked(monkeypatch):
    made = []
    monkeypatch.setattr(Part, "__init__", lambda self, **_: made.append(self))
    with pytest.raises(UserError, match="Nothing was called"):
        build(whole(part=OWN, anything={"_target_": "os.system", "command": "x"})["whole"])
    assert not made


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (whole(part={"_target_": "torch.load"}), ["whole.part", "a function", "a Part"]),
        (whole(part={"_target_": "subprocess.Popen"}), ["is no Part", "whole.part"]),
        (whole(editor={"_target_": "subprocess.Popen"}), ["no Editor", "it has no describe, edit"]),
        (whole(anything={"_target_": "torch.nn.ReLU"}), ["another package", "annotate anything"]),
        (whole(part={**OWN, "_args_": [1]}), ["_args_", "name each argument"]),
        (whole(part={**OWN, "_convert_": "all"}), ["_convert_", "is not read"]),
        (whole(part={**OWN, "_partial_": True}), ["_partial_", "takes a Part"]),
        (whole(part={"_target_": ["os.system"]}), ["should be a text"]),
    ],
)
def test_the_refusal_names_the_place_and_what_it_takes(settings, said):
    with pytest.raises(UserError) as caught:
        bind(settings, command)
    assert all(words in str(caught.value) for words in said), caught.value


@pytest.mark.parametrize(
    "word",
    [
        "+hydra.callbacks={x: {_target_: os.system, command: touch RAN}}",
        "hydra.callbacks.x._target_=os.system",
        "++hydra.job_logging.handlers.x={class: os.system}",
        "hydra.hydra_logging={handlers: {x: {(): os.system}}}",
        "hydra.launcher._target_=os.system",
        "hydra={callbacks: {x: {_target_: os.system}}}",
        "hydra.sweeper.sampler={_target_: os.system}",
    ],
)
def test_settings_of_hydra_name_nothing_to_call(word, capsys):
    from cfaug.run.train import main

    assert main([word, "-m", "hydra/launcher=basic", "dry_run=true"]) == 2
    said = capsys.readouterr().err
    assert ("names something for Hydra to call" if "_target_" in word else "is not taken") in said


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("trainer.callbacks", "{x: {_target_: torch.load, f: a.pt}}", "names a function"),
        ("trainer.callbacks", "{x: {_target_: subprocess.Popen, args: a}}", "is no Callback"),
        ("hydra/launcher", "submitit_local", "is Hydra's"),
        ("+hydra.callbacks", "{x: {_target_: os.system}}", "is Hydra's"),
    ],
)
def test_a_received_sweep_calls_nothing(key, value, said, tmp_path, capsys):
    from cfaug.run.train import main

    file = tmp_path / "sweep.yaml"
    parameters = {key: {"value": value}}
    file.write_text(json.dumps({"method": "grid", "program": "train.py", "parameters": parameters}))
    assert main([f"sweep={file}", "--multirun", "dry_run=true"]) == 2
    assert said in capsys.readouterr().err
