"""The machine: processes, signals and locks, its devices, and where cfaug is installed."""

from __future__ import annotations

import fcntl
import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Annotated, Any

from cfaug.core.annotations import Means
from cfaug.core.errors import UserError
from cfaug.core.validation import Processes, check

if TYPE_CHECKING:
    import torch


AGAIN_SECONDS = 1.0
"""A Ctrl-C within this time is the same one: a terminal and torchrun each pass it on."""
SAID = b"stopping after this step; Ctrl-C again stops at once and loses what is not saved\n"


ENDINGS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""Signals that announce the end of a process: schedulers send SIGTERM, SIGUSR1 or SIGUSR2 some time
before they kill, a terminal that is closed SIGHUP, and a limit of processor time SIGXCPU."""
Handlers = dict[signal.Signals, Any]
"""{signal: what ``signal.getsignal`` returned for it}."""
_arrived: dict[int, None] = {}
"""The announcements that reached this process, in order, since ``interruptible`` began."""


class Ending:
    """A handler of ``ENDINGS`` of this package's, to tell it from those of other libraries."""

    def __init__(self, act: Callable[[int], None]) -> None:
        self.act = act

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Note that the signal arrived, and act."""
        _arrived[number] = None
        self.act(number)


def handle_endings(act: Callable[[int], None]) -> None:
    """Call a function at each announcement of the end from now on; needs the main thread.

    A signal that was ignored stays so (as ``nohup`` leaves SIGHUP), but for SIGTERM.
    """
    ending = Ending(act)
    for number in ENDINGS:
        if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, ending)


@contextmanager
def keep_handlers() -> Iterator[Handlers]:
    """Restore the handlers of ``ENDINGS`` and Ctrl-C when the block ends; give what they are."""
    before = {name: signal.getsignal(name) for name in (signal.SIGINT, *ENDINGS)}
    try:
        yield before
    finally:
        for name, handler in before.items():
            if signal.getsignal(name) is not handler:
                signal.signal(name, handler)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt on ``ENDINGS``, as Python does on Ctrl-C, so that files are closed.

    Child processes of ``multiprocessing`` are terminated as well: a scheduler may have signalled
    only this process, and a pool waits for its children before it ends. Work that must not be
    interrupted, such as a training step, installs its own handlers meanwhile.

    Once the work has ended, another library's handler gets the signal that it waited for, such as
    submitit's, which puts the job into the queue again and exits.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may install handlers
        return
    owner = os.getpid()
    heard: set[int] = set()

    def stop(number: int) -> None:
        if number != signal.SIGTERM and number in heard:
            return  # a limit of processor time repeats its signal every second
        heard.add(number)
        if os.getpid() == owner:  # a forked child has this handler, but not these children
            pools = sys.modules.get("multiprocessing")  # without it there are no children
            for child in pools.active_children() if pools else ():
                child.terminate()
        raise KeyboardInterrupt

    outermost = not isinstance(signal.getsignal(signal.SIGTERM), Ending)
    if outermost:
        _arrived.clear()
    before: Handlers = {}
    try:
        with keep_handlers() as before:
            handle_endings(stop)
            yield
    except KeyboardInterrupt:
        for number in list(_arrived) if outermost else ():
            handler = before[signal.Signals(number)]
            if callable(handler):
                handler(number, None)  # may end the process
        raise


@contextmanager
def uncollected() -> Iterator[None]:
    """Search for no garbage meanwhile: a fifth of the time of importing torch and its like."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def call(command: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """Run a program and return its exit code; on an interruption, stop it and wait for its end.

    ``subprocess.call`` would kill it after a quarter of a second, before it could save.

    Args:
        env: its environment variables; ``None`` takes those of this process.
    """
    with subprocess.Popen(command, env=env) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            raise


class StopRequest:
    """A record of whether this process should stop, requested by one of ``ENDINGS`` or by Ctrl-C.

    Lightning's own handler ends a run at its next check, which may come after the decision whether
    to save and before the next step. This one only records the request.
    """

    def __init__(self) -> None:
        self.requested = False
        self._interrupted: float | None = None

    def listen(self) -> None:
        """Record these signals from now on, replacing other handlers; needs the main thread.

        Lightning installs its handler at the start of ``fit``, so this is called again after that.
        """
        if threading.current_thread() is threading.main_thread():
            handle_endings(self._note_ending)
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # ignored in the background
                signal.signal(signal.SIGINT, self._note_interrupt)

    def _note_ending(self, number: int) -> None:
        self.requested = True

    def _note_interrupt(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        now = time.monotonic()
        if self._interrupted is None:
            self._interrupted = now
            if os.environ.get("RANK", "0") == "0":
                with suppress(OSError):
                    os.write(2, SAID)  # the handler may have interrupted a print
        elif now - self._interrupted > AGAIN_SECONDS:
            raise KeyboardInterrupt


def obey_parent(worker: int) -> None:
    """Make SIGTERM end this process only if its parent sent it, and the rest of ``ENDINGS`` never.

    A scheduler sends them to every process of a job at once, but a run first finishes its step and
    saves, which the death of a worker would prevent.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    parent = os.getppid()

    def end_when_told() -> None:
        while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
            pass
        os._exit(0)

    threading.Thread(target=end_when_told, daemon=True).start()


