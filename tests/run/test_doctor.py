"""What ``cfaug doctor`` says of a machine without network, accounts and data, and of one with."""

from __future__ import annotations

import socket
import tomllib
from types import SimpleNamespace

import pytest

from cfaug.run import doctor
from tests.files_of_settings import is_whole
from tests.run.conftest import compose, refusal, stdout_of
from tests.scripts import ROOT

HUB_MODEL = "openai/clip-vit-base-patch32"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A home of nobody's, an empty cache of the Hub, and no network."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "50")
    monkeypatch.chdir(tmp_path)
    for name in list(doctor.os.environ):
        if name.startswith("WANDB_") or name in ("NETRC", "HF_TOKEN"):
            monkeypatch.delenv(name)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))

    def refuse(*_):
        raise AssertionError("the doctor asks no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return tmp_path


def lines(capsys, *words):
    assert doctor.main(words) == 0
    return " ".join(capsys.readouterr().out.split())


def lay_model(hub, name, *, weights=True, begun=()):
    home, commit = hub / f"models--{name.replace('/', '--')}", "0" * 40
    folder = home / "snapshots" / commit
    for directory in (folder, home / "refs", home / "blobs"):
        directory.mkdir(parents=True)
    (home / "refs/main").write_text(commit)
    (folder / "config.json").write_text("{}")
    if weights:
        (folder / "model.safetensors").write_bytes(b"")
    for part in begun:
        (home / "blobs" / part).write_bytes(b"")
    return home


def test_what_is_missing_comes_with_its_command(machine, capsys):
    said = lines(capsys, f"paths.data={machine / 'data'}")
    now, _, missing = said.partition(" Missing, and what for ")
    assert "SLURM sweeps/*.sbatch -> a login node of a cluster" in missing
    assert "wandb login logger=wandb -> wandb login" in missing
    lacking = [part.name for part in doctor.inspect_data(machine / "data")]
    count = len(lacking)
    assert f"data {count} of {count} folders below {machine / 'data'}, for benchmark=" in missing
    assert f"{', '.join(lacking[:2])}, ... -> cfaug doctor data" in missing
    assert "-> cfaug doctor weights" in missing
    assert lacking[4] not in missing, "a few are named, the section names all"
    assert "You can now" in now
    assert "train.py data.cf_ratio=0.6" in now


def test_it_begins_with_what_can_be_done(machine, monkeypatch):
    """And says of an extra that is not there what it would be good for."""
    absent = {"diffusers", "trackio"}
    known = doctor.version_of
    monkeypatch.setattr(doctor, "version_of", lambda name: None if name in absent else known(name))
    title, can, *rest = stdout_of(doctor.main, []).splitlines()
    assert title.startswith("cfaug ")
    assert can == "You can now"
    now = rest[: rest.index("Missing, and what for")]
    assert [line.split()[0] for line in now[:3]] == ["train", "evaluate", "compare"]
    missing = " ".join(rest[len(now) :])
    assert "generate.py, images by diffusion models (lacks diffusers) -> pip install" in missing
    assert "logger=trackio (lacks trackio) -> pip install 'cfaug[trackio]'" in missing


def test_every_extra_says_what_it_is_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(project["optional-dependencies"]) - {"all", "dev"} == set(doctor.PURPOSES)


@pytest.mark.parametrize("name", ["train", "evaluate", "generate"])
def test_what_it_says_one_can_do_composes(name):
    script, *words = doctor.COMMANDS[name].removeprefix("python ").split()
    assert script == f"{name}.py"
    assert compose(name, *words)


def test_what_is_there_asks_for_nothing(machine, monkeypatch, capsys):
    (machine / "cifar10").mkdir()
    (machine / "sbatch").write_text("#!/bin/sh\n")
    (machine / "sbatch").chmod(0o755)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    lay_model(machine / "hub", HUB_MODEL, begun=["aa.1f.incomplete", "aa"])
    said = lines(capsys, f"paths.data={machine}")
    now, _, missing = said.partition(" Missing, and what for ")
    assert "-> a login node" not in said
    assert "wandb login" not in missing
    lacking = [part.name for part in doctor.inspect_data(machine) if not part.there]
    assert f"data 1 of {len(lacking) + 1}: cifar10 services 2 of 3: wandb login, SLURM" in now
    assert f": {HUB_MODEL} data" in now
    assert HUB_MODEL not in missing


@pytest.mark.parametrize("kind", [{"weights": False}, {"begun": ["aa.incomplete"]}])
def test_half_a_model_is_not_one(machine, capsys, kind):
    lay_model(machine / "hub", HUB_MODEL, **kind)
    assert f"{HUB_MODEL} (half downloaded), BridgeTower" in lines(capsys)
    assert (
        f"{HUB_MODEL} no half downloaded; for model=..., zoo=paper -> hf download {HUB_MODEL}"
        in (lines(capsys, "weights"))
    )


@pytest.mark.parametrize("depth", [0, 12])
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 50)])
def test_everything_stands_on_one_screen(machine, monkeypatch, columns, rows, depth):
    """Also in a clone with a long path, and where half of all parts are there: two lists each."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(rows))
    clone = machine.joinpath("clone", *depth * ["ein schöner Ordner"])
    clone.mkdir(parents=True)
    (clone / "conf").symlink_to(doctor.find_folder("conf"))
    monkeypatch.setattr(doctor, "find_folder", lambda name: clone / name)
    (machine / "data").mkdir()
    for part in doctor.inspect_data(machine):
        if part.name < "f":
            (machine / "data" / part.name).mkdir()
    names = [part.name for part in doctor.inspect_weights()]
    for name in names[::2]:
        lay_model(machine / "hub", name)
    shown = stdout_of(doctor.main, []).splitlines()
    assert len(shown) < rows
    assert max(map(len, shown)) <= columns
    for title in ("cfaug ", "You can now", "Missing", "  weights", "  data", "  SLURM"):
        assert any(line.startswith(title) for line in shown)


def test_a_section_alone_names_every_part_with_what_brings_it(machine):
    shown = stdout_of(doctor.main, ["data"])
    assert shown.startswith("data: paths.data=data\n")
    assert shown.count("docs/sets.md") == len(list(doctor.inspect_data(machine)))
    assert shown.count("docs/sets.md") > (20 if is_whole() else 10)


def test_a_gpu_that_torch_cannot_use_is_told_from_none(machine, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    assert "GPU no papers' weights need one -> pytorch.org" in lines(capsys, "devices")
    (machine / "nvidia-smi").write_text("#!/bin/sh\n")
    (machine / "nvidia-smi").chmod(0o755)
    assert "GPU no this torch cannot use the one here" in lines(capsys, "devices")


@pytest.mark.parametrize("checkout", [True, False])
def test_a_gpu_comes_with_the_command_that_checks_it(machine, monkeypatch, capsys, checkout):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    properties = SimpleNamespace(name="Tiny GPU", total_memory=2**33)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: properties)
    monkeypatch.setattr(doctor, "is_checkout", lambda: checkout)
    said = lines(capsys, "devices")
    assert "cuda:0 yes Tiny GPU, 8 GiB" in said
    assert ("make gpu checks it" in said) == checkout


def test_a_folder_of_data_that_cannot_be_read_is_told_from_an_empty_one(
    machine, monkeypatch, capsys
):
    (machine / "data").mkdir()
    assert "cannot be read" not in lines(capsys, "data")
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)  # root may read anything
    assert "data: paths.data=data, which cannot be read" in lines(capsys, "data")


def test_help_and_another_argument():
    assert "paths.data=FOLDER" in stdout_of(doctor.main, ["--help"])
    assert "'data=x' is invalid" in refusal(doctor.main, ["data=x"])


KEY = "0" * 40


def netrc(machine, text, name="home/.netrc"):
    (machine / "home").mkdir(exist_ok=True)
    (machine / name).write_bytes(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("home/.netrc", f"machine api.wandb.ai login user password {KEY}\n"),
        ("home/.netrc", f"machine api.forge.coreweave.com login user password {KEY}\n"),
        ("home/_netrc", f"machine api.wandb.ai login user password {KEY}\n"),
        ("home/.config/wandb/settings", f"[default]\napi_key = {KEY}\n"),
        ("wandb/settings", f"[default]\napi_key = {KEY}\n"),
    ],
)
def test_a_key_is_found_where_wandb_looks(machine, name, text):
    assert not doctor.has_wandb_key()
    (machine / name).parent.mkdir(parents=True, exist_ok=True)
    (machine / name).write_text(text)
    assert doctor.has_wandb_key()


def test_the_key_of_another_host_is_not_wandbs(machine, monkeypatch):
    netrc(machine, f"machine wandb.example.org login user password {KEY}\n".encode())
    assert not doctor.has_wandb_key()
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    assert doctor.has_wandb_key()


@pytest.mark.parametrize(
    "text",
    [b"machine", b"\xff\xfe\x00", b'machine api.wandb.ai login "', b"machine api.wandb.ai\n"],
)
def test_a_broken_netrc_is_no_login_and_no_crash(machine, text):
    netrc(machine, text)
    (machine / "wandb").mkdir()
    (machine / "wandb/settings").write_bytes(b"api_key\x00\xff[[")
    assert not doctor.has_wandb_key()
    (machine / "home/.netrc").unlink()
    (machine / "home/.netrc").mkdir()
    assert not doctor.has_wandb_key()
