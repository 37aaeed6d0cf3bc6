"""Errors in a notebook: the user's own lines and the message, without the frames of ptxdiff."""

from __future__ import annotations

import linecache
import traceback
from types import TracebackType

from ptxdiff.locations import PACKAGE

_MACHINERY = ("IPython", "ipykernel", "traitlets")


class ShortTraceback:
    """Mixed into an exception class: IPython shows the frames of the user's code alone. Elsewhere nothing changes."""

    __traceback__: TracebackType | None

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython prints."""
        lines = []
        for frame, number in traceback.walk_tb(self.__traceback__):
            name = frame.f_code.co_filename
            if name.startswith(str(PACKAGE)) or any(f"/{part}/" in name for part in _MACHINERY):
                continue
            cell = "<ipython-input" in name or "ipykernel_" in name
            text = linecache.getline(name, number).strip()
            lines.append(f"{'cell' if cell else name}, line {number}: {text}")
        return [*lines, f"{type(self).__name__}: {self}"]
