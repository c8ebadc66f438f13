"""Two Builds + RunPlan -> HarnessResult: starts main's pinned harness and reads what it saw.

The processes started here are main's own code (the fetch step and the manager). They run inside the
baseline tree; the manager is the one that starts workers, with a cleared environment.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from evalbot.build import Build, last_line
from evalbot.config import Config, ModelSource, command
from evalbot.errors import BadRequest, HarnessFailed, InfraError
from evalbot.sandbox import kill_group
from evalbot.tree import model_sha256
from harness.schema import ArmSource, HarnessResult, ModelFiles, RunPlan, RunRequest, encode_json

Progress = Callable[[dict[str, Any]], None]
_GRACE_S = 15.0


def load_plan(name: str, tree: Path) -> RunPlan:
    """The plan ``name`` as the harness of main's ``tree`` defines it. Raises BadRequest if it has none."""
    done = _trusted((sys.executable, "-m", "harness.plans", name), tree, 60.0, "reading the plan")
    if done.returncode != 0:
        raise BadRequest(last_line(done.stderr, str(tree)) + ".")
    try:
        return msgspec.json.decode(done.stdout, type=RunPlan)
    except msgspec.DecodeError as error:
        raise HarnessFailed(
            f"The base's harness describes plan {name!r} in a form that this evalbot does not read "
            f"({error}): use the evalbot of the same version as the base."
        ) from None


def find_models(plan: RunPlan, config: Config, tree: Path) -> tuple[ModelFiles, ...]:
    """Files of every model that the plan names, from main's ``tree`` or fetched by its engine."""
    names = [case.model for case in plan.cases] + ([plan.accuracy.model] if plan.accuracy else [])
    return tuple(_model(name, config, tree) for name in dict.fromkeys(names))


def models_sha256(models: tuple[ModelFiles, ...]) -> str:
    """One hash over the hashes of all models of a run; where they lie does not enter it."""
    lines = sorted(f"{m.name} {m.target_sha256} {m.draft_sha256 or '-'}\n" for m in models)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def measure(
    plan: RunPlan,
    seed: int,
    baseline: Build,
    candidate: Build,
    models: tuple[ModelFiles, ...],
    config: Config,
    directory: Path,
    progress: Progress,
    between_builds: Mapping[str, float] | None = None,
) -> HarnessResult:
    """Run the pinned harness once over two builds and read its result.

    ``between_builds``: variance by which builds of one source differ, by axis, where it is calibrated.
    """
    request = RunRequest(
        plan=plan,
        seed=seed,
        baseline=_source(baseline),
        candidate=_source(candidate),
        models=models,
        corpus=str(baseline.tree.path / config.measure.corpus),
        policy=config.policy,
        between_builds=dict(between_builds or {}),
    )
    return ask(request, baseline.tree.path, directory, config.measure.timeout_s, progress)


def ask(
    request: RunRequest, tree: Path, directory: Path, timeout_s: float, progress: Progress
) -> HarnessResult:
    """Start the manager of ``tree`` on one request and read its result; ``directory`` is made for it.

    The request holds the seed, from which a candidate could work out the prompts, and so does the result, on
    which the seed of a confirmation depends: neither lies in a file while a worker runs. ``progress`` gets
    every event the manager prints. Raises HarnessFailed if there is no usable result.
    """
    directory.mkdir()
    answered = directory / "result.json"
    argv = (sys.executable, "-m", "harness.manager", "-", str(answered))
    with tempfile.TemporaryFile() as errors:
        status = _follow(argv, encode_json(request), tree, errors.fileno(), timeout_s, progress)
        errors.seek(0)
        said = last_line(errors.read().decode(errors="replace"), str(tree))
    # A manager that was ended from outside wrote nothing that can be trusted, whatever lies there.
    if status != 0 or not answered.exists():
        how = f"ended with status {status}" if status is not None else f"took longer than {timeout_s:g} s"
        raise HarnessFailed(f"The harness {how} and left no result{': ' + said if said else ''}.")
    found = answered.read_bytes()
    answered.unlink()
    try:
        return msgspec.json.decode(found, type=HarnessResult)
    except msgspec.DecodeError as error:
        raise HarnessFailed(f"The result of the harness cannot be read: {error}.") from None


