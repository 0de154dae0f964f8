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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.overrides import TorchFunctionMode
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torchmetrics import Metric

ROOT = Path(__file__).resolve().parent.parent
OWN, HARNESS, TORCH = ROOT / "cfaug", Path(__file__).resolve(), Path(torch.__file__).parent
COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
CUDA = torch.device("cuda", 0)
NAMES = ("cuda", "cuda:0")
LISTED = _foreach_utils._foreach_supported_types
AS_OTHERS = ("torch.optim.", "torch.utils._foreach_utils")
"""The modules of torch that choose by the device, as code outside torch does."""
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

    @property
    def own_waits(self) -> int:
        """The waits that the tool's own lines ask for, and no line of a library that it calls."""
        return sum(count for place, count in self.waits.items() if place.startswith("cfaug/"))

    @property
    def library_waits(self) -> int:
        """The other waits."""
        return self.waits.total() - self.own_waits


@contextmanager
def audited_device() -> Iterator[DeviceAudit]:
    """Make ``cuda`` the audited device, in this thread."""
    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        DeviceAudit() as audit,
        _SeenAsCuda(audit),
        patch.object(FakeTensor, "device", property(_seen_device)),
        patch.object(FakeTensor, "is_cuda", property(audit.is_there), create=True),
        # One copy, as on a GPU; without numbers torch reads one after the other.
        patch.object(FakeTensor, "tolist", lambda tensor: tensor.cpu().tolist()),
        # Operations on lists of tensors are taken as on a GPU.
        patch.object(_foreach_utils, "_foreach_supported_types", [*LISTED, FakeTensor]),
        patch.object(
            _foreach_utils, "_get_foreach_kernels_supported_devices", lambda: ["cuda", "lazy"]
        ),
        # As it would be without: transformers skips a question that makes the host wait.
        patch("transformers.utils.import_utils.is_fake_tensor", return_value=False),
        patch.object(nn.Module, "to", _placing(audit)),
        patch.object(nn.Module, "cpu", lambda module: module),  # at the end of a training
    ):
        yield audit