def end_with_parent() -> None:
    """Stop this process of a pool, as SIGTERM does, once its parent is gone.

    A parent that is killed (SIGKILL, or for memory) cannot stop its processes, and they would wait
    for the next job for ever. A run first finishes its step and saves.
    """
    for number in ENDINGS:  # a forked process has its parent's handlers
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)

    def stop_without_parent() -> None:
        from multiprocessing import parent_process

        parent = parent_process()
        assert parent is not None
        parent.join()  # waits for its end
        while True:  # until no handler takes it for a request to save
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            time.sleep(1)

    threading.Thread(target=stop_without_parent, daemon=True).start()


def acquire(file: IO[str] | int, *, shared: bool = False, wait: bool = True) -> bool:
    """Lock an open file until it is closed; convert a lock that is already held.

    Args:
        shared: whether other shared locks are admitted; an exclusive one never is.
        wait: whether to block until other processes release the file; otherwise return at once.

    Returns:
        Whether the lock is held now; always true with ``wait``.
    """
    operation = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, operation if wait else operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def hold_lock(path: Path, refusal: str | None = None) -> Iterator[None]:
    """Hold an exclusive lock on a file while the block runs; the file is created if missing.

    Args:
        refusal: the error's message if another process holds the lock; ``None`` waits for it.

    Raises:
        OSError: if the file cannot be opened.
    """
    with path.open("a", encoding="utf-8") as file:
        if not acquire(file, wait=refusal is None):
            assert refusal is not None
            raise UserError(refusal)
        yield


PLAN_PRINTED = "CFAUG_SAID"
"""Environment variable, set if the command that started this process has printed the plan."""


def rank() -> int:
    """Return the rank that torchrun or srun gave this process; 0 without either."""
    return int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))


def has_launcher() -> bool:
    """Say whether torchrun or srun started several of this process."""
    return "WORLD_SIZE" in os.environ or int(os.environ.get("SLURM_NTASKS", "1")) > 1


def speaks() -> bool:
    """Say whether this process is the one of its run that prints the plan."""
    return rank() == 0 and PLAN_PRINTED not in os.environ


Threads = Processes | Annotated[None, Means("all cores")]
"""The number of torch's threads."""
SPINS = "2000"
"""Turns of a waiting thread before it sleeps. A step of the tiny CLIP on two cores, at 100,000,
2,000 and 0 turns: on an idle machine 45, 57 and 71 ms (one thread: 77); beside two busy processes
5.6 to 11, 1.2 to 1.4 and 0.7 to 1.6 times the step of a single thread."""


