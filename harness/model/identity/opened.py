"""The files that the user's code opens, and what else it does that no digest of its text shows.

An audit hook (`sys.addaudithook`) sees every `open`, every list of a folder and every start of a process. It notes them
by the user's files whose code is on the stack at that moment, so that a case has the files that its own modules and
functions opened, also those that another case made a shared helper read. Digests are computed later; a file that has
changed between its opening and its digest has none. What code asks about a file without opening it (`os.path.exists`,
its size) is no event of the audit hook: `os.stat` and its like are wrapped, and note what they say, but for times.

Not noted, because other parts of an identity cover them: what the harness opens (its text and its caches have keys of
their own), files of Python, of installed packages and of the cache folder (versions), what an installed package does
while it is imported, byte code beside a source, files that this process itself wrote first, and devices. What the
user's code reads in `/proc` and `/sys` has no digest; packages read there about the machine, which counts as a version.

Compiled code opens files without an event. Functions that do so (`torch.from_file`, readers of safetensors, HDF5,
Parquet and images) are known by their names: a source that has one of these words has unknown inputs.

A hook cannot be removed. So it is installed with the first case file, and ignores every event until then and most
events later: its first line decides. In a compiler's process it is installed with the first kernel, and notes only
what the user's code does while a kernel is compiled (`noting`). The process that asked for the kernel takes these notes
over.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import stat
import sys
import sysconfig
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import source_from_cache
from types import FrameType
from typing import Any
from urllib.parse import unquote

from ptxdiff.diskcache import cache_folder
from ptxdiff.locations import PACKAGE, REFERENCES
from ptxdiff.model.identity.source import real_path

ABSENT = "absent"
"""In the place of a digest: the file did not exist when it was opened."""

ASKED = "?"
"""After a path: not the contents count, but whether it is a file, a folder or a link, its size and its mode."""

_DIGITS = 32

_Stamp = tuple[int, int, int] | str | None
"""Size, time of the last change in nanoseconds and inode of a file; None if it does not exist. With `ASKED`, facts."""


@dataclass
class _Noted:
    """What the code of one source file did.

    files: paths, each with its stamp at the first opening. changed: those that had another one later. written: files
    that the code wrote before it read them.
    """

    files: dict[str, _Stamp] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    effects: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True)
class Opened:
    """What the code of some source files has opened so far in this process.

    files: a digest by path, `ABSENT` for a file that was not there; a folder has a digest of the names in it. unknown:
    why the inputs of the code are not known, in words; empty if they are known.
    """

    files: Mapping[str, str]
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProcessNotes:
    """What was noted in another process, for `take_over`: by source, and faults of the hook."""

    by_source: Mapping[str, _Noted]
    faults: tuple[str, ...]


_noted: dict[str, _Noted] = {}
_faults: dict[str, None] = {}
_installed = _wrapped = False
_paused = False
_elsewhere = False  # in a process that notes only within `noting`, whether it is outside
_noting = threading.local()


def watch(noting: bool = True) -> None:
    """Install the hook, once in a process.

    noting: if False, only wrap functions of `os`, which then note nothing: code that names them has the digest that it
    has in a process with the hook.
    """
    global _installed, _wrapped, _elsewhere
    if not _wrapped:
        _wrapped = True
        for name in _ASKING:
            _wrap(name)
        for name in _OF_THE_PROCESS:
            if hasattr(os, name):
                _wrap_state(name)
    if noting:
        _install()
        _elsewhere = False


def _install() -> None:
    global _installed
    if not _installed:
        _installed = True
        sys.addaudithook(_hook)


@contextlib.contextmanager
def noting() -> Iterator[None]:
    """Note what the user's code does within this block, in a process that may note nothing else.

    A compiler's process executes the case file, as its parent does, but only the compiler calls the functions that
    give a kernel its constants (`triton.constexpr_function`).
    """
    global _elsewhere
    if is_watching():
        yield
        return
    _install()
    _elsewhere = False
    try:
        yield
    finally:
        _elsewhere = True


def notes() -> ProcessNotes | None:
    """All that this process has noted so far; None if that is nothing."""
    return ProcessNotes(dict(_noted), tuple(_faults)) if _noted or _faults else None


def take_over(theirs: ProcessNotes) -> None:
    """Note what another process did for this one."""
    for source, other in theirs.by_source.items():
        noted = _noted.setdefault(source, _Noted())
        for path, stamp in other.files.items():
            if noted.files.setdefault(path, stamp) != stamp:
                noted.changed.add(path)
        noted.written |= other.written
        noted.changed |= other.changed
        noted.effects |= other.effects
    _faults.update(dict.fromkeys(theirs.faults))


def is_watching() -> bool:
    """Whether this process notes what the user's code does."""
    return _installed and not _elsewhere


