"""The build step of one arm: ``python -m engine.build`` proves that this tree's engine can start.

Plain Python has nothing to link, so building is compiling every source to byte code, importing what
a worker imports, and checking the libraries it rests on. Exit code 0, or 1 with one sentence.
"""

from __future__ import annotations

import compileall
import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).parent
SERVED = ("engine.llm", "engine.tokenizer", "engine.models.embedded", "engine.models.gguf")
LEAST_TORCH = (2, 11)


class BuildError(Exception):
    """Why this tree's engine cannot start, as a sentence."""


def build() -> str:
    """One line about what was built. Raises BuildError."""
    sources = sorted(ROOT.rglob("*.py"))
    for source in sources:
        check_syntax(source)
    # On a read-only tree the byte code has nowhere to go, which costs time and nothing else.
    compileall.compile_dir(ROOT, quiet=2)
    torch_version = check_torch()
    for name in SERVED:
        check_import(name)
    return f"engine: {len(sources)} files, torch {torch_version}"


def check_syntax(source: Path) -> None:
    try:
        compile(source.read_bytes(), str(source), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"{source.relative_to(ROOT.parent)}" + (f", line {line}" if line else "")
        raise BuildError(f"{where}: {error.args[0]}.") from error


def check_torch() -> str:
    try:
        import torch
    except ImportError as error:
        raise BuildError(f"PyTorch cannot be imported: {error}; install requirements.lock.") from error
    version: str = torch.__version__
    if tuple(int(part) for part in version.split(".")[:2]) < LEAST_TORCH:
        least = ".".join(map(str, LEAST_TORCH))
        raise BuildError(
            f"PyTorch is {version}, and the engine needs {least} or later; install requirements.lock."
        )
    return version


def check_import(name: str) -> None:
    try:
        importlib.import_module(name)
    except Exception as error:  # whatever a module raises while it loads is why it does not build
        trace = error.__traceback__
        last = None
        while trace is not None:
            file = Path(trace.tb_frame.f_code.co_filename)
            if file.is_relative_to(ROOT):
                last = f"{file.relative_to(ROOT.parent)}, line {trace.tb_lineno}"
            trace = trace.tb_next
        where = "" if last is None else f" ({last})"
        raise BuildError(f"{name} does not import: {type(error).__name__}: {error}{where}.") from error


def main() -> int:
    try:
        print(build())
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
