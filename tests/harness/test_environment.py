"""What is read of the machine, with and without a GPU, and what it costs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest

from harness import environment, gpu
from harness.environment import Watch, machine
from harness.probe import Probe


class NVMLError(Exception):
    pass


def nvml(**changes: Any) -> SimpleNamespace:
    """pynvml of a machine with two GPUs: handles are their names, answers are of an idle, healthy GPU."""

    def start() -> None:
        return None

    known: dict[str, Any] = {
        "NVMLError": NVMLError,
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlInit": start,
        "nvmlDeviceGetHandleByIndex": lambda index: f"GPU {index}",
        "nvmlDeviceGetHandleByUUID": lambda uuid: f"GPU of {uuid}",
        "nvmlDeviceGetName": lambda device: device,
        "nvmlSystemGetDriverVersion": lambda: "580.1",
        "nvmlDeviceGetMaxClockInfo": lambda device, kind: 1000,
        "nvmlDeviceGetMemoryBusWidth": lambda device: 1024,
        "nvmlDeviceGetClockInfo": lambda device, kind: {1: 1980, 2: 3201}[kind],
        "nvmlDeviceGetTemperature": lambda device, sensor: 41,
        "nvmlDeviceGetPowerUsage": lambda device: 75_500,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda device: 0x1,
        "nvmlDeviceGetComputeRunningProcesses": lambda device: [],
    }
    return SimpleNamespace(**{**known, **changes})


def install(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", nvml(**changes))
    monkeypatch.setattr(gpu, "LEAVING_S", 0.2)


def fails(*arguments: Any) -> Any:
    raise NVMLError


def processes(*pids: int) -> Any:
    return lambda device: [SimpleNamespace(pid=pid) for pid in pids]


def test_a_probe_takes_tens_of_milliseconds_and_repeats_itself() -> None:
    probe = Probe()
    started = time.perf_counter()
    readings = sorted(probe.seconds() for _ in range(5))
    spent = time.perf_counter() - started
    # Wide, for slow and busy machines; a probe of microseconds or of seconds is outside.
    assert 0.004 < readings[2] < 0.4
    assert spent >= sum(readings)
    assert readings[3] / readings[1] < 2.0


def test_a_watch_reads_a_machine_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, nvmlInit=fails)
    watch = Watch()
    before = watch.before()
    after = watch.after()
    assert before.probe_s
    assert before.load_average is not None
    assert before.steal_pct is None
    for seen in (before, after):
        assert seen.gpu_sm_mhz is seen.gpu_throttle is seen.gpu_foreign_processes is None
    assert machine().gpu is None
    assert machine().driver is None


def test_between_two_launches_the_machine_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, nvmlInit=fails)
    watch = Watch()
    watch.before()
    after = watch.after()
    following = watch.before()
    assert following.probe_s == after.probe_s
    assert following.steal_pct is None
    monkeypatch.setattr(environment, "FRESH_S", 0.0)
    assert watch.before().probe_s != after.probe_s


def test_steal_is_a_share_of_all_time_since_the_launch_began(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, nvmlInit=fails)
    times = [(10.0, 80.0, 1.0), (15.0, 84.0, 2.0)]

    Times = namedtuple("Times", ["user", "idle", "steal"])

    watch = Watch()
    monkeypatch.setattr(environment.psutil, "cpu_times", lambda: Times(*times[0]))
    watch.before()
    monkeypatch.setattr(environment.psutil, "cpu_times", lambda: Times(*times[1]))
    assert watch.after().steal_pct == pytest.approx(10.0)


def test_foreign_time_is_what_neither_the_worker_nor_the_manager_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, nvmlInit=fails)
    fields = ["user", "system", "idle", "iowait", "steal", "guest"]
    Times = namedtuple("Times", fields)
    own, seen = [5.0, 9.0], [Times(10.0, 2.0, 80.0, 0.0, 0.0, 3.0), Times(18.0, 4.0, 88.0, 1.0, 1.0, 6.0)]
    watch = Watch()
    monkeypatch.setattr(environment, "_own_cpu_s", lambda: own[0])
    monkeypatch.setattr(environment.psutil, "cpu_times", lambda: seen[0])
    assert watch.before().foreign_cpu_pct is None
    monkeypatch.setattr(environment, "_own_cpu_s", lambda: own[1])
    monkeypatch.setattr(environment.psutil, "cpu_times", lambda: seen[1])
    # 20 s of all cores: 10 busy, of which 4 were our own.
    assert watch.after().foreign_cpu_pct == pytest.approx(30.0)
    assert watch.before().foreign_cpu_pct is None


def test_a_worker_that_was_waited_for_is_no_foreigner_and_one_that_runs_on_is() -> None:
    started = environment._own_cpu_s()
    burn = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    worker = subprocess.Popen([sys.executable, "-c", burn])
    assert environment._own_cpu_s() - started < 0.2
    assert worker.wait() == 0
    assert environment._own_cpu_s() - started > 0.25


def test_a_program_that_is_no_ended_child_is_seen_with_all_that_it_takes() -> None:
    psutil = environment.psutil
    before, own = psutil.cpu_times(), environment._own_cpu_s()
    stranger = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.5)
        took = sum(psutil.Process(stranger.pid).cpu_times()[:2])
        foreign = environment._foreign_pct(before, own)
        total = sum(psutil.cpu_times()[:8]) - sum(before[:8])
    finally:
        stranger.kill()
        stranger.wait()
    # The kernel counts in hundredths of a second.
    assert foreign is not None
    assert foreign / 100 * total > took - 0.1


def test_a_kernel_that_counts_no_time_knows_no_foreigner(monkeypatch: pytest.MonkeyPatch) -> None:
    still = environment.psutil.cpu_times()
    monkeypatch.setattr(environment.psutil, "cpu_times", lambda: still)
    assert environment._foreign_pct(still, 0.0) is None


def test_an_absent_nvml_package_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu.find() is None


def test_a_gpu_is_read_with_its_units_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, nvmlDeviceGetCurrentClocksThrottleReasons=lambda device: 0x20 | 0x80 | 0x1000)
    found = gpu.find()
    assert found is not None
    assert (found.name(), found.driver()) == ("GPU 0", "580.1")
    assert found.bandwidth_bytes_s() == pytest.approx(2 * 1000e6 * 128)
    state = found.state()
    assert (state.sm_mhz, state.memory_mhz, state.celsius, state.watts) == (1980, 3201, 41, 75.5)
    assert state.throttle == ("sw thermal slowdown", "hw power brake", "reason 0x1000")
    assert state.foreign_processes == 0
    here = machine()
    assert (here.gpu, here.driver) == ("GPU 0", "580.1")


def test_what_a_gpu_does_not_say_is_unknown_and_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name for name in vars(nvml()) if name.startswith("nvmlDeviceGet") and "Handle" not in name]
    install(monkeypatch, **dict.fromkeys(names, fails))
    found = gpu.find()
    assert found is not None
    assert set(vars(found.state()).values()) == {None}
    assert found.bandwidth_bytes_s() is None


@pytest.mark.parametrize(
    ("visible", "device"),
    [("1", "GPU 1"), ("1,0", "GPU 1"), ("GPU-ab12", "GPU of GPU-ab12"), ("", None), ("-1", None)],
)
def test_the_gpu_is_the_first_that_workers_may_see(
    monkeypatch: pytest.MonkeyPatch, visible: str, device: str | None
) -> None:
    install(monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = gpu.find()
    assert (found.name() if found else None) == device


def test_a_stranger_on_the_gpu_is_counted_and_we_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, nvmlDeviceGetComputeRunningProcesses=processes(os.getpid(), 2**22 + 1))
    found = gpu.find()
    assert found is not None
    assert found.state().foreign_processes == 1


def test_a_process_that_is_just_leaving_is_no_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    listings = [[SimpleNamespace(pid=2**22 + 1)], []]
    install(monkeypatch, nvmlDeviceGetComputeRunningProcesses=lambda device: listings.pop(0))
    found = gpu.find()
    assert found is not None
    assert found.state().foreign_processes == 0
