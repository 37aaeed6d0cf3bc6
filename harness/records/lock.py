"""One writer for each file: a lock beside the file, which ends with the process that holds it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from ptxdiff.records.types import WriteError

_UNNAMED_HOLDER = "another process"


class FileLock:
    """Locks a file for writing, from now until `release` or until this process ends.

    The lock is an flock on `NAME.lock` beside the file, which names the holder and is removed on release. The records
    file itself cannot carry the lock, because a resumed run replaces it. The folders of the path are created. Raises
    WriteError, which names the holder, if another process, or another run of this one, holds the lock.
    """

    def __init__(self, path: Path) -> None:
        self._beside = lock_of(path)
        try:
            self._beside.parent.mkdir(parents=True, exist_ok=True)
            self._held = self._locked(path)
        except OSError as e:
            raise WriteError(f"{path}: {e.strerror or e}") from e
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        os.ftruncate(self._held, 0)
        os.pwrite(self._held, json.dumps(holder).encode(), 0)

    def _locked(self, path: Path) -> int:
        """A descriptor that holds the lock. If its holder removes the file meanwhile, a new file is made."""
        while True:
            held = os.open(self._beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(held), os.stat(self._beside)):
                    return held
            except BlockingIOError:
                message = f"{path} is being written by {_holder(held)}; name another file, or wait until that run ends"
                os.close(held)
                raise WriteError(message) from None
            except FileNotFoundError:  # removed between `open` and `flock`
                pass
            except BaseException:
                os.close(held)
                raise
            os.close(held)

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        if self._held < 0:
            return
        with contextlib.suppress(OSError):
            os.unlink(self._beside)  # while the lock is held, so that no other process's file is removed
        os.close(self._held)
        self._held = -1


def lock_of(path: Path) -> Path:
    """The file that carries the lock of another file. A link shares the lock of its target."""
    real = path.resolve()
    if real.exists() and not real.is_file():  # a link to a device
        real = path.absolute()
    return real.with_name(f"{real.name}.lock")


def _holder(held: int) -> str:
    """The holder of a lock, as its file names it: `process 12 on host since 2026-01-01T00:00:00+00:00`."""
    try:
        holder = json.loads(os.pread(held, 1 << 12, 0))
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, TypeError, KeyError):  # not written yet
        return _UNNAMED_HOLDER
