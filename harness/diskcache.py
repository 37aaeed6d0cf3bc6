"""Files stored between runs in the user's cache folder, named by a hash of their inputs.

Each file begins with a digest of its name and contents. A damaged file, or one under another's name, is ignored. The
folder is `$PTXDIFF_CACHE_DIR`, else `ptxdiff` in the user's cache folder; an empty variable turns all caches off. The
caches of Triton and torch, in processes that ptxdiff starts, are in it too.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

KEPT = 8000  # files of one kind; beyond it, the least recently read files are deleted, down to half
BYTES = 1 << 30  # of one kind; handled in the same way

_DIGEST = hashlib.sha256().digest_size


def cache_folder() -> Path | None:
    """The cache folder, which may not exist; None if caches are turned off."""
    chosen = os.environ.get("PTXDIFF_CACHE_DIR")
    if chosen is not None:
        return _chosen_folder(chosen) if chosen else None
    return _users_cache_folder(os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME"))


_chosen_folder = functools.lru_cache(maxsize=16)(Path)  # each question about a file is compared with it


@functools.lru_cache(maxsize=16)
def _users_cache_folder(*variables: str | None) -> Path:
    """The folder for these variables, which decide it: each opened file is compared with it."""
    from platformdirs import user_cache_path

    return user_cache_path("ptxdiff", appauthor=False)


def compilers_caches() -> dict[str, str]:
    """The environment variables that put Triton's and torch's caches into the cache folder.

    Without `$PTXDIFF_CACHE_DIR`, the user's own settings for them stay. If caches are turned off, or the folder cannot
    be written, they get a temporary folder of this process, because neither compiler works without one.
    """
    root = cache_folder()
    if root is None or not _writable(root):
        root = _folder_of_this_process()
    chosen = "PTXDIFF_CACHE_DIR" in os.environ
    folders = {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
    return {n: str(root / folder) for n, folder in folders.items() if chosen or n not in os.environ}


def _writable(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        return os.access(folder, os.W_OK)
    return False


@functools.cache
def _folder_of_this_process() -> Path:
    folder = tempfile.mkdtemp(prefix="ptxdiff-")
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    return Path(folder)


_fresh: set[str] = set()
"""Kinds whose files are ignored. New files are still stored."""


def find_nothing(*kinds: str) -> None:
    """From now on, ignore the stored files of these kinds, so that they are made again. Without kinds, ignore none."""
    _fresh.clear()
    _fresh.update(kinds)


class DiskCache:
    """Contents of one kind, such as "sass". Safe to share between processes; losing any of it costs only time.

    files, size: the most files and bytes; None for `KEPT` and `BYTES`.
    """

    def __init__(self, kind: str, files: int | None = None, size: int | None = None) -> None:
        self._kind = kind
        self._files, self._size = files, size

    @property
    def folder(self) -> Path | None:
        """The folder of the files; None if caches are turned off."""
        root = cache_folder()
        return None if root is None else root / self._kind

    def _path(self, *parts: bytes) -> Path | None:
        digest = hashlib.sha256()
        for part in parts:  # with its length, so that no two lists of parts give the same name
            digest.update(len(part).to_bytes(8, "big") + part)
        return None if self.folder is None else self.folder / f"{digest.hexdigest()}.bin"

    def get(self, *parts: bytes) -> bytes | None:
        """The contents stored under `parts`; None if there is no file, or a damaged one."""
        path = self._path(*parts)
        if path is None or self._kind in _fresh:
            return None
        try:
            stored = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        data = stored[_DIGEST:]
        return data if stored[:_DIGEST] == _sum(path.name, data) else None

    def put(self, data: bytes, *parts: bytes) -> None:
        """Store contents, and now and then delete old files. A folder that cannot be written is no error."""
        path = self._path(*parts)
        if path is None:
            return
        _write_whole(path, _sum(path.name, data) + data)
        if path.name.startswith("00"):  # once in 256 times, because counting the files takes time
            self._make_room()

    @contextlib.contextmanager
    def making(self, *parts: bytes) -> Iterator[None]:
        """A lock on the contents of `parts`: while one process makes them, others wait here.

        Within the block, call `get` again before making them. If the folder cannot be written, nothing is locked.
        """
        path = self._path(*parts)
        file = None if path is None else _opened(path.parent / f"{path.name[:2]}.lock")
        if file is None:
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # released when the process ends
            yield
        finally:
            os.close(file)

    def _make_room(self) -> None:
        if self.folder is None:
            return
        most, size = self._files or KEPT, self._size or BYTES
        with contextlib.suppress(OSError):
            entries = sorted(((s.st_mtime, s.st_size, p) for p in self.folder.iterdir() for s in [p.stat()]), key=_age)
            count, total = len(entries), sum(n for _, n, _ in entries)
            if count <= most and total <= size:
                return
            for _, length, path in entries:
                if count <= most // 2 and total <= size // 2:
                    break
                path.unlink(missing_ok=True)
                count, total = count - 1, total - length


def _opened(path: Path) -> int | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None


def _age(entry: tuple[float, int, Path]) -> float:
    return entry[0]


def _sum(name: str, data: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + data).digest()


def _write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it appears complete, or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("wb", dir=path.parent, suffix=".tmp", delete=False) as file:
            file.write(data)
        os.replace(file.name, path)
    except OSError:
        return
