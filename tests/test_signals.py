"""SIGTERM ends a command as Ctrl-C does, and its children with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from cfaug.core.processes import interruptible

POOL = """
import sys, time
from concurrent.futures import ProcessPoolExecutor
from cfaug.core.processes import interruptible

if __name__ == "__main__":
    try:
        with interruptible(), ProcessPoolExecutor(2) as pool:
            futures = [pool.submit(time.sleep, 600) for _ in range(2)]
            time.sleep(1)
            print("started", flush=True)
            [future.result() for future in futures]
    except KeyboardInterrupt:
        sys.exit(7)
"""

CALL = """
import sys
from cfaug.core.processes import call, interruptible

CHILD = '''
import signal, sys, time
def save(*_):
    time.sleep(1)
    print("saved", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, save)
print("started", flush=True)
time.sleep(600)
'''
try:
    with interruptible():
        call([sys.executable, "-c", CHILD])
except KeyboardInterrupt:
    sys.exit(7)
"""


def test_sigterm_is_an_interruption_and_handlers_are_as_before():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("script", "said"), [(POOL, ""), (CALL, "saved")], ids=["pool", "call"])
def test_children_end_with_their_parent(tmp_path, script, said):
    """Children that sleep for ten minutes are told, and one that saves is waited for."""
    file = tmp_path / "script.py"
    file.write_text(script)
    here = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, str(file)], stdout=subprocess.PIPE, text=True, env=here
    )
    assert process.stdout.readline() == "started\n"
    process.terminate()
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 7
    assert out.strip() == said