def note(source: str, paths: Iterable[str]) -> None:
    """Note files that are opened in place of the code of a source: the harness imports what its functions import."""
    for text in map(os.path.abspath, paths):
        if not _excluded(text):
            _note([real_path(source)], text, _stamp(text))


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    note = _EVENTS.get(event) if _EVENTS else None  # Python's end empties this module before others
    if note is None or _paused or _elsewhere or getattr(_noting, "now", False):
        return
    _noting.now = True  # what this module itself asks about a path is no event
    try:
        note(event, arguments)
    except Exception as fault:  # raised from here, it would end the user's own call
        _faults[f"what it opens is not known ({event}: {type(fault).__name__}: {fault})"] = None
    finally:
        _noting.now = False


def opened_by(sources: Collection[str], without: Collection[str] = ()) -> Opened:
    """What the code of these source files has opened in this process.

    without: paths that another part of an identity covers.
    """
    files: dict[str, str] = {}
    unknown: dict[str, None] = dict(_faults)
    all_noted = [noted for source in sources if (noted := _noted.get(real_path(source))) is not None]
    excluded = {real_path(path) for path in without}.union(*(noted.written for noted in all_noted))
    for source in sources:
        if word := _unseen_reader(real_path(source), _stamp(real_path(source))):
            unknown[f"it calls {word}, by which compiled code opens files that nothing notes"] = None
    for noted in all_noted:
        unknown |= noted.effects
        for path, stamp in noted.files.items():
            if path in excluded:
                continue
            if path in noted.changed or _stamp(path) != stamp:
                unknown[f"it opened {path}, which has changed since then"] = None
            else:
                files[path] = digest_of(path)
    return Opened(dict(sorted(files.items())), tuple(unknown))


def all_opened(sources: Collection[str]) -> Opened:
    """What these source files, and all others whose code was noted, have opened in this process."""
    return opened_by({*sources, *_noted})


_UNSEEN_READERS = re.compile(
    rb"\b(from_file|safe_open|load_file|load_library|jit\.load|h5py|imread|read_image|read_parquet|read_table)\b"
)


@functools.lru_cache(maxsize=4096)
def _unseen_reader(source: str, stamp: _Stamp) -> str:
    """The first name in a source of a function whose compiled code opens files; "" if there is none."""
    global _paused
    paused, _paused = _paused, True
    try:
        with open(source, "rb") as file:
            match = _UNSEEN_READERS.search(file.read())
    except OSError:
        return ""
    finally:
        _paused = paused
    return match[1].decode() if match else ""


def digest_of(path: str) -> str:
    """A digest of the present contents of a file, or of the names in a folder; `ABSENT` if there is none."""
    stamp = _stamp(path)
    return ABSENT if stamp is None else stamp if isinstance(stamp, str) else _digest(path, stamp)


@functools.lru_cache(maxsize=4096)
def _digest(path: str, stamp: _Stamp) -> str:
    global _paused
    _paused = True
    try:
        if os.path.isdir(path):
            text = "\0".join(sorted(n for n in os.listdir(path) if not _derived(n))).encode("utf-8", "surrogateescape")
            return "folder " + hashlib.sha256(text).hexdigest()[:_DIGITS]
        hasher = hashlib.sha256()
        with open(path, "rb") as file:
            while part := file.read(1 << 20):
                hasher.update(part)
        return hasher.hexdigest()[:_DIGITS]
    except OSError:
        return "unreadable"
    finally:
        _paused = False


