"""A device that no machine has to have: each operation on it is counted, and none is computed.

``FakeTensorMode`` of torch gives a tensor on the audited device its shape, type and device without
its numbers. An operation that mixes devices raises there, as on a GPU. The mode on top of it counts
what a GPU would be sent, and leaves tensors of the processor real, so that tokenizers, keyed noise
and conversions from and to NumPy are what they always are. A number that is read from the device is
1, or true, and a result whose size depends on values has the size for values that are all true, or
all different.

Python asks for ``cuda`` and is told ``cuda``, so that the branches for a GPU are taken. Below, the
tensors are on ``lazy``, a device for which torch is not built: its engine of gradients would ask
CUDA's driver for streams, and asks nobody for those of ``lazy``. So backward passes run, and whole
trainings.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ROOT = Path(__file__).resolve().parent.parent
OWN = str(ROOT / "cfaug")
LIBRARY = str(Path(torch.__file__).parent)
COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
CUDA = torch.device("cuda", 0)
AS_OTHERS = ("torch.optim.", "torch.utils._foreach_utils")
NAMES = ("cuda", "cuda:0")
aten = torch.ops.aten

INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
SIZED_BY_VALUES = {
    aten.nonzero.default, aten.masked_select.default, aten._unique2.default,
    aten.repeat_interleave.Tensor, aten.bincount.default,
}  # fmt: skip
NOT_LAUNCHED = {
    aten.empty.memory_format, aten.empty_strided.default, aten.empty_like.default,
    aten.new_empty.default, aten.new_empty_strided.default, aten.detach.default,
    aten._unsafe_view.default, aten._reshape_alias.default, aten.set_.source_Tensor,
}  # fmt: skip
"""Operations that only make or describe memory."""


@dataclass
class Counts:
    """What a stretch of work sends to the device.

    Attributes:
        operations: the operations that compute there: a fused one is one, as is one on a list.
        allocated: the bytes of new results there.
        to_device: the number of copies to the device.
        sent: the bytes of those copies.
        unpinned: those copies of them that do not block although their memory is not pinned: CUDA
            copies it once more first, in the time of the host.
        to_host: the number of copies back.
        fetched: the bytes of those copies.
        waits: the times that the host waits for the device, by the reason and the place in the
            code: a number that is read, a copy that blocks, a size that depends on values.
    """

    operations: int = 0
    allocated: int = 0
    to_device: int = 0
    sent: int = 0
    unpinned: int = 0
    to_host: int = 0
    fetched: int = 0
    waits: Counter[str] = field(default_factory=Counter)


@contextmanager
def audited_device() -> Iterator[DeviceAudit]:
    """Make ``cuda`` the audited device, in this thread."""
    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        DeviceAudit() as audit,
        _SeenAsCuda(audit.device),
        patch.object(FakeTensor, "device", property(_seen_device)),
    ):
        yield audit


_real_device = FakeTensor.device.fget


def _seen_device(tensor: FakeTensor) -> torch.device:
    """Return ``cuda`` for the audited device, but not to torch itself, its optimizers excepted."""
    device = _real_device(tensor)
    if device.type != DeviceAudit.device.type:
        return device
    asks = sys._getframe(1).f_globals["__name__"]
    return device if asks.startswith("torch.") and not asks.startswith(AS_OTHERS) else CUDA


class DeviceAudit(TorchDispatchMode):
    """The mode that counts; ``audited_device`` enters it."""

    device = torch.device("lazy", 0)

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counts()
        self._pinned: dict[int, Any] = {}  # storages by address, which is theirs as long

    def measure(self) -> Counts:
        """Return what was counted since the last call, or since the start."""
        done, self.counts = self.counts, Counts()
        return done

    def place(self, module: nn.Module) -> None:
        """Put a module's parameters and buffers on the device, which is not counted."""
        placed: dict[int, nn.Parameter] = {}
        for part in module.modules():
            for name, weight in part._parameters.items():
                if weight is not None and id(weight) not in placed:
                    there = weight.detach().to(self.device)
                    placed[id(weight)] = nn.Parameter(there, weight.requires_grad)
                part._parameters[name] = placed.get(id(weight))
            for name, buffer in part._buffers.items():
                part._buffers[name] = None if buffer is None else buffer.to(self.device)
        self.measure()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        goes_there = torch.device(kwargs.get("device") or "cpu").type == self.device.type
        if not goes_there and not any(map(self._is_there, tree_leaves((args, kwargs)))):
            with unset_fake_temporarily():
                return self._compute_on_host(func, args, kwargs)
        if func in (aten._local_scalar_dense.default, aten.equal.default):
            self._wait("a number is read")
            dtype = torch.bool if func is aten.equal.default else args[0].dtype
            return True if dtype is torch.bool else 1.0 if dtype.is_floating_point else 1
        if func is aten.is_pinned.default:
            return False
        if func is aten._to_copy.default:
            if not self._is_there(args[0]):
                self._send(args[0], kwargs.get("non_blocking", False))
            elif not goes_there and kwargs.get("device") is not None:
                return self._fetch(args[0], kwargs.get("non_blocking", False), kwargs.get("dtype"))
        if func is aten.copy_.default and self._is_there(args[0]) != self._is_there(args[1]):
            waits = not (args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
            if self._is_there(args[0]):
                self._send(args[1], not waits)
                return args[0]
            fetched = self._fetch(args[1], not waits and self._is_pinned(args[0]))
            with unset_fake_temporarily():
                return args[0].copy_(fetched)
        if func in INDEXED and self._is_there(args[0]):
            args = (args[0], [*map(self._index, args[1])], *args[2:])
        if func in SIZED_BY_VALUES:
            self._wait(f"the size of {func.overloadpacket.__name__} depends on values")
            result = _largest(func, *args)
        elif func.namespace != "prim" and torch._C._dispatch_has_kernel_for_dispatch_key(
            func.name(), COMPOSITE
        ):
            with self:
                return func.decompose(*args, **kwargs)
        else:
            result = func(*args, **kwargs)
        self._count(func, result)
        return result

    def _is_there(self, value: Any) -> bool:
        return isinstance(value, FakeTensor) and _real_device(value).type == self.device.type

    def _compute_on_host(self, func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        if func is aten.is_pinned.default:
            return self._is_pinned(args[0])
        if func is aten._pin_memory.default:  # what CUDA would have to do
            pinned = args[0].clone()
            storage = pinned.untyped_storage()
            self._pinned[storage.data_ptr()] = storage
            return pinned
        return func(*args, **kwargs)

    def _is_pinned(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self._pinned

    def _send(self, tensor: Tensor, non_blocking: bool) -> None:
        self.counts.to_device += 1
        self.counts.sent += tensor.numel() * tensor.itemsize
        if not non_blocking:
            self._wait("a copy to the device blocks")
        elif not self._is_pinned(tensor):
            self.counts.unpinned += 1

    def _fetch(self, tensor: Tensor, lasts: bool, dtype: Any = None) -> Tensor:
        """Count a copy to the host, and return ones; ``lasts`` if the host does not wait for it."""
        self.counts.to_host += 1
        self.counts.fetched += tensor.numel() * tensor.itemsize
        if not lasts:
            self._wait("a copy to the host")
        with unset_fake_temporarily():
            return torch.ones(tensor.shape, dtype=dtype or tensor.dtype)

    def _index(self, index: Tensor | None) -> Tensor | None:
        """Return an index on the device, of numbers; torch makes it so, and waits."""
        if index is None:
            return None
        if not self._is_there(index):
            self._send(index, non_blocking=False)
        if index.dtype in (torch.bool, torch.uint8):
            self._wait("the size of a mask's rows depends on values")
            if index.ndim > 1:
                raise NotImplementedError("a mask of several dimensions")
        kind = torch.int64 if index.dtype in (torch.bool, torch.uint8) else index.dtype
        return torch.empty(index.shape, dtype=kind, device=self.device)

    def _count(self, func: Any, result: Any) -> None:
        if func.namespace == "prim" or func.is_view:
            return
        made = [value for value in tree_leaves(result) if self._is_there(value)]
        if func not in NOT_LAUNCHED:
            self.counts.operations += 1
        if not func._schema.is_mutable:
            self.counts.allocated += sum(tensor.numel() * tensor.itemsize for tensor in made)

    def _wait(self, reason: str) -> None:
        """Count a wait at the innermost line of the tool; without one, of whoever called torch."""
        place, frame = "", sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if file != __file__ and not file.startswith(LIBRARY):
                where = f"{Path(file).name}:{frame.f_code.co_name}"
                place = place or where
                if file.startswith(OWN):
                    place = f"{Path(file).relative_to(ROOT)}:{frame.f_code.co_name}"
                    break
            frame = frame.f_back
        self.counts.waits[f"{place}: {reason}"] += 1


def _largest(func: Any, tensor: Tensor, *rest: Any) -> Any:
    """Return results of the size for values that are all true, or all different."""
    count = tensor.numel()
    numbers = {"dtype": torch.int64}
    if func is aten.nonzero.default:
        return tensor.new_empty((count, tensor.ndim), **numbers)
    if func is aten.masked_select.default:
        return tensor.new_empty(torch.broadcast_shapes(tensor.shape, rest[0].shape).numel())
    if func is aten._unique2.default:
        inverse = tensor.new_empty(tensor.shape, **numbers)
        return tensor.new_empty(count), inverse, tensor.new_empty(count, **numbers)
    return tensor.new_empty(count, **numbers)


class _SeenAsCuda(TorchFunctionMode):
    """Lets Python ask for ``cuda`` and be told it, where torch is asked for the audited device."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.is_cuda.__get__:
            return args[0].device.type == "cuda"
        if func is Tensor.tolist and isinstance(args[0], FakeTensor):
            return args[0].cpu().tolist()  # one copy, as on a GPU; without numbers torch reads each
        if func is Tensor.cuda:
            return args[0].to(self.device, **kwargs)
        if func is torch.device or "autocast" in func.__name__:
            return func(*args, **kwargs)
        args = tuple(map(self._meant, args))
        return func(*args, **{name: self._meant(value) for name, value in kwargs.items()})

    def _meant(self, value: Any) -> Any:
        named = isinstance(value, torch.device) or (isinstance(value, str) and value in NAMES)
        return self.device if named and torch.device(value).type == "cuda" else value
