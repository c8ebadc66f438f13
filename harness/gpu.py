"""The GPU that workers use, read through NVML (nvidia-ml-py). Reads only: no clock is ever set.

A machine without an NVIDIA driver has no ``Gpu``; a value that this GPU does not tell is None.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil

THROTTLE_REASONS = {
    0x01: "idle",
    0x02: "application clocks",
    0x04: "sw power cap",
    0x08: "hw slowdown",
    0x10: "sync boost",
    0x20: "sw thermal slowdown",
    0x40: "hw thermal slowdown",
    0x80: "hw power brake",
    0x100: "display clock",
}
"""Bits of nvmlDeviceGetCurrentClocksThrottleReasons (NVML API reference, nvmlClocksThrottleReasons)."""
LEAVING_S = 1.0
"""How long a process that has just been killed may still be listed before it counts as foreign."""


@dataclass(frozen=True)
class GpuState:
    """One reading."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    celsius: int | None = None
    watts: float | None = None
    throttle: tuple[str, ...] | None = None
    foreign_processes: int | None = None


class Gpu:
    """The first GPU that workers may see. Made by ``find``."""

    def __init__(self, nvml: Any, device: Any) -> None:
        self._nvml, self._device = nvml, device

    def name(self) -> str | None:
        found = self._read("nvmlDeviceGetName", self._device)
        return None if found is None else str(found)

    def driver(self) -> str | None:
        found = self._read("nvmlSystemGetDriverVersion")
        return None if found is None else str(found)

    def bandwidth_bytes_s(self) -> float | None:
        """Bandwidth of its memory by the data sheet: two transfers per memory clock."""
        clock_mhz = self._read("nvmlDeviceGetMaxClockInfo", self._device, self._nvml.NVML_CLOCK_MEM)
        width_bits = self._read("nvmlDeviceGetMemoryBusWidth", self._device)
        return None if clock_mhz is None or width_bits is None else 2 * clock_mhz * 1e6 * width_bits / 8

    def state(self) -> GpuState:
        """Clocks, temperature, power, throttle reasons and foreign processes as they are now."""
        nvml, device = self._nvml, self._device
        milliwatts = self._read("nvmlDeviceGetPowerUsage", device)
        reasons = self._read("nvmlDeviceGetCurrentClocksThrottleReasons", device)
        return GpuState(
            sm_mhz=self._read("nvmlDeviceGetClockInfo", device, nvml.NVML_CLOCK_SM),
            memory_mhz=self._read("nvmlDeviceGetClockInfo", device, nvml.NVML_CLOCK_MEM),
            celsius=self._read("nvmlDeviceGetTemperature", device, nvml.NVML_TEMPERATURE_GPU),
            watts=None if milliwatts is None else milliwatts / 1000,
            throttle=None if reasons is None else names_of(reasons),
            foreign_processes=self._foreign_processes(),
        )

    def _foreign_processes(self) -> int | None:
        """Processes that compute here and are neither this one nor below it. A desktop's do not compute."""
        deadline = time.monotonic() + LEAVING_S
        while True:
            running = self._read("nvmlDeviceGetComputeRunningProcesses", self._device)
            if running is None:
                return None
            foreign = {process.pid for process in running} - _ours() if running else set()
            if not foreign or time.monotonic() >= deadline:
                return len(foreign)
            time.sleep(0.1)

    def _read(self, function: str, *arguments: Any) -> Any:
        """What NVML answers; None where this driver or GPU does not say."""
        read: Callable[..., Any] | None = getattr(self._nvml, function, None)
        if read is None:
            return None
        try:
            return read(*arguments)
        except self._nvml.NVMLError:
            return None


def find() -> Gpu | None:
    """The GPU that CUDA would number 0, None without one. NVML stays open until the process ends."""
    try:
        import pynvml
    except ImportError:
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        if visible.isdigit():
            return Gpu(pynvml, pynvml.nvmlDeviceGetHandleByIndex(int(visible)))
        if visible.startswith(("GPU-", "MIG-")):
            return Gpu(pynvml, pynvml.nvmlDeviceGetHandleByUUID(visible))
    return None


def names_of(reasons: int) -> tuple[str, ...]:
    """Names of the set bits; a bit that has no name here is told by its number."""
    bits = [1 << n for n in range(reasons.bit_length()) if reasons >> n & 1]
    return tuple(THROTTLE_REASONS.get(bit, f"reason {bit:#x}") for bit in bits)


def _ours() -> set[int]:
    return {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