def wait_briefly() -> None:
    """Make waiting OpenMP threads sleep soon, unless the user chose otherwise.

    On a busy machine a spinning thread takes the core from the thread that it waits for. Must be
    called before torch is loaded. The number of threads, which changes the last digits of sums,
    stays the same, and so do all results.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
        os.environ.setdefault("KMP_BLOCKTIME", "0")  # of LLVM's and Intel's OpenMP


def use_threads(threads: Threads) -> None:
    """Set the number of torch's threads for this process and its children.

    Args:
        threads: the number, at least 1; ``None`` leaves it to OMP_NUM_THREADS or the number of
            cores.
    """
    check(threads, Threads, "threads")
    if threads is not None:
        _set_threads(threads)


def _set_threads(threads: int) -> None:
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)


EQUAL_THREADS = 2
"""Torch's threads while shards are made, on every machine, in every part and worker. One thread
takes other kernels than two for a convolution of one pixel, and three cut activations at other
places, so that last digits differ. On a single core the second thread costs 4 % of the time."""


@contextmanager
def equal_threads(threads: Threads) -> Iterator[None]:
    """Have results that depend on no machine: torch has ``EQUAL_THREADS`` threads meanwhile.

    Args:
        threads: a number above ``EQUAL_THREADS`` to have in its place.
    """
    variable, torch = os.environ.get("OMP_NUM_THREADS"), sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    _set_threads(max(EQUAL_THREADS, threads or 0))
    try:
        yield
    finally:
        os.environ.pop("OMP_NUM_THREADS")
        if variable is not None:
            os.environ["OMP_NUM_THREADS"] = variable
        if torch is not None and before is not None:
            torch.set_num_threads(before)


def count_threads() -> int:
    """Return the number of threads that torch would use: OMP_NUM_THREADS, else all cores."""
    chosen = os.environ.get("OMP_NUM_THREADS", "")
    if chosen.isdecimal() and int(chosen):
        return int(chosen)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# The choice of the device that a model runs on. Torch is imported when it is needed.

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

    names = ["cpu"]
    for kind in ("cuda", "xpu"):
        module = getattr(torch, kind)
        count = module.device_count() if module.is_available() else 0
        names += [kind, *(f"{kind}:{n}" for n in range(count))] if count else []
    return [*names, "mps"] if torch.backends.mps.is_available() else names


def choose_device(name: object = "auto", key: str = "device") -> torch.device:
    """Return the device of that name; ``auto`` is CUDA if available, otherwise the CPU.

    Args:
        name: ``auto``, or one of ``available_devices()``.
    """
    with uncollected():
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


# The place of the settings (``conf/``) and sweeps (``sweeps/``): in the repository or the wheel.
#
# They are at the top level of the repository, where people look for them; a wheel has them inside
# the package.

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = PACKAGE.parent
"""The repository, if ``cfaug`` is used from a clone."""


def find_folder(name: str) -> Path:
    """Return a folder of the repository's top level, as it is installed.

    Args:
        name: ``conf`` or ``sweeps``.

    Raises:
        FileNotFoundError: if the installation lacks it.
    """
    for folder in (CHECKOUT / name, PACKAGE / name):
        # Beside an installed package, a folder of that name may belong to another package.
        if folder.is_dir() and (folder.parent == PACKAGE or is_checkout()):
            return folder
    raise FileNotFoundError(f"{name}/ is missing: the installation of cfaug is incomplete")


def is_checkout() -> bool:
    """Say whether the package is used from a clone of its repository."""
    return (CHECKOUT / "pyproject.toml").is_file() and (CHECKOUT / "train.py").is_file()


EXTRAS = {
    "diffusers": "generate",
    "textblob": "generate",
    "open_clip": "open_clip",
    "wandb": "loggers",
    "tensorboard": "loggers",
    "tensorboardX": "loggers",
    "trackio": "trackio",
    "torch_fidelity": "fid",
    "pandas": "notebook",
    "hydra_plugins": "slurm",
}
"""The extra that has each module, as ``pyproject.toml`` lists them."""
LOGGERS = {
    "wandb": ("wandb",),
    "tensorboard": ("tensorboard", "tensorboardX"),
    "trackio": ("trackio",),
}
"""{logger: its modules, any of which suffices}."""


def explain_missing(error: Exception) -> str | None:
    """Say which extra has a module that could not be imported; ``None`` for any other error.

    Args:
        error: the error of an import; some libraries name the module only in the message.
    """
    if not isinstance(error, ImportError):
        return None
    named = (error.name or "").partition(".")[0]
    words = [named, *re.findall(r"\w+", str(error))]
    module = next((word for word in words if word in EXTRAS), None)
    if module is None:
        return None
    return _say_missing(module)


def check_logger(kind: str) -> None:
    """Refuse a logger whose package is missing, before there is anything to log.

    Args:
        kind: the kind of the logger; a logger without a package of its own passes.
    """
    modules = LOGGERS.get(kind, ())
    # A folder ./wandb of earlier runs is found as well, as a namespace package without a file.
    if modules and not any((spec := find_spec(module)) and spec.origin for module in modules):
        raise UserError(_say_missing(modules[0]))


def _say_missing(module: str) -> str:
    return f"{module} is missing, which this command needs: pip install 'cfaug[{EXTRAS[module]}]'"