def _stamp(path: str) -> _Stamp:
    if path.endswith(ASKED):
        return _facts(path.removesuffix(ASKED))
    try:
        status = _stat(path)
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def _facts(path: str) -> str | None:
    """What `stat` and `readlink` say about a path, but for times, and of folders also for sizes and modes."""
    try:
        status = _stat(path, follow_symlinks=False)
        link = f"link to {_readlink(path)} " if stat.S_ISLNK(status.st_mode) else ""
    except (OSError, ValueError):
        return None
    try:
        status = _stat(path)
    except OSError:
        return f"{link}absent"
    if stat.S_ISDIR(status.st_mode):
        return f"{link}folder"
    return f"{link}file, {status.st_size} bytes, mode {stat.S_IMODE(status.st_mode):o}"


_stat, _readlink = os.stat, os.readlink
_ASKING = ("stat", "lstat", "access", "readlink")
"""Functions of `os` that say something about a path without opening it."""


def _wrap(name: str) -> None:
    """Put a function into the place of one of `os` that also notes the paths that the user's code asks about."""
    asks = getattr(os, name)

    @functools.wraps(asks)
    def asking(path: Any, *arguments: Any, **options: Any) -> Any:
        if _installed and not _paused and not isinstance(path, int) and options.get("dir_fd") is None:
            _hook(_ASKED_EVENT, (path,))
        return asks(path, *arguments, **options)

    setattr(os, name, asking)
    for supported in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        if asks in supported:
            supported.add(asking)


_ABOUT_THE_PROCESS = """
umask getpid getppid getpgid getpgrp getsid getuid geteuid getgid getegid getgroups getlogin getpriority nice
getloadavg times uname cpu_count sched_getaffinity sysconf get_blocking getrandom urandom
"""
_OF_THE_PROCESS = tuple(_ABOUT_THE_PROCESS.split())
"""Functions of `os` that say something about the process or the machine that is in no digest."""


def _wrap_state(name: str) -> None:
    """Put a function into the place of one of `os` that also notes that the user's code asks for such a fact."""
    asks = getattr(os, name)

    @functools.wraps(asks)
    def asking(*arguments: Any, **options: Any) -> Any:
        if _installed and not _paused:
            _hook(_STATE_EVENT, (name,))
        return asks(*arguments, **options)

    setattr(os, name, asking)


# ---- events --------------------------------------------------------------------------------------------------


def _open(event: str, arguments: tuple[Any, ...]) -> None:
    path, _, flags = arguments
    sources = _users_sources()
    if not sources or (text := _path(path)) is None:
        return
    text = _source_of(text)
    if text.startswith(_ABOUT_THE_MACHINE) and _opens_itself():
        _effect(sources, f"it reads {text}, which says what is so at that moment")
    if _excluded(text):
        return
    flags = flags if isinstance(flags, int) else 0
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    stamp = _stamp(text)
    if writes and (flags & (os.O_TRUNC | os.O_EXCL) or stamp is None):
        for source in sources:
            noted = _noted.setdefault(source, _Noted())
            (noted.changed if text in noted.files else noted.written).add(text)
        return
    _note(sources, text, stamp)
    if writes:
        for source in sources:
            _noted[source].changed.add(text)
    elif stamp is not None and not _is_plain(text):
        _effect(sources, f"it reads {text}, which is no ordinary file")


def _folder(event: str, arguments: tuple[Any, ...]) -> None:
    sources = _users_sources()
    if not sources or (text := _path("." if arguments[0] is None else arguments[0])) is None or _excluded(text):
        return
    _note(sources, text, _stamp(text))


