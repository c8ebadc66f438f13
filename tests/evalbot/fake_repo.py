"""A small git repository with an engine that is one JSON file and a harness that only pretends to measure.

The fake manager reads ``engine/behaviour.json`` of both trees and answers with the synthetic run of
``results.py``, so every stage of the pipeline but the measurement itself is real.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import harness

HERE = Path(__file__).parent

CONFIG = """\
[repo]
pinned = ["harness", "corpus", "evalbot.toml"]
[engine]
build = ["{python}", "-m", "engine.build"]
worker = ["{python}", "-m", "harness.worker"]
build_timeout_s = 5.0
[measure]
default_plan = "fake"
[models.tiny]
target = "corpus/tiny"
"""

BUILD = """\
import json, pathlib
json.loads(pathlib.Path("engine/behaviour.json").read_text())
"""

PLANS = """\
import sys
from harness.fake_results import plan
from harness.schema import encode_json
if sys.argv[1] != "fake":
    sys.exit(f"There is no plan {sys.argv[1]!r}: the plans are fake")
sys.stdout.buffer.write(encode_json(plan()))
"""

MANAGER = """\
import json, pathlib, sys, time
import msgspec
from harness.fake_results import Behaviour, failure, run
from harness.schema import RunRequest, encode_json

def behaviour(arm):
    told = json.loads((pathlib.Path(arm.tree) / "engine/behaviour.json").read_text())
    if told.pop("crash", False):
        told["failures"] = (failure(), failure())
    if told.pop("hang", False):
        pathlib.Path(told.pop("pid_file")).write_text("up")
        time.sleep(60)
    scribble = told.pop("scribble", None)
    if scribble:
        (pathlib.Path(arm.tree) / scribble).write_text("changed")
    if told.pop("kill_manager", False):
        sys.exit("no room left on the device")
    return Behaviour(**told)

request = msgspec.json.decode(sys.stdin.buffer.read(), type=RunRequest)
print(json.dumps({"event": "launch", "done": 1, "total": 2, "eta_s": 1.0}), flush=True)
print("not an event", flush=True)
result = run(behaviour(request.baseline), behaviour(request.candidate), seed=request.seed)
result = msgspec.structs.replace(result, between_builds=request.between_builds)
pathlib.Path(sys.argv[2]).write_bytes(encode_json(result))
"""


def git(root: Path, *arguments: str) -> str:
    """Run git in ``root`` as a made-up author; what it printed, stripped."""
    identity = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=root, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit_all(root: Path, message: str) -> str:
    """Commit everything below ``root``, ignored files too. Returns the sha."""
    git(root, "add", "--all", "--force")
    git(root, "commit", "--quiet", "--message", message)
    return git(root, "rev-parse", "HEAD")


class FakeRepo:
    """A repository at ``root`` with one commit on ``main``; branches are made by :meth:`branch`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        package = root / "harness"
        package.mkdir()
        (package / "__init__.py").write_text("")
        shutil.copy(Path(harness.__file__).parent / "schema.py", package / "schema.py")
        shutil.copy(HERE / "results.py", package / "fake_results.py")
        self.write("harness/plans.py", PLANS)
        self.write("harness/manager.py", MANAGER)
        self.write("corpus/tiny/config.json", "{}")
        self.write("corpus/text.txt", "Once upon a time.\n")
        self.write("evalbot.toml", CONFIG)
        self.write("engine/__init__.py", "")
        self.write("engine/build.py", BUILD)
        self.write("engine/behaviour.json", "{}")
        self.write("README", "A fake engine.\n")
        self.commit("first")

    def git(self, *arguments: str) -> str:
        return git(self.root, *arguments)

    def write(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def behave(self, **behaviour: object) -> None:
        self.write("engine/behaviour.json", json.dumps(behaviour))

    def commit(self, message: str) -> str:
        return commit_all(self.root, message)

    def branch(self, name: str, files: dict[str, str] | None = None, **behaviour: object) -> str:
        """A branch off main with other files or behaviour; main stays checked out. Returns its sha."""
        self.git("checkout", "--quiet", "-b", name, "main")
        for path, text in (files or {}).items():
            self.write(path, text)
        if behaviour:
            self.behave(**behaviour)
        sha = self.commit(name)
        self.git("checkout", "--quiet", "main")
        return sha

    def state(self) -> dict[str, str]:
        """Everything that a run must leave as it was: files, index, refs and objects of the repository."""
        return {
            str(path.relative_to(self.root)): path.read_bytes().hex() if path.is_file() else "directory"
            for path in sorted(self.root.rglob("*"))
        }
