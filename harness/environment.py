"""Facts about the machine a run is made on. Reads only; sets nothing."""

from __future__ import annotations

import hashlib
import math
import os
import platform
import resource
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil

from harness import gpu
from harness.gpu import GpuState
from harness.probe import Probe
from harness.schema import Environment, Fitness, Machine

PROBE_BYTES = 256 * 1024 * 1024
"""Large against any cache, so that the probe reads memory."""
PROBE_REPEATS = 8
GUESTS = frozenset({"guest", "guest_nice"})
"""Times that the kernel counts as user and nice time too."""
FRESH_S = 1.0
"""A reading of the machine that is younger than this stands for the next launch too."""


def usable_cores() -> int:
    """Physical cores that this process may run on: more threads than that only disturb each other."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, psutil.cpu_count(logical=False) or allowed))


class Observer:
    """Facts taken at the start of a run and, for those that accumulate, at its end."""

    def __init__(self) -> None:
        self._cpu_times = psutil.cpu_times()
        self._bandwidth = _read_bandwidth()

    def ended(self) -> None:
        """Read the memory's speed once more: what ran beside one reading slowed that one alone."""
        self._bandwidth = max(self._bandwidth, _read_bandwidth())

    def environment(self) -> Environment:
        """The facts so far: load and stolen time cover the time since this observer was made."""
        device, here = gpu.find(), machine()
        bandwidth = device.bandwidth_bytes_s() if device else self._bandwidth
        return Environment(
            hostname_sha256=here.hostname_sha256,
            os=f"{platform.system()} {platform.release()} {platform.machine()}",
            python=platform.python_version(),
            cpu=here.cpu,
            cores=here.cores,
            memory_bytes=psutil.virtual_memory().total,
            gpu=here.gpu,
            driver=here.driver,
            load_average=os.getloadavg(),
            steal_pct=_steal_pct(self._cpu_times),
            bandwidth_bytes_s=bandwidth,
        )


class Watch:
    """Fitness of the machine around each launch: ``before``, then the launch, then ``after``.

    Between two launches that follow one another the machine is read once, for both.
    """

    def __init__(self) -> None:
        self._probe = Probe()
        self._gpu = gpu.find()
        self._last: Fitness | None = None
        self._last_at = -math.inf
        self._cpu_times, self._own = psutil.cpu_times(), _own_cpu_s()

    def before(self) -> Fitness:
        """The machine just before a launch. What accumulates is counted from here on and not known yet."""
        if self._last is None or time.perf_counter() - self._last_at > FRESH_S:
            self._read()
        assert self._last is not None
        self._cpu_times, self._own = psutil.cpu_times(), _own_cpu_s()
        return msgspec.structs.replace(self._last, steal_pct=None, foreign_cpu_pct=None)

    def after(self) -> Fitness:
        """The machine just after a launch, whose worker must have ended and been waited for."""
        foreign = _foreign_pct(self._cpu_times, self._own)
        return self._read(_steal_pct(self._cpu_times), foreign)

    def _read(self, steal_pct: float | None = None, foreign_cpu_pct: float | None = None) -> Fitness:
        # The GPU first: its clocks and temperature are still those of the launch.
        seen = self._gpu.state() if self._gpu else GpuState()
        self._last = Fitness(
            probe_s=self._probe.seconds(),
            load_average=os.getloadavg()[0],
            steal_pct=steal_pct,
            foreign_cpu_pct=foreign_cpu_pct,
            cpu_mhz=_cpu_mhz(),
            gpu_sm_mhz=seen.sm_mhz,
            gpu_memory_mhz=seen.memory_mhz,
            gpu_celsius=seen.celsius,
            gpu_watts=seen.watts,
            gpu_throttle=seen.throttle,
            gpu_foreign_processes=seen.foreign_processes,
        )
        self._last_at = time.perf_counter()
        return self._last


class Unwatched:
    """Takes the place of ``Watch`` where the machine's fitness is nobody's question."""

    def before(self) -> None:
        """Nothing is read."""

    def after(self) -> None:
        """Nothing is read."""


def machine() -> Machine:
    """What makes this machine another one than its neighbour, as far as a measurement is concerned."""
    device = gpu.find()
    return Machine(
        hostname_sha256=hashlib.sha256(platform.node().encode()).hexdigest(),
        cpu=_cpu_name(),
        cores=usable_cores(),
        gpu=device.name() if device else None,
        driver=device.driver() if device else None,
    )


def _steal_pct(since: Any) -> float | None:
    """CPU time that the host gave to others since ``since`` (psutil.cpu_times), in percent of all time."""
    now = psutil.cpu_times()
    total = sum(now) - sum(since)
    if not hasattr(now, "steal") or total <= 0:
        return None
    return float(max(0.0, 100 * (now.steal - since.steal) / total))


def _own_cpu_s() -> float:
    """CPU time of this process and of all its children that have ended, in seconds."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _foreign_pct(since: Any, own_since: float) -> float | None:
    """Busy time since ``since`` (psutil.cpu_times) that was not our own, in percent of all cores' time.

    A child of the worker that it never waited for counts as foreign: nobody learns what it used.
    """
    now = psutil.cpu_times()
    spent = {name: getattr(now, name) - getattr(since, name) for name in now._fields if name not in GUESTS}
    total = sum(spent.values())
    if total <= 0:
        return None
    busy = total - sum(spent.get(name, 0.0) for name in ("idle", "iowait", "steal"))
    return float(max(0.0, 100 * (busy - (_own_cpu_s() - own_since)) / total))


def _cpu_mhz() -> float | None:
    with suppress(OSError, NotImplementedError, RuntimeError):
        frequency = psutil.cpu_freq()
        return float(frequency.current) if frequency and frequency.current else None
    return None


def _read_bandwidth() -> float:
    """Fastest of several parallel reads of a buffer, in bytes per second."""
    buffer = np.ones(PROBE_BYTES // 8, dtype=np.int64)
    parts = np.array_split(buffer, usable_cores())
    best = 0.0
    for _ in range(PROBE_REPEATS):
        threads = [threading.Thread(target=part.max) for part in parts]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        best = max(best, buffer.nbytes / (time.perf_counter() - started))
    return best


def _cpu_name() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
