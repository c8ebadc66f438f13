"""Facts about the machine a run is made on. Reads only; sets nothing."""

from __future__ import annotations

import hashlib
import os
import platform
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil

from harness.schema import Environment

PROBE_BYTES = 256 * 1024 * 1024
"""Large against any cache, so that the probe reads memory."""
PROBE_REPEATS = 8


def usable_cores() -> int:
    """Physical cores that this process may run on: more threads than that only disturb each other."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, psutil.cpu_count(logical=False) or allowed))


class Observer:
    """Facts taken at the start of a run and, for those that accumulate, at its end."""

    def __init__(self) -> None:
        self._cpu_times = psutil.cpu_times()
        self._bandwidth = _read_bandwidth()

    def environment(self) -> Environment:
        """The facts so far: load and stolen time cover the time since this observer was made."""
        gpu = _gpu()
        bandwidth = gpu[2] if gpu else max(self._bandwidth, _read_bandwidth())
        return Environment(
            hostname_sha256=hashlib.sha256(platform.node().encode()).hexdigest(),
            os=f"{platform.system()} {platform.release()} {platform.machine()}",
            python=platform.python_version(),
            cpu=_cpu_name(),
            cores=usable_cores(),
            memory_bytes=psutil.virtual_memory().total,
            gpu=gpu[0] if gpu else None,
            driver=gpu[1] if gpu else None,
            load_average=os.getloadavg(),
            steal_pct=self._steal_pct(),
            bandwidth_bytes_s=bandwidth,
        )

    def _steal_pct(self) -> float | None:
        now = psutil.cpu_times()
        total = sum(now) - sum(self._cpu_times)
        if not hasattr(now, "steal") or total <= 0:
            return None
        return float(max(0.0, 100 * (now.steal - self._cpu_times.steal) / total))


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


def _gpu() -> tuple[str, str, float | None] | None:
    """Name, driver and data-sheet bandwidth (two transfers per memory clock) of the first GPU, if any."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        name, driver = pynvml.nvmlDeviceGetName(device), pynvml.nvmlSystemGetDriverVersion()
        bandwidth = None
        with suppress(pynvml.NVMLError):
            clock_mhz = pynvml.nvmlDeviceGetMaxClockInfo(device, pynvml.NVML_CLOCK_MEM)
            width_bits = pynvml.nvmlDeviceGetMemoryBusWidth(device)
            bandwidth = 2 * clock_mhz * 1e6 * width_bits / 8
        return str(name), str(driver), bandwidth
    except pynvml.NVMLError:
        return None
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
