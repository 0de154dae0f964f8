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

from cfaug.core.errors import CALLED_BY
from cfaug.core.installation import CHECKOUT
from cfaug.core.processes import PLAN_PRINTED, call


def start_ranks(name: str, words: Sequence[str], count: int) -> int:
    """Run a command in several processes that train together; return an exit code.

    Args:
        name: the command's name, ``train``.

    Raises:
        KeyboardInterrupt: if it was interrupted, after the processes have ended.
    """
    # The folder of this very package comes first, so that the processes import the same package.
    path = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    command = [
        sys.executable, "-m", __name__, f"--nproc-per-node={count}", "-m", "cfaug", name, *words,
    ]  # fmt: skip
    told = {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", PLAN_PRINTED: "1"}
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
