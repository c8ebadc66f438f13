"""How many CPU threads to compute with."""

from __future__ import annotations

import os
from pathlib import Path

import torch

VARIABLE = "OMP_NUM_THREADS"


def set_threads() -> None:
    """One thread per physical core this process may use, unless ``OMP_NUM_THREADS`` says otherwise.

    Two threads on one core share its vector units and its memory port: decoding only waits more.
    """
    if VARIABLE not in os.environ:
        torch.set_num_threads(min(physical_cores(), quota() or physical_cores()))


def physical_cores() -> int:
    """Physical cores among the CPUs this process may run on."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cores = set()
    for cpu in os.sched_getaffinity(0):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.add(siblings.read_text() if siblings.exists() else str(cpu))
    return max(1, len(cores))


def quota() -> int | None:
    """Whole CPUs that the container's quota allows; None without one."""
    try:
        allowed, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if allowed == "max" else max(1, int(allowed) // int(period))