def _placing(audit: DeviceAudit) -> Callable[..., nn.Module]:
    """Return ``Module.to`` for the audited device: torch's cannot make weights fake."""
    real = nn.Module.to

    def to(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        device, dtype, _, layout = torch._C._nn._parse_to(*args, **kwargs)
        if (dtype or layout) and not all(map(audit.is_there, module.parameters())):
            real(module, dtype=dtype, memory_format=layout)
        if device is not None and device.type == "cuda":
            audit.place(module)
        return module

    return to


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
        self._pinned: dict[int, Any] = {}  # storages by address; kept, so that no other gets it

    def measure(self) -> Counts:
        """Return what was counted since the last call, or since the start."""
        done, self.counts = self.counts, Counts()
        return done

    def place(self, module: nn.Module) -> None:
        """Put a module's parameters and buffers on the device, which is not counted."""
        placed: dict[nn.Parameter, nn.Parameter] = {}  # tied weights stay tied
        for part in module.modules():
            for name, weight in part._parameters.items():
                if weight is not None and weight not in placed:
                    there = weight.detach().to(self.device)
                    placed[weight] = nn.Parameter(there, weight.requires_grad)
                part._parameters[name] = None if weight is None else placed[weight]
            for name, buffer in part._buffers.items():
                part._buffers[name] = None if buffer is None else buffer.to(self.device)
            if isinstance(part, Metric):
                for name in part._defaults:
                    state = getattr(part, name)
                    setattr(part, name, state if isinstance(state, list) else state.to(self.device))
        self.measure()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        devices = [leaf for leaf in leaves if isinstance(leaf, torch.device)]
        goes_there = any(device.type == self.device.type for device in devices)
        if not goes_there and not any(map(self.is_there, leaves)):
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        if func in (aten.equal.default, aten.allclose.default):
            self._wait("a number is read")
            return True
        if func is aten._local_scalar_dense.default:
            self._wait("a number is read")
            dtype = args[0].dtype
            return True if dtype is torch.bool else 1.0 if dtype.is_floating_point else 1
        if func is aten._to_copy.default:
            if not self.is_there(args[0]):
                self._send(args[0], kwargs.get("non_blocking", False))
                return func(*args, **kwargs)
            if devices and not goes_there:
                return self._fetch(args[0], kwargs.get("non_blocking", False), kwargs.get("dtype"))
        if func is aten.copy_.default and self.is_there(args[0]) != self.is_there(args[1]):
            waits = not (args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
            if self.is_there(args[0]):
                self._send(args[1], not waits)
                return args[0]
            fetched = self._fetch(args[1], not waits and self.is_pinned(args[0]))
            with unset_fake_temporarily():
                return args[0].copy_(fetched)
        if func in INDEXED and self.is_there(args[0]):
            places = [place for index in args[1] for place in self._index(index)]
            args = (args[0], places, *args[2:])
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

    def is_there(self, value: Any) -> bool:
        """Return whether a value is a tensor on the audited device."""
        return isinstance(value, FakeTensor) and _real_device(value).type == self.device.type

    def pin(self, tensor: Tensor) -> Tensor:
        """Return a copy of a host's tensor in memory that counts as pinned."""
        if self.is_pinned(tensor):
            return tensor
        pinned = tensor.clone()
        storage = pinned.untyped_storage()
        self._pinned[storage.data_ptr()] = storage
        return pinned

    def is_pinned(self, tensor: Tensor) -> bool:
        """Return whether a tensor, or what it is a part of, was pinned."""
        return not self.is_there(tensor) and tensor.untyped_storage().data_ptr() in self._pinned

    def _send(self, tensor: Tensor, non_blocking: bool) -> None:
        self.counts.to_device += 1
        self.counts.sent += tensor.numel() * tensor.itemsize
        if not non_blocking:
            self._wait("a copy to the device blocks")
        elif not self.is_pinned(tensor):
            self.counts.unpinned += 1

    def _fetch(self, tensor: Tensor, non_blocking: bool, dtype: Any = None) -> Tensor:
        """Count a copy to the host, and return ones there."""
        self.counts.to_host += 1
        self.counts.fetched += tensor.numel() * tensor.itemsize
        if not non_blocking:
            self._wait("a copy to the host")
        with unset_fake_temporarily():
            return torch.ones(tensor.shape, dtype=dtype or tensor.dtype)

    def _index(self, index: Tensor | None) -> list[Tensor | None]:
        """Return an index as torch makes it: numbers there, for each dimension of a mask."""
        if index is None:
            return [None]
        if not self.is_there(index):
            self._send(index, non_blocking=False)
        if index.dtype is not torch.bool:
            return [torch.empty(index.shape, dtype=index.dtype, device=self.device)]
        self._wait("the number of a mask's rows depends on values")
        numbers = torch.empty(index.numel(), dtype=torch.int64, device=self.device)
        return [numbers] * index.ndim

    def _count(self, func: Any, result: Any) -> None:
        if func.namespace == "prim" or func.is_view:
            return
        made = [value for value in tree_leaves(result) if self.is_there(value)]
        if func not in NOT_LAUNCHED:
            self.counts.operations += 1
        if not func._schema.is_mutable:
            self.counts.allocated += sum(tensor.numel() * tensor.itemsize for tensor in made)

    def _wait(self, reason: str) -> None:
        """Count a wait at the tool's innermost function, and at the library's that it called."""
        places: list[str] = []
        frame = sys._getframe(1)
        while frame is not None and not (places and places[-1].startswith("cfaug/")):
            file = Path(frame.f_code.co_filename)
            if file.is_relative_to(OWN):
                places.append(f"{file.relative_to(ROOT).as_posix()}:{frame.f_code.co_name}")
            elif not places and file != HARNESS and not file.is_relative_to(TORCH):
                places.append(f"{file.parent.name}/{file.name}:{frame.f_code.co_name}")
            frame = frame.f_back
        self.counts.waits[f"{' < '.join(places)}: {reason}"] += 1


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

    def __init__(self, audit: DeviceAudit) -> None:
        super().__init__()
        self.audit, self.device = audit, audit.device

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.pin_memory:
            return self.audit.pin(args[0])
        if func is Tensor.is_pinned:
            return self.audit.is_pinned(args[0])
        if func is Tensor.cuda:
            return args[0].to(self.device, **kwargs)
        if func.__name__ in ("device", "_parse_to") or "autocast" in func.__name__:
            return func(*args, **kwargs)
        args = tuple(map(self._meant, args))
        return func(*args, **{name: self._meant(value) for name, value in kwargs.items()})

    def _meant(self, value: Any) -> Any:
        named = isinstance(value, torch.device) or (isinstance(value, str) and value in NAMES)
        return self.device if named and torch.device(value).type == "cuda" else value
