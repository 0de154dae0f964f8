"""The audited device finds what it should, and the tool's hot paths keep to their budgets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorDeviceMismatchError

from tests.device_audit import audited_device
from tests.device_paths import PATHS, HotPath
from tests.models import tiny

PLANTED = {
    "item": (lambda x: x.sum().item(), "a number is read"),
    "bool": (lambda x: bool(x.sum() > 0), "a number is read"),
    "float": (lambda x: float(x.sum()), "a number is read"),
    "equal": (lambda x: torch.equal(x, x), "a number is read"),
    "allclose": (lambda x: torch.allclose(x, x), "a number is read"),
    "cpu": (lambda x: x.cpu(), "a copy to the host"),
    "numpy": (lambda x: x.cpu().numpy(), "a copy to the host"),
    "tolist": (lambda x: x.tolist(), "a copy to the host"),
    "into the host": (lambda x: torch.empty(2, 3).copy_(x), "a copy to the host"),
    "to": (lambda x: torch.ones(3).to("cuda"), "a copy to the device blocks"),
    "device": (lambda x: torch.tensor([1, 2], device="cuda"), "a copy to the device blocks"),
    "new_tensor": (lambda x: x.new_tensor([1.0]), "a copy to the device blocks"),
    "from NumPy": (lambda x: torch.from_numpy(np.ones(2)).to(x), "a copy to the device blocks"),
    "into the device": (lambda x: x.copy_(torch.ones(2, 3)), "a copy to the device blocks"),
    "an index": (lambda x: x[[1, 0]], "a copy to the device blocks"),
    "nonzero": (lambda x: x.nonzero(), "the size of nonzero depends on values"),
    "mask": (lambda x: x[x > 0], "the number of a mask's rows depends on values"),
    "select": (lambda x: x.masked_select(x > 0), "the size of masked_select depends on values"),
    "unique": (lambda x: x.unique(), "the size of _unique2 depends on values"),
}
"""{name: a line that makes the host wait once, and the reason}."""


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_wait_is_found_and_named(name):
    line, reason = PLANTED[name]
    with audited_device() as audit:
        x = torch.ones((2, 3), device="cuda")
        audit.measure()
        line(x)
        counts = audit.measure()
    assert dict(counts.waits) == {f"tests/test_device_audit.py:<lambda>: {reason}": 1}
    assert (counts.own_waits, counts.library_waits) == (0, 1)


@pytest.mark.parametrize(
    "line",
    [
        lambda x: x + torch.ones(3),
        lambda x: torch.cat([x, torch.ones(2, 3)]),
        lambda x: nn.functional.linear(x, torch.ones(4, 3)),
        lambda x: torch.ones(2, 3).add_(x),
        lambda x: x.index_select(0, torch.tensor([0])),
        lambda x: nn.Linear(3, 2)(x),
    ],
)
def test_a_planted_mix_of_devices_is_found(line):
    with audited_device():
        x = torch.ones((2, 3), device="cuda")
        with pytest.raises((FakeTensorDeviceMismatchError, RuntimeError), match=r"(?s)device.*cpu"):
            line(x)


def test_what_does_not_wait_is_not_counted_as_a_wait():
    with audited_device() as audit:
        pinned = torch.ones((4, 2)).pin_memory()
        x = pinned.to("cuda", non_blocking=True)
        x[:2].mul_(2.0)
        x[0, 0] = 3.0
        where = torch.where(x > 0, x, torch.zeros((), device="cuda"))
        (where * 2 + np.float32(1)).sum(dim=1)
        counts = audit.measure()
    assert counts.waits.total() == counts.unpinned == counts.to_host == 0
    assert (counts.to_device, counts.sent) == (1, 32)


def test_a_copy_of_memory_that_is_not_pinned_is_noted():
    with audited_device() as audit:
        torch.ones(4).to("cuda", non_blocking=True)
        counts = audit.measure()
    assert (counts.waits.total(), counts.unpinned) == (0, 1)


def test_operations_are_those_of_a_layer_and_its_gradient():
    """By hand: a product with a bias; of the gradient two products, a sum, and one of a sum."""
    with audited_device() as audit:
        layer = nn.Linear(3, 2).to("cuda")
        x = torch.ones((4, 3), device="cuda", requires_grad=True)
        audit.measure()
        y = layer(x)
        assert y.device == layer.weight.device == torch.device("cuda", 0)
        assert y.is_cuda
        forward = audit.measure()
        y.backward(torch.ones_like(y))
        backward = audit.measure()
        assert layer.weight.grad.device == torch.device("cuda", 0)
    assert (forward.operations, forward.allocated) == (1, 4 * 2 * 4)
    assert backward.operations == 1 + 2 + 1  # of ones; products for x and the weight; the bias


def test_tensors_of_the_processor_stay_real():
    with audited_device() as audit:
        pixels = tiny.pixels(2)
        total = (pixels.double().numpy() * 2).sum()
        assert torch.from_numpy(np.arange(3)).tolist() == [0, 1, 2]
        assert audit.measure().operations == 0
    assert total == (tiny.pixels(2).double().numpy() * 2).sum()


def test_outside_the_device_is_as_it_was():
    with audited_device():
        pass
    with pytest.raises((AssertionError, RuntimeError)):
        torch.ones(1).to("cuda")
    assert torch.nn.Linear(1, 1).to("cpu").weight.device.type == "cpu"


def check_budget(name: str, path: HotPath, folder) -> None:
    """Measure a path, and hold each of its stretches to the budget."""
    with audited_device() as audit:
        measured = path.run(folder, audit)
    assert measured, "nothing was measured"
    for counts in measured:
        assert counts.operations > 10
        assert counts.own_waits <= path.waits, (name, counts.waits)
        assert counts.library_waits <= path.library, (name, counts.waits)
        assert counts.unpinned == 0, name
    # A budget that is not needed is not a budget.
    assert max(counts.own_waits for counts in measured) == path.waits
    assert bool(path.reason) == bool(path.waits or path.library)


NAMES = [pytest.param(name, marks=[pytest.mark.slow] * path.slow) for name, path in PATHS.items()]


@pytest.mark.parametrize("name", NAMES)
def test_a_path_mixes_no_devices_and_waits_no_more_than_it_may(name, tmp_path):
    check_budget(name, PATHS[name], tmp_path)
