"""Small texts kept between runs in the user's cache folder, by hash of what they were made from."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

KEPT = 4000  # files of one kind; beyond it the half that was read longest ago goes


def cache_folder() -> Path:
    """The user's cache folder for this project; it may not exist."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "ptxdiff"


def write_whole(path: Path, text: str) -> None:
    """Put a file in place whole, or not at all: a folder that cannot be written only costs the next run the work."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False) as file:
            file.write(text)
        os.replace(file.name, path)
    except OSError:
        return


class DiskCache:
    """Texts of one kind, such as "sass". Safe to share between processes; losing any of it costs time only."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    @property
    def folder(self) -> Path:
        """Where the texts are."""
        return cache_folder() / self._kind

    def _path(self, *parts: bytes) -> Path:
        digest = hashlib.sha256()
        for part in parts:  # with its length, so that no two lists of parts read the same
            digest.update(len(part).to_bytes(8, "big") + part)
        return self.folder / f"{digest.hexdigest()}.txt"

    def get(self, *parts: bytes) -> str | None:
        """The text made from `parts`; None where there is none."""
        path = self._path(*parts)
        try:
            text = path.read_text()
            os.utime(path)
        except (OSError, UnicodeDecodeError):
            return None
        return text

    def put(self, text: str, *parts: bytes) -> None:
        """Keep a text; now and then this makes room."""
        path = self._path(*parts)
        write_whole(path, text)
        if path.name.startswith("00"):  # one in 256: counting a folder is not free
            self._make_room()

    def _make_room(self) -> None:
        with contextlib.suppress(OSError):
            files = sorted(self.folder.iterdir(), key=lambda p: p.stat().st_mtime)
            for path in files[: len(files) - KEPT // 2] if len(files) > KEPT else ():
                path.unlink(missing_ok=True)
