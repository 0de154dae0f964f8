"""The provenance of a run for its record: versions, revision, hardware, time and memory."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cfaug.run.installation import is_checkout

PACKAGES = (
    "cfaug", "torch", "torchvision", "transformers", "lightning", "open_clip_torch", "numpy",
    "pillow", "hydra-core", "safetensors",
)  # fmt: skip


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide a result."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def git_revision() -> dict[str, Any] | None:
    """Return the checkout's commit and whether it had local changes, or None outside git."""
    if not is_checkout():
        return None  # an installed package may lie within a repository of something else
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(here), *words],
            capture_output=True,
            timeout=10,
            check=True,
            encoding="utf-8",
            errors="replace",
        )
        return done.stdout.strip()

    try:
        return {
            "commit": git("rev-parse", "HEAD"),
            "dirty": bool(git("status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.SubprocessError):
        return None


def now() -> str:
    """Return the date and time in UTC, as ISO 8601 writes them."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def hardware() -> dict[str, Any]:
    """Return processor, cores and, if torch is already imported, the GPUs that it sees."""
    found: dict[str, Any] = {
        "machine": platform.machine(),
        "processor": _cpu_name(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
    }
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        found["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return found


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()


def threads() -> int | None:
    """Return torch's number of threads; CPU results may differ in the last bits with it."""
    torch = sys.modules.get("torch")
    return None if torch is None else int(torch.get_num_threads())


def peak_rss_mib() -> int:
    """Return the largest resident memory of this process so far, in MiB."""
    try:
        for line in (
            Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
        ):
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) // 1024
    except OSError:
        pass
    # On other systems; on Linux, this figure may be that of the parent process.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak / (1024 * 1024 if sys.platform == "darwin" else 1024))