def _source(build: Build) -> ArmSource:
    return ArmSource(
        arm=build.tree.arm, tree=str(build.tree.path), worker=build.worker, commit_sha=build.tree.commit_sha
    )


def _model(name: str, config: Config, tree: Path) -> ModelFiles:
    source = config.models.get(name)
    if source is None:
        raise InfraError(
            f"The plan names the model {name!r}, but evalbot.toml of the base has no [models.{name}]."
        )
    target = _fetched(name, source, config, tree) if source.fetch else tree / (source.target or "")
    draft = tree / source.draft if source.draft else None
    for path in (target, draft):
        if path is not None and not path.is_dir():
            raise InfraError(f"The model {name!r} should lie in {path}, which is not a directory.")
    return ModelFiles(
        name=name,
        target=str(target),
        target_sha256=model_sha256(target),
        draft=str(draft) if draft else None,
        draft_sha256=model_sha256(draft) if draft else None,
    )


class _Fetched(msgspec.Struct):
    """What a fetch command prints; it may say more."""

    path: str
    sha256: str


def _fetched(name: str, source: ModelSource, config: Config, tree: Path) -> Path:
    done = _trusted(command(source.fetch or ()), tree, config.measure.fetch_timeout_s, f"fetching {name}")
    if done.returncode != 0:
        said = last_line(done.stderr, str(tree)) or f"it ended with status {done.returncode}"
        raise InfraError(f"The model {name!r} cannot be had: {said}.")
    try:
        found = msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=_Fetched)
    except (msgspec.DecodeError, IndexError):
        raise InfraError(
            f"Fetching the model {name!r} printed no JSON object with its path and sha256."
        ) from None
    path = Path(found.path)
    actual = model_sha256(path) if path.is_dir() else "no directory"
    if actual != found.sha256:
        raise InfraError(
            f"The model {name!r} in {path} is not what was fetched: expected sha256 "
            f"{found.sha256}, found {actual}. Remove that directory and score again."
        )
    return path


def _environment(tree: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}


def _trusted(
    argv: tuple[str, ...], tree: Path, timeout_s: float, what: str
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv,
            cwd=tree,
            env=_environment(tree),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InfraError(f"{what.capitalize()} did not end within {timeout_s:g} s: try again.") from None
    except OSError as error:
        raise InfraError(f"{what.capitalize()} could not start: {error.strerror}.") from None


def _follow(
    argv: tuple[str, ...], asked: bytes, tree: Path, errors: int, timeout_s: float, progress: Progress
) -> int | None:
    """Run the manager to its end, ``asked`` on its input, passing its events on.

    Returns its status, None if overdue.
    """
    process = subprocess.Popen(
        argv,
        cwd=tree,
        env=_environment(tree),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        start_new_session=True,
    )
    overdue = threading.Event()

    def stop() -> None:
        overdue.set()
        process.terminate()

    timer = threading.Timer(timeout_s, stop)
    timer.daemon = True
    timer.start()
    try:
        _tell(process, asked)
        for event in _events(process):
            progress(event)
        status = process.wait()
        return None if overdue.is_set() else status
    finally:
        timer.cancel()
        _end(process)


def _tell(process: subprocess.Popen[bytes], asked: bytes) -> None:
    """Write the request; a manager that ends without reading it is found out by its status."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(asked)


def _events(process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """Progress events; lines that are not JSON objects are somebody's print and passed over."""
    assert process.stdout is not None
    for line in process.stdout:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            event = msgspec.json.decode(line)
            if isinstance(event, dict):
                yield event


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let the manager stop its workers and tidy up; what is left after that is killed."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    kill_group(process.pid)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
