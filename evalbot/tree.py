"""Trees: listed from git, laid out on disk byte for byte, and digested from disk again.

Files are written by this module and not by ``git checkout``: no filter, line-ending rule or attribute
of the tree can change a byte on the way. The digest is git's own tree id computed from what lies on
disk, so "is this really that tree?" is one comparison.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from evalbot.errors import UnsafeTree
from evalbot.git import Git

MODEL_SUFFIXES = (".gguf", ".json", ".safetensors")
REGULAR, EXECUTABLE, SYMLINK, GITLINK = "100644", "100755", "120000", "160000"


@dataclass(frozen=True)
class Entry:
    """One file of a git tree."""

    mode: str
    sha: str
    path: str


@dataclass(frozen=True)
class Digest:
    """What lies at a path on disk: git's id of it, and a sha256 over every file's mode, path and bytes."""

    git_sha: str
    sha256: str


def entries(git: Git, tree: str) -> tuple[Entry, ...]:
    """All files of a tree, in git's order. ``tree`` is an object id."""
    listing = git.run("ls-tree", "-r", "-z", "--full-tree", tree).stdout
    found = []
    for line in listing.split(b"\0"):
        if line:
            head, _, path = line.partition(b"\t")
            mode, _, sha = head.decode("ascii").split(" ")
            found.append(Entry(mode=mode, sha=sha, path=os.fsdecode(path)))
    return tuple(found)


def is_under(path: str, roots: Iterable[str]) -> bool:
    """Whether ``path`` is one of ``roots`` or lies inside one."""
    return any(path == root or path.startswith(f"{root}/") for root in roots)


def export(git: Git, files: Iterable[Entry], destination: Path) -> None:
    """Write ``files`` below ``destination``, which must not exist yet.

    Raises UnsafeTree for submodules, names that leave the tree, and symbolic links that point out of it.
    """
    wanted = tuple(files)
    _refuse_unsafe(wanted)
    destination.mkdir(parents=True)
    contents = _blobs(git, tuple(dict.fromkeys(entry.sha for entry in wanted)))
    links = []
    for entry in wanted:
        path = destination / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry.mode == SYMLINK:
            path.symlink_to(os.fsdecode(contents[entry.sha]))
            links.append(entry.path)
        else:
            path.write_bytes(contents[entry.sha])
            path.chmod(0o755 if entry.mode == EXECUTABLE else 0o644)
    root = os.path.realpath(destination)
    for link in links:
        target = os.path.realpath(destination / link)
        if target != root and not target.startswith(root + os.sep):
            raise UnsafeTree(
                f"{link} is a symbolic link that points out of the repository "
                f"({os.readlink(destination / link)}): replace it by a file or a link inside the tree."
            )


def _refuse_unsafe(files: tuple[Entry, ...]) -> None:
    paths = [entry.path for entry in files]
    taken = set(paths)
    for entry in files:
        # A crafted tree can hold a link and a file below it, which would be written where the link points.
        above = {str(parent) for parent in PurePosixPath(entry.path).parents}
        if len(taken) < len(paths) or above & taken:
            raise UnsafeTree(
                f"{entry.path!r} stands in the tree twice or below a file: git writes no such tree."
            )
        if entry.mode == GITLINK:
            raise UnsafeTree(
                f"{entry.path} is a submodule: its contents are not part of the tree that is measured. "
                "Copy what is needed into the repository."
            )
        parts = entry.path.split("/")
        if any(part in ("", ".", "..") or part.lower() == ".git" for part in parts):
            raise UnsafeTree(f"{entry.path!r} is not a path that can be laid out safely: rename it.")


def _blobs(git: Git, shas: tuple[str, ...]) -> dict[str, bytes]:
    """Contents of blobs, read through one ``git cat-file --batch``."""
    stream = git.run("cat-file", "--batch", stdin="".join(f"{sha}\n" for sha in shas).encode()).stdout
    found, at = {}, 0
    for sha in shas:
        end = stream.index(b"\n", at)
        fields = stream[at:end].split(b" ")
        if len(fields) != 3 or fields[1] != b"blob":
            raise UnsafeTree(f"object {sha} of the tree is missing from the repository: fetch it completely.")
        size = int(fields[2])
        found[sha] = stream[end + 1 : end + 1 + size]
        at = end + 1 + size + 1
    return found


def digest(path: Path, object_format: str = "sha1") -> Digest:
    """Digest of a file or directory as it lies on disk; every file counts, ignored ones too."""
    total = hashlib.sha256()
    _, git_sha = _object(path, path.name, "", total, object_format)
    return Digest(git_sha=git_sha, sha256=total.hexdigest())


def model_sha256(directory: Path) -> str:
    """Hash of a model: of the ``sha256sum`` listing of its files, in order of name.

    Notes beside the model do not count, so that only what is loaded identifies it.
    """
    files = sorted(p for p in directory.iterdir() if p.suffix in MODEL_SUFFIXES and p.is_file())
    listing = "".join(f"{_file_sha256(path)}  {path.name}\n" for path in files)
    return hashlib.sha256(listing.encode()).hexdigest()


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _object(path: Path, name: str, below: str, total: hashlib._Hash, kind: str) -> tuple[str, str]:
    """(mode, git id) of one path; adds its files to ``total`` in git's order."""
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode):
        # Git sorts a directory as if its name ended with a slash.
        children = sorted(
            os.scandir(path), key=lambda e: os.fsencode(e.name) + b"/" * e.is_dir(follow_symlinks=False)
        )
        body = b""
        for child in children:
            mode, sha = _object(Path(child.path), child.name, f"{below}{child.name}/", total, kind)
            if sha:
                body += f"{mode} ".encode() + os.fsencode(child.name) + b"\0" + bytes.fromhex(sha)
        # A directory without files does not exist for git.
        return "40000", _git_id("tree", body, kind) if body else ""
    if stat.S_ISLNK(status.st_mode):
        mode, content = SYMLINK, os.fsencode(os.readlink(path))
    elif stat.S_ISREG(status.st_mode):
        mode, content = EXECUTABLE if status.st_mode & 0o100 else REGULAR, path.read_bytes()
    else:
        raise UnsafeTree(f"{path} is neither a file, a directory nor a symbolic link.")
    total.update(f"{mode} {below}\0{hashlib.sha256(content).hexdigest()}\n".encode(errors="surrogateescape"))
    return mode, _git_id("blob", content, kind)


def _git_id(kind: str, body: bytes, object_format: str) -> str:
    return hashlib.new(object_format, f"{kind} {len(body)}\0".encode() + body).hexdigest()