def _library(event: str, arguments: tuple[Any, ...]) -> None:
    """A shared library, a database or an extension module: a path in the first argument that is one."""
    name = arguments[1] if event == "import" else arguments[0]
    if isinstance(name, os.PathLike):
        name = os.fspath(name)
    if not isinstance(name, str | bytes) or not name:
        return
    name = os.fsdecode(name)
    if event == "sqlite3.connect" and name.startswith("file:"):
        name = unquote(name.removeprefix("file:").partition("?")[0])
    if not name or name == ":memory:" or (event != "sqlite3.connect" and "/" not in name):
        return  # a system's library, a database in memory, or a module that `import` will open itself
    sources = _users_sources()
    if sources and (text := _path(name)) is not None and not _excluded(text):
        _note(sources, text, _stamp(text))


def _asked(event: str, arguments: tuple[Any, ...]) -> None:
    """A question about a path; questions about the folders above a file of the user's, as of `resolve`, are many."""
    sources = _users_sources(1)
    if not sources or (text := _path(arguments[0])) is None or _excluded(text):
        return
    _note(sources, text + ASKED, _stamp(text + ASKED))


def _state(event: str, arguments: tuple[Any, ...]) -> None:
    """A question of the user's own code, not of a module of Python that it uses."""
    if _kind(sys._getframe(3).f_code.co_filename)[0] is _USER and (sources := _users_sources(1)):
        _effect(sources, f"it calls os.{arguments[0]}, which says what is so of the process or the machine")


def _outside(event: str, arguments: tuple[Any, ...]) -> None:
    if sources := _users_sources():
        _effect(sources, f"it {_OUTSIDE[event]}")


_NAMES_IN_C = """
open open64 openat fopen fopen64 freopen mmap popen system getenv secure_getenv stat stat64 lstat fstat access opendir
readlink time clock_gettime gettimeofday umask getpid getppid getuid geteuid getrlimit sysconf rand random
"""
_C_READS = frozenset(_NAMES_IN_C.split())
"""Functions of C's library whose results no digest covers: called by ctypes, they are no event."""


def _symbol(event: str, arguments: tuple[Any, ...]) -> None:
    """A function that the user's code looks up by ctypes, not an installed package that it calls."""
    if arguments[1] in _C_READS and (sources := _users_sources()) and _opens_itself():
        _effect(sources, f"it calls C's {arguments[1]}")


_OUTSIDE = {
    "subprocess.Popen": "starts a process",
    "os.system": "starts a process",
    "os.exec": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.spawn": "starts a process",
    "os.fork": "starts a process",
    "os.forkpty": "starts a process",
    "pty.spawn": "starts a process",
    "socket.connect": "uses the network",
    "socket.getaddrinfo": "uses the network",
    "socket.sendto": "uses the network",
    "socket.bind": "uses the network",
}
"""Events whose results no digest covers."""

_ASKED_EVENT, _STATE_EVENT = "asked", "state"
"""The events of the wrapped functions."""

_EVENTS: dict[str, Callable[[str, tuple[Any, ...]], None]] = {
    "open": _open,
    "os.listdir": _folder,
    "os.scandir": _folder,
    "ctypes.dlopen": _library,
    "ctypes.dlsym": _symbol,
    "sqlite3.connect": _library,
    _ASKED_EVENT: _asked,
    _STATE_EVENT: _state,
    "import": _library,
    **dict.fromkeys(_OUTSIDE, _outside),
}


def _note(sources: Collection[str], path: str, stamp: _Stamp) -> None:
    for source in sources:
        noted = _noted.setdefault(source, _Noted())
        if noted.files.setdefault(path, stamp) != stamp:
            noted.changed.add(path)


def _effect(sources: Collection[str], words: str) -> None:
    for source in sources:
        _noted.setdefault(source, _Noted()).effects[words] = None


# ---- whose code it is ----------------------------------------------------------------------------------------

_USER, _LIBRARY, _OURS, _IMPORTING = "user", "library", "ours", "importing"


