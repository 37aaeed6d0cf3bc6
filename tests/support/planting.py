"""Copy cases of the catalogue and plant a mistake in the copy: in the case file, or in a module beside it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

CASES = Path(__file__).parents[2] / "cases"


def planted(folder: Path, file: str, change: Callable[[str], tuple[str, int]], start: str = "") -> Path:
    """Copy a case file, with the modules beside it, to a folder, and change it. Returns the path of the copy.

    change: returns the changed text and the number of changes, as `re.subn` does. It gets the case file's text first,
    from the text `start` on, then the whole file, then each module that the case file imports from. Raises
    AssertionError if it changes none.
    """
    for beside in ("_device", "_host"):
        shutil.copytree(CASES / beside, folder / beside, ignore=shutil.ignore_patterns("__pycache__"))
    text = (CASES / f"{file}.py").read_text()
    path = folder / f"{file}.py"
    path.write_text(text)
    modules = re.findall(r"^from \.(_device|_host)\.(\w+) import", text, flags=re.MULTILINE)
    beside = [folder / package / f"{name}.py" for package, name in modules]
    for place, first in [(path, text.index(start)), *((place, 0) for place in (path, *beside))]:
        whole = place.read_text()
        changed, count = change(whole[first:])
        if count:
            place.write_text(whole[:first] + changed)
            return path
    raise AssertionError(f"{file}.py has changed: neither it nor what it imports holds what is to be replaced")
