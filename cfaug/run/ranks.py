"""The processes of one run: their ranks, which of them prints, and how a command starts them.

``python -m cfaug.run.ranks`` is torchrun for ``trainer.devices=2``: its first signal stops it, any
others are ignored, and it ends with the exit code of its first failed process, not a traceback.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Annotated

from cfaug.core.errors import CALLED_BY
from cfaug.core.processes import call
from cfaug.core.validation import Means, Positive, check
from cfaug.run.installation import CHECKOUT

SAID = "CFAUG_SAID"
"""Environment variable, set if the command that started this process has printed the plan."""


def rank() -> int:
    """Return the rank that torchrun or srun gave this process; 0 without either."""
    return int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))


def has_launcher() -> bool:
    """Say whether torchrun or srun started several of this process."""
    return "WORLD_SIZE" in os.environ or int(os.environ.get("SLURM_NTASKS", "1")) > 1


def speaks() -> bool:
    """Say whether this process is the one of its run that prints the plan."""
    return rank() == 0 and SAID not in os.environ


def start_ranks(name: str, words: Sequence[str], count: int) -> int:
    """Run a command in several processes that train together; return an exit code.

    Args:
        name: the command's name, ``train``.
        words: the command line of each process.
        count: number of processes.

    Raises:
        KeyboardInterrupt: if it was interrupted, after the processes have ended.
    """
    # The folder of this very package comes first, so that the processes import the same package.
    path = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    command = [
        sys.executable, "-m", __name__, f"--nproc-per-node={count}", "-m", "cfaug", name, *words,
    ]  # fmt: skip
    told = {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", SAID: "1"}
    return call(command, env={CALLED_BY: "", **os.environ, **told})


def main(words: Sequence[str]) -> int:
    """Start the processes as torchrun does on this machine, and return an exit code."""
    signal.signal(signal.SIGINT, _ignore)  # from a terminal: the parent sends SIGTERM in its place

    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    from cfaug.run.launch import DONE, FAILED, INTERRUPTED

    told = False

    def stop(number: int, frame: FrameType | None) -> None:
        """Stop the processes, once: torchrun would leave them alone at the second signal."""
        nonlocal told
        if not told:
            told = True
            raise SignalException("stopped", signal.SIGTERM)

    logging.disable(logging.ERROR)  # torchrun's messages; the processes report their own errors
    signal.signal(signal.SIGTERM, stop)
    try:
        # torchrun replaces this handler for every signal that it is told to pass on itself.
        run(parse_args(["--standalone", "--signals-to-handle=SIGQUIT", *words]))
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        return failure.exitcode if failure.exitcode > 0 else FAILED
    except SignalException:
        return INTERRUPTED
    return DONE


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing; unlike SIG_IGN, the processes do not inherit this handler."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))


# The number of torch's threads, and how they wait for each other.

Threads = Positive | Annotated[None, Means("all cores")]
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

    Raises:
        UserError: for a number below 1.
    """
    check(threads, Threads, "threads")
    if threads is None:
        return
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
