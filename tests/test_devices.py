from __future__ import annotations

import pytest

from cfaug.core.errors import UserError
from cfaug.core.processes import available_devices, check_accelerator, check_device, choose_device


@pytest.mark.parametrize(
    "name", ["banana", "cuda:", "cuda:x", "CUDA", "cpu:0", "", None, 0, "meta"]
)
def test_what_names_no_device_is_refused_without_torch(name):
    with pytest.raises(UserError, match=r"zoo\.device=.*auto, cpu, cuda"):
        check_device(name, "zoo.device")


def test_a_machine_has_its_processor():
    assert available_devices()[0] == "cpu"
    assert choose_device("cpu").type == "cpu"
    assert choose_device().type in {"cpu", "cuda"}


def has(monkeypatch, cuda=0, mps=False):
    monkeypatch.setattr("torch.cuda.is_available", lambda: bool(cuda))
    monkeypatch.setattr("torch.cuda.device_count", lambda: cuda)
    monkeypatch.setattr("torch.xpu.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: mps)


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "mps", "xpu", "banana"])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(monkeypatch, name):
    has(monkeypatch)
    with pytest.raises(UserError, match=rf"device={name}: .*\bcpu\b"):
        choose_device(name)


def test_of_two_gpus_there_is_no_third(monkeypatch):
    has(monkeypatch, cuda=2)
    assert str(choose_device()) == "cuda"
    assert str(choose_device("cuda:1")) == "cuda:1"
    with pytest.raises(UserError, match="choose auto or cpu, cuda, cuda:0, cuda:1"):
        choose_device("cuda:2")


@pytest.mark.parametrize(
    ("machine", "good", "bad"),
    [
        ({}, ("auto", "cpu"), ("gpu", "mps")),
        ({"cuda": 1}, ("auto", "cpu", "gpu"), ("mps",)),
        ({"mps": True}, ("auto", "cpu", "gpu", "mps"), ()),
    ],
)
def test_accelerators_as_lightning_names_them(monkeypatch, machine, good, bad):
    has(monkeypatch, **machine)
    for name in good:
        check_accelerator(name)
    for name in bad:
        with pytest.raises(UserError, match=f"trainer.accelerator={name}: .*choose auto or cpu"):
            check_accelerator(name)
