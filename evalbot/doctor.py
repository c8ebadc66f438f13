"""What this machine can and cannot do, as checks with what to do about each."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import psutil

from evalbot import calibrations, git
from evalbot.errors import InfraError
from evalbot.record import cache_directory
from harness import environment

MEMORY_NEEDED_GB = 4.0
DISK_NEEDED_GB = 3.0
_PROBE = (
    "import torch; c = torch.cuda.is_available(); "
    "print(torch.__version__); print(torch.cuda.get_device_name() if c else '')"
)


@dataclass(frozen=True)
class Check:
    """One fact about the machine."""

    name: str
    ok: bool
    found: str
    advice: str = ""
    """What to do, where ``ok`` is false."""
    needed: bool = True
    """Whether local scoring is impossible without it."""


def checks() -> Iterator[Check]:
    """Every check, in order of dependence. Importing torch takes a second or two."""
    found = ".".join(map(str, sys.version_info[:3]))
    yield Check("python", sys.version_info >= (3, 11), found, "Install Python 3.11 or newer.")
    yield _git()
    torch, gpu = _torch()
    yield torch
    cores = len(os.sched_getaffinity(0))
    yield Check(
        "cores", cores >= 2, str(cores), "Timing needs a core beside the engine's own: use two or more."
    )
    memory = psutil.virtual_memory().available / 1e9
    yield Check(
        "memory",
        memory >= MEMORY_NEEDED_GB,
        f"{memory:.1f} GB free",
        f"Free {MEMORY_NEEDED_GB:g} GB for the model.",
    )
    yield from _cache()
    yield gpu
    yield from calibrated(datetime.now(UTC))
    yield _sandbox()


def _git() -> Check:
    advice = f"Install git {'.'.join(map(str, git.MINIMUM_VERSION))} or newer."
    try:
        have = git.version()
    except InfraError as error:
        return Check("git", False, str(error), advice)
    return Check("git", have >= git.MINIMUM_VERSION, ".".join(map(str, have)), advice)


def _torch() -> tuple[Check, Check]:
    """torch is imported by a child: evalbot itself never loads it."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=120, check=False
        )
    except subprocess.TimeoutExpired:
        broken = Check("torch", False, "did not import within 120 s", "Reinstall it: make clean setup.")
        return broken, Check("gpu", False, "unknown without torch", needed=False)
    lines = done.stdout.splitlines()
    if done.returncode != 0 or len(lines) < 2:
        said = done.stderr.strip().splitlines()
        broken = Check(
            "torch", False, said[-1] if said else "does not import", "Reinstall it: make clean setup."
        )
        return broken, Check("gpu", False, "unknown without torch", needed=False)
    gpu = Check(
        "gpu",
        bool(lines[1]),
        lines[1] or "none that torch can use",
        "CPU plans work; gpu-4k needs one.",
        needed=False,
    )
    return Check("torch", True, lines[0]), gpu


def _cache() -> Iterator[Check]:
    cache = cache_directory()
    parent = next(path for path in (cache, *cache.parents) if path.exists())
    free = shutil.disk_usage(parent).free / 1e9
    advice = f"Free {DISK_NEEDED_GB:g} GB there, or set EVALBOT_CACHE to a larger disk."
    yield Check("disk", free >= DISK_NEEDED_GB, f"{free:.1f} GB free for {cache}", advice)
    writable = os.access(parent, os.W_OK)
    yield Check(
        "cache", writable, str(cache), "Make it writable, or set EVALBOT_CACHE to a directory that is."
    )
    models = sorted(path.name for path in (cache / "models").glob("*") if path.is_dir())
    yield Check(
        "model",
        bool(models),
        ", ".join(models) or "none cached",
        "The first score fetches it (~150 MB).",
        needed=False,
    )


def calibrated(now: datetime) -> Iterator[Check]:
    """A line for each calibration of this machine, the latest first."""
    here = environment.machine()
    known = [found for found in calibrations.stored() if found.machine == here]
    advice = "Local scoring works; to publish, run evalbot calibrate."
    if not known:
        yield Check("calibration", False, "none of this machine", advice, needed=False)
    for found in known:
        age = (now - datetime.fromisoformat(found.measured_at)).days
        runs, alarms = len(found.runs), found.false_positives
        text = (
            f"plan {found.epoch.plan}, {age} day{'' if age == 1 else 's'} old, "
            f"{runs} run{'' if runs == 1 else 's'}, "
            + (f"{alarms} with a false positive" if alarms else "no false positive")
        )
        holds = not found.expired(now) and not found.false_positives
        yield Check("calibration", holds, text, advice, needed=False)


def _sandbox() -> Check:
    return Check(
        "sandbox",
        False,
        "none: changes run unsandboxed, as you",
        "Score only code that you would run.",
        needed=False,
    )
