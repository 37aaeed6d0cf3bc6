"""All that decided what a process made of case files, so that a later process can prove that it would make the same.

`ptxdiff list` keeps its lines with it. Other identities are those of one case, and need the case loaded; this one is
compared before anything is loaded, and so before torch is imported. It is of the whole process, because one case file
can change what another one finds:

    asked          the command's words, folder, environment, `sys.path`, interpreter, and the GPUs here
    contents       digests of the user's loaded modules, of ours, and of whatever the user's code opened or asked about
    stamps         size, times and inode of Python's modules and of those of installed packages
    names          what each folder of `sys.path` and of the user's packages holds, because a new module hides another
    case files     which files of each named folder are case files

Nothing is kept (`everything_read` returns None) if a part is not known: a file that has changed since the process
began, which may have run with its former text; code that starts a process, asks a clock or random numbers; a module
without a file of its own. Times of the last change of an inode (`ctime`) decide, because no program can set them.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import json
import os
import re
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ptxdiff.diskcache import DiskCache
from ptxdiff.locations import PACKAGE
from ptxdiff.model import files
from ptxdiff.model.identity.opened import ASKED, digest_of

_MARGIN = 0.02
"""Seconds by which a file's time may be behind the clock: the kernel counts it in ticks."""

_IMPORTED = time.time()
"""A process made by a fork has run code since before its own start."""

_MOMENT = re.compile(
    r"^[ \t]*(?:import|from)\b[^#\n]*\b(?:time|datetime|random|secrets|uuid|socket|platform|getpass|resource|psutil|"
    r"tempfile|subprocess)\b|\bstdin\b|\bdefault_rng\(\)",
    re.MULTILINE,
)
"""What can give a module another content at each import: it imports a clock, random numbers, facts of the machine."""

_NVIDIA = ("/proc/driver/nvidia/gpus", "/proc/driver/nvidia/version", "/dev/nvidia0", "/dev/dxg")


def asked(words: Sequence[str]) -> bytes:
    """What is asked, and in which surroundings: known when a process begins."""
    facts = (
        list(words),
        sys.argv[:1],
        os.getcwd(),
        sorted(os.environ.items()),
        sys.path,
        [sys.version, sys.executable, sys.prefix, sys.base_prefix, repr(sys.flags), sys.warnoptions],
        [digest_of(path) if os.path.isdir(path) else os.path.exists(path) for path in _NVIDIA],
        os.fspath(PACKAGE),
    )
    return json.dumps(facts).encode("utf-8", "surrogateescape")


def everything_read(began: float, places: Sequence[str], more: Sequence[str]) -> dict[str, Any] | None:
    """What decides what this process has made of case files; None if that is not known.

    began: the time of `now` when the process began to load them. places: folders and files that were named. more: files
    that others than the user's code read, such as settings of pytest; they may be absent.
    """
    from ptxdiff.model.identity.code import is_users
    from ptxdiff.model.identity.opened import all_opened

    contents: dict[str, str] = {}
    stamps: dict[str, Sequence[int]] = {}
    folders = {path or os.curdir for path in (*sys.path, *filter(os.path.isdir, places))}
    users: list[str] = []
    for module in sys.modules.copy().values():
        folders_of, file = getattr(module, "__path__", None), getattr(module, "__file__", None)
        if file is None:
            folders.update(map(str, folders_of or ()))  # a package without an `__init__.py`, or a folder of cases
            continue
        path = os.path.abspath(file)
        if is_users(module):
            folders.update(map(str, folders_of or ()))
            users.append(path)
            if cached := getattr(module, "__cached__", None):  # Python may have run old byte code
                contents[cached] = digest_of(cached)
        elif module.__name__.partition(".")[0] != "ptxdiff":
            if (stamp := _stamp(path)) is not None:
                stamps[path] = stamp
            elif "." not in module.__name__:  # else its package has made it up, as `torch.ops`
                return None
            continue
        if not os.path.isfile(path) or _changed_since(began, path):
            return None
        contents[path] = digest_of(path)
    opened = all_opened(users)
    if opened.unknown or any(_MOMENT.search(_text(path)) for path in users):
        return None
    if any(_changed_since(began, path.removesuffix(ASKED)) for path in (*opened.files, *more, *folders)):
        return None
    contents |= opened.files
    contents |= {path: digest_of(path) for path in more}
    return {
        "contents": contents,
        "stamps": stamps,
        "names": {folder: _names(folder) for folder in folders},
        "case files": {place: _case_files(place) for place in places},
    }


def is_as_before(read: Mapping[str, Any]) -> bool:
    """Whether all of `everything_read` is the same now."""
    return (
        all(_case_files(place) == paths for place, paths in read["case files"].items())
        and all(_names(folder) == names for folder, names in read["names"].items())
        and all(_stamp(path) == stamp for path, stamp in read["stamps"].items())
        and all(digest_of(path) == digest for path, digest in read["contents"].items())
    )


def now() -> float:
    """The time at which this process began to run, in seconds of `time.time`; minus infinity if that is not known.

    A file that was written later may have other contents than those that the process has read.
    """
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            started = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, ValueError, IndexError, AttributeError):
        return float("-inf")
    return min(time.time() - age, _IMPORTED) - _MARGIN


def _changed_since(began: float, path: str) -> bool:
    try:
        return os.stat(path).st_ctime >= began
    except OSError:
        return False


def _stamp(path: str) -> list[int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _names(folder: str) -> str:
    """A digest of the names in a folder that an import can find; of an archive, of its contents."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(_MODULES) or _is_folder(entry))
    except OSError:
        return digest_of(os.path.abspath(folder))
    return hashlib.sha256("\0".join(names).encode("utf-8", "surrogateescape")).hexdigest()


_MODULES = (*importlib.machinery.all_suffixes(), ".pth")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.name != "__pycache__" and entry.is_dir()


def _case_files(place: str) -> list[str] | str:
    """The case files of a folder; what else lies under a name, or nothing."""
    try:
        mode = os.stat(place).st_mode
    except OSError:
        return "absent"
    return [str(path) for path in files.case_files(Path(place))] if stat.S_ISDIR(mode) else "file"


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


# ---- lines of a command, kept until something of this differs --------------------------------------------------------

_kept = DiskCache("listings", 256, 256 << 20)


def kept_lines(question: bytes) -> list[str] | None:
    """The lines that an earlier process kept under `asked`; None if there are none, or if something differs now."""
    stored = _kept.get(question)
    if stored is None:
        return None
    try:
        entry = json.loads(stored)
        return [str(line) for line in entry["lines"]] if is_as_before(entry["read"]) else None
    except (ValueError, KeyError, TypeError):
        return None


def keep_lines(question: bytes, lines: Sequence[str], read: Mapping[str, Any]) -> None:
    """Keep lines for a later process."""
    _kept.put(json.dumps({"lines": list(lines), "read": read}).encode("utf-8", "surrogateescape"), question)
