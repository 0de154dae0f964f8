"""The choice of the device that a model runs on. Torch is imported when it is needed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cfaug.core.errors import UserError

if TYPE_CHECKING:
    import torch

KINDS = ("auto", "cpu", "cuda", "mps", "xpu")


def check_device(name: object, key: str = "device") -> None:
    """Refuse a name that no device has on any machine, before torch is imported.

    >>> check_device("cuda:1")

    Args:
        name: ``auto``, ``cpu``, ``cuda``, ``cuda:N``, ``mps`` or ``xpu``.
    """
    pattern = rf"({'|'.join(KINDS)})|(cuda|xpu):\d+"
    if not isinstance(name, str) or re.fullmatch(pattern, name) is None:
        raise UserError(f"{key}={name}: choose auto, cpu, cuda, cuda:N (N from 0), mps or xpu")


def available_devices() -> list[str]:
    """Return the names that ``choose_device`` takes on this machine besides ``auto``."""
    import torch

    found = ["cpu"]
    for kind in ("cuda", "xpu"):
        module = getattr(torch, kind)
        count = module.device_count() if module.is_available() else 0
        found += [kind, *(f"{kind}:{n}" for n in range(count))] if count else []
    return [*found, "mps"] if torch.backends.mps.is_available() else found


def choose_device(name: object = "auto", key: str = "device") -> torch.device:
    """Return the device of that name; ``auto`` is CUDA if available, otherwise the CPU.

    Args:
        name: ``auto``, or one of ``available_devices()``.
    """
    import torch

    check_device(name, key)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    there = available_devices()
    if name not in there:
        raise UserError(f"{key}={name}: this machine has none; choose auto or {', '.join(there)}")
    return torch.device(str(name))


def check_accelerator(name: str, key: str = "trainer.accelerator") -> None:
    """Refuse a kind of device, as Lightning names them, that this machine lacks.

    Args:
        name: ``auto``, ``cpu``, ``gpu`` (CUDA or Apple's) or ``mps``.
    """
    if name in ("auto", "cpu"):
        return
    has = available_devices()
    there = ["auto", "cpu"]
    there += ["gpu"] if {"cuda", "mps"} & {*has} else []
    there += ["mps"] if "mps" in has else []
    if name not in there:
        raise UserError(f"{key}={name}: this machine has none; choose {' or '.join(there)}")


def lacks_memory(error: BaseException) -> bool:
    """Say whether an error means that memory ran out, on any device.

    >>> lacks_memory(MemoryError()), lacks_memory(RuntimeError("shapes differ"))
    (True, False)
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and (
        "out of memory" in text or "can't allocate memory" in text
    )