def _users_sources(wrapped: int = 0) -> list[str]:
    """The user's files whose code is on the stack, down to the harness's own code; empty for what is not theirs.

    wrapped: the number of functions of this module around an audit event's three.
    """
    sources: dict[str, None] = {}
    frame: FrameType | None = sys._getframe(3 + wrapped)  # below this module's functions
    innermost = True
    while frame is not None:
        code = frame.f_code  # asked once: it is an event of the hook, too
        kind, path = _kind(code.co_filename)
        if kind is _OURS:
            break
        if kind is _LIBRARY and code.co_name == "<module>":
            break  # an installed package is being imported: its version covers that
        if kind is _USER:
            sources[path] = None
        elif kind is _IMPORTING and innermost and code.co_name == "_fill_cache":
            return []  # the import system lists the folders of `sys.path`
        innermost = False
        frame = frame.f_back
    return list(sources)


def _opens_itself() -> bool:
    """Whether the user's code opens a file, with nothing but Python's own modules between."""
    frame: FrameType | None = sys._getframe(3)
    while frame is not None:
        file = frame.f_code.co_filename
        kind = _kind(file)[0]
        if kind is _USER or not (file.startswith(("<", _PYTHON)) and "-packages" not in file):
            return kind is _USER
        frame = frame.f_back
    return False


@functools.lru_cache(maxsize=4096)
def _kind(file: str) -> tuple[str, str]:
    """Whose code a file has, and its real path."""
    if file.startswith("<"):
        return (_IMPORTING if file.startswith("<frozen importlib") else _LIBRARY + "?"), ""
    path = real_path(file)
    if any(path.startswith(f"{folder}/") for folder in _OUR_FOLDERS):
        return _OURS, path
    return (_LIBRARY if any(path.startswith(f"{folder}/") for folder in _INSTALLED) else _USER), path


_OUR_FOLDERS = tuple(map(os.path.realpath, (PACKAGE, REFERENCES, PACKAGE / "reports")))
_INSTALLED = tuple(
    {os.path.realpath(path) for name, path in sysconfig.get_paths().items() if name not in ("scripts", "data")}
    | {os.path.realpath(sys.base_prefix) + "/lib", os.path.realpath(sys.prefix) + "/lib"}
)
_PYTHON = sysconfig.get_paths()["stdlib"]
_ABOUT_THE_MACHINE = ("/proc/", "/sys/")
_MACHINES = (*_ABOUT_THE_MACHINE, "/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/tty", "/dev/pts/")
_DERIVED = (".nbi", ".nbc")


def _path(path: Any) -> str | None:
    """The full path that an event names; None for an open file's number."""
    try:
        return os.path.abspath(os.fsdecode(path))
    except (TypeError, ValueError):
        return None


def _source_of(path: str) -> str:
    """The source behind a file of byte code: Python reads the source only where the byte code is out of date."""
    try:
        source = source_from_cache(path) if path.endswith(".pyc") else path
    except ValueError:
        return path
    return source if os.path.exists(source) else path


def _excluded(path: str) -> bool:
    """Whether a file is Python's, of an installed package, of the cache folder, of the machine, or derived."""
    if path.startswith(_MACHINES) or _derived(os.path.basename(path)):
        return True
    cache = cache_folder()
    return _lies_within(path, "" if cache is None else str(cache))


@functools.lru_cache(maxsize=1 << 14)
def _lies_within(path: str, cache: str) -> bool:
    """Whether a file is Python's, of an installed package, ours, or of the cache folder; "" for none.

    As `real_path`, it is asked once: while torch is imported, thousands of questions are about the same folders.
    """
    real = real_path(path)
    folders = (*_INSTALLED, *_OUR_FOLDERS, *([real_path(cache)] if cache else []))
    return any(real == folder or real.startswith(f"{folder}/") for folder in folders)


def _derived(name: str) -> bool:
    """Whether it is numba's cache beside a source, whose text counts, or the folder of byte code."""
    return name.endswith(_DERIVED) or name == "__pycache__"


def _is_plain(path: str) -> bool:
    try:
        mode = _stat(path).st_mode
    except OSError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)
