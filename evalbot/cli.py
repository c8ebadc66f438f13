"""The command line. A command reads its options, calls one function and shows what it returns."""

from __future__ import annotations

import contextlib
import signal
import sys
import types
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from evalbot import __version__, by_round, calibrations, demo, doctor, scenarios, simulation_table
from evalbot import record as records
from evalbot.calibrate import calibrate
from evalbot.checkout import RefSpec
from evalbot.comment import markdown
from evalbot.emulate import emulate as run_emulation
from evalbot.errors import BadRequest, EvalbotError
from evalbot.noise_table import show as show_noise
from evalbot.pipeline import evaluate
from evalbot.planning import planned
from evalbot.progress import counted, progress
from evalbot.rescore import rescore as judge_again
from evalbot.simulate import simulate
from evalbot.table import show
from evalbot.types import EXIT_CODES, Record
from evalbot.workspace import workspace
from harness.schema import Policy, encode_json

EXIT_ERROR = 4
EXIT_INTERRUPTED = 130

app = typer.Typer(
    help="Scores changes to an LLM inference engine: faster DSpark decoding, nothing wrong, nothing slower?",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
Seed = Annotated[
    int | None, typer.Option(min=0, help="Seed of prompts and order. Default: drawn after the build.")
]
Json = Annotated[Path | None, typer.Option("--json", metavar="OUT", help="Where to write the record.")]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the run's directory with both trees.")]
RecordFile = Annotated[Path, typer.Argument(metavar="RECORD", help="A record written by evalbot score.")]


class Format(StrEnum):
    """How a record is shown."""

    table = "table"
    md = "md"


@app.command()
def score(
    branch: Annotated[str | None, typer.Argument(help="Branch, tag or sha. Default: HEAD.")] = None,
    base: Annotated[str, typer.Option(help="What it is compared with.")] = "main",
    repo: Annotated[Path, typer.Option(help="The repository.")] = Path("."),
    patch: Annotated[Path | None, typer.Option(help="Score this patch, applied to the base.")] = None,
    worktree: Annotated[bool, typer.Option("--worktree", help="Score the working tree as it is.")] = False,
    emulate: Annotated[
        Path | None, typer.Option(metavar="SCENARIO", help="Play both arms from a scenario: no engine runs.")
    ] = None,
    plan: Annotated[str | None, typer.Option(help="What is measured. Default: the base's choice.")] = None,
    seed: Seed = None,
    json: Json = None,
    keep: Keep = False,
    debug: Debug = False,
) -> None:
    """Score a branch, a patch or the working tree, merged onto the base.

    Exit status: 0 improved or none, 1 reject or build-failed, 3 inconclusive, 4 error, 2 wrong usage.

    A branch or plan that does not exist is an error, status 4.
    """
    if sum((branch is not None, patch is not None, worktree, emulate is not None)) > 1:
        raise typer.BadParameter("give at most one of BRANCH, --patch, --worktree and --emulate")
    spec = RefSpec(head=branch or "HEAD", base=base, patch=patch, worktree=worktree)
    with _spoken(debug):
        if emulate is not None:
            record = _emulate(emulate, plan, seed, json, keep)
        else:
            record = _score(repo, spec, plan, seed, json, keep)
        raise typer.Exit(EXIT_CODES[record.verdict.outcome])


@app.command("demo")
def run_demo(
    plan: Annotated[str, typer.Option(help="What is measured.")] = "cpu-quick",
    seed: Seed = None,
    json: Json = None,
    debug: Debug = False,
) -> None:
    """Score a bundled change against main in a temporary clone. Any verdict but an error is status 0."""
    with _spoken(debug), workspace() as directory:
        patch = demo.bundled_patch()
        clone = demo.clone(directory / "clone")
        typer.echo(f"Scoring {patch.name} against main in a temporary clone.", err=True)
        record = _score(clone, RefSpec(patch=patch), plan, seed, json, keep=False)
        raise typer.Exit(EXIT_ERROR if record.verdict.outcome == "error" else 0)


@app.command("calibrate")
def run_calibration(
    plan: Annotated[str | None, typer.Option(help="What is measured. Default: the base's choice.")] = None,
    base: Annotated[str, typer.Option(help="What is measured against itself.")] = "main",
    repo: Annotated[Path, typer.Option(help="The repository.")] = Path("."),
    runs: Annotated[int, typer.Option(min=1, help="Half of them against a rebuild.")] = 2,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Where to write a copy of the calibration.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Measure main against itself: how small an effect this machine can see, and whether it may publish."""
    with _spoken(debug):
        if json is not None:
            records.require_writable(json, "calibration")
        with progress(Console(stderr=True)) as listener:
            found = calibrate(repo, base, listener, plan=plan, runs=runs)
        if json is not None:
            calibrations.write(found, json)
        show_noise(found, Console(), json or calibrations.path_of(found.key))


@app.command()
def rescore(record: RecordFile, debug: Debug = False) -> None:
    """Judge a record again from its samples alone and print the verdict as JSON."""
    with _spoken(debug), _judged(record):
        sys.stdout.write(encode_json(judge_again(records.read(record))).decode() + "\n")


@app.command()
def render(
    record: RecordFile,
    format: Annotated[Format, typer.Option(help="table for a terminal, md for GitHub.")] = Format.table,
    debug: Debug = False,
) -> None:
    """Show a record."""
    with _spoken(debug), _judged(record):
        found = records.read(record)
        if format is Format.md:
            sys.stdout.write(markdown(found) + by_round.folded(found))
        else:
            show(found, Console(), record)


@app.command("simulate")
def run_simulation(
    scenario: Annotated[str, typer.Option(help="A built-in scenario, or an emulator's TOML file.")] = "null",
    trials: Annotated[int, typer.Option(min=1, help="Evaluations to draw.")] = 2000,
    plan: Annotated[
        str | None, typer.Option(help="A shipped plan. Default: thirteen axes, 8 to 32 pairs.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed draws the same trials.")] = 0,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Where to write the numbers; - prints them.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Draw whole evaluations from a model of noise and count what the real judge makes of them."""
    with _spoken(debug):
        if json is not None and json != Path("-"):
            records.require_writable(json, "summary")
        found, cases = scenarios.find(scenario), scenarios.plan(plan)
        with counted("simulating", trials, Console(stderr=True)) as report:
            summary = simulate(found, trials, seed, Policy(), report, cases)
        if json == Path("-"):
            sys.stdout.write(simulation_table.document(summary))
            return
        simulation_table.show(scenario, found, summary, Console())
        if json is not None:
            records.write_whole(simulation_table.document(summary).encode(), json, "summary")


@app.command("power")
def show_power(
    effect: Annotated[str, typer.Option(help="The gain to be seen: 1% or 1.")] = "2%",
    power: Annotated[float, typer.Option(min=0.5, max=0.999, help="How surely it is to be seen.")] = 0.9,
    plan: Annotated[str | None, typer.Option(help="Plan whose calibration is used. Default: any.")] = None,
    noise: Annotated[
        str | None, typer.Option(help="Noise of a launch, as 0.6%, in place of a calibration.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Say how many pairs and minutes it takes to see an effect on this machine."""
    with _spoken(debug):
        for line in planned(effect, power, plan, noise):
            typer.echo(line)


@app.command()
def schema() -> None:
    """Print the JSON Schema of a record."""
    sys.stdout.write(
        msgspec.json.format(msgspec.json.encode(records.json_schema()), indent=2).decode() + "\n"
    )


@app.command("doctor")
def run_doctor(debug: Debug = False) -> None:
    """Say what this machine can and cannot do. Exit status 4 if it cannot score."""
    with _spoken(debug):
        table = Table.grid(padding=(0, 2))
        able = True
        for check in doctor.checks():
            able = able and (check.ok or not check.needed)
            state = Text("ok", "green") if check.ok else Text("no", "bold red" if check.needed else "yellow")
            table.add_row(state, check.name, Text(check.found), Text("" if check.ok else check.advice, "dim"))
        console = Console()
        console.print(table)
        console.print("This machine can score." if able else "This machine cannot score yet: see above.")
        if not able:
            raise typer.Exit(EXIT_ERROR)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(f"evalbot {__version__}")
        raise typer.Exit


def main() -> None:
    """Entry point. A polite termination is handled like Ctrl-C, so that nothing is left behind."""
    # SIGINT too: a command that a script starts in the background inherits it ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    app()


def _score(
    repo: Path, spec: RefSpec, plan: str | None, seed: int | None, json: Path | None, keep: bool
) -> Record:
    """Evaluate with a view of the progress, keep the record, show it."""
    _require_room(json)
    with progress(Console(stderr=True)) as listener:
        record = evaluate(repo, spec, listener, plan=plan, seed=seed, keep=keep)
    return _kept(record, json)


def _emulate(scenario: Path, plan: str | None, seed: int | None, json: Path | None, keep: bool) -> Record:
    """The same for two arms that a scenario describes."""
    _require_room(json)
    with progress(Console(stderr=True)) as listener:
        record = run_emulation(scenario, listener, plan=plan, seed=seed, keep=keep)
    return _kept(record, json)


def _require_room(json: Path | None) -> None:
    """A run takes minutes: whether its record can be kept is asked before."""
    records.require_writable(json or records.cache_directory() / "runs" / "record.json")


def _kept(record: Record, json: Path | None) -> Record:
    path = json or records.default_path(record)
    records.write(record, path)
    show(record, Console(), path)
    return record


def _interrupt(number: int, frame: types.FrameType | None) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _judged(path: Path) -> Iterator[None]:
    """Turn the arithmetic that a mutilated record upsets into a sentence about the record."""
    try:
        yield
    except UnicodeError:
        # The terminal's fault: it cannot show a word that the record holds.
        raise
    except (ArithmeticError, LookupError, ValueError, TypeError) as error:
        raise BadRequest(f"{path} is not a whole record: its numbers cannot be judged ({error}).") from error


@contextlib.contextmanager
def _spoken(debug: bool) -> Iterator[None]:
    """Turn what goes wrong into a sentence and an exit status; with ``debug``, let the traceback through."""
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        _say("Interrupted: nothing was recorded, and nothing was left running.")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except EvalbotError as error:
        if debug:
            raise
        _say(str(error))
        raise typer.Exit(EXIT_ERROR) from None
    except Exception as error:
        if debug:
            raise
        _say(
            f"evalbot itself failed ({type(error).__name__}: {error}). Run again with --debug and report it."
        )
        raise typer.Exit(EXIT_ERROR) from None


def _say(sentence: str) -> None:
    Console(stderr=True).print(Text(sentence), soft_wrap=True)
