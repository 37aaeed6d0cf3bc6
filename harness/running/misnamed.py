"""Names on the command line that no item of a run has: refused once, before anything runs, with the nearest names."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from ptxdiff.model.files import FOLDER
from ptxdiff.suggestions import did_you_mean


def refuse(session: pytest.Session, text: str) -> None:
    """End the run with a message. Raises UsageError.

    A worker of pytest-xdist reports an error of collection instead: of a UsageError there its controller shows nothing.
    """
    if not hasattr(session.config, "workerinput"):
        raise pytest.UsageError(text)
    report = pytest.CollectReport("ptxdiff", "failed", text, [])
    session.ihook.pytest_collectreport(report=report)


def addresses(session: pytest.Session, is_test_file: Callable[[Path], bool]) -> bool:
    """Refuse the addresses of cases that pytest did not find. Returns False if it missed others."""
    said = [refusal for word in session.config.args if (refusal := _words(session.config, word, is_test_file))]
    if said:
        refuse(session, "\n".join(said))
    return bool(said)


def _words(config: pytest.Config, word: str, is_test_file: Callable[[Path], bool]) -> str:
    """Why there is no such item; "" if there is one, or the word means no case."""
    file_name, colons, _ = word.partition("::")
    path = config.invocation_params.dir / file_name
    if not path.exists():
        return _no_file(path, file_name)
    if not colons or "ptxdiff.running.collection" not in sys.modules or path.suffix != ".py" or is_test_file(path):
        return ""
    return _no_item(config, word)


def _no_file(path: Path, place: str) -> str:
    """The nearest case files of a folder of cases; "" if the path is in no such folder."""
    if not path.parent.is_dir() or path.parent.name != FOLDER:
        return ""
    near = did_you_mean(path.name, (f.name for f in path.parent.glob("*.py")))
    return f"no such file or folder: {place}{near}"


_ON_GPU = re.compile(r"\[(\w+)-gpu\]$")


def _no_item(config: pytest.Config, word: str) -> str:
    """What is wrong with an address in a case file that exists."""
    from ptxdiff.model.naming import named
    from ptxdiff.model.variants import CaseError
    from ptxdiff.running.collection import generations

    try:
        meant = named([word])[0]
    except CaseError as e:
        return str(e)
    on_gpu = _ON_GPU.search(word)
    if on_gpu and on_gpu[1] not in (there := generations(config)):
        have = f"GPUs of {', '.join(there)}" if there else "no GPU"
        return (
            f"{word}: this item needs a GPU of {on_gpu[1]}, and this host has {have}; the emulator runs it: "
            f"[{on_gpu[1]}-emulator]"
        )
    if meant.address.endswith(word.partition("::")[2]):
        return f"{word}: the options of this run leave this item out; without --ptx-backend and --ptx-target it runs"
    return f"{word} is no address of pytest; write {meant.address}"


def targets(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Refuse a target that the command line names and for which no Triton of the run compiles its kernels."""
    refusals = dict.fromkeys(_unserved(items)) if session.config.option.ptx_target else {}
    if refusals:
        items.clear()
        refuse(session, "\n".join(refusals))


def _unserved(items: Iterable[pytest.Item]) -> Iterable[str]:
    """What there is to say of each item whose kernels Triton would have to compile for a target that it does not know.

    A GPU's target is served, or is none of this host's. Kernels given as PTX need no Triton.
    """
    from ptxdiff.model.variants import PtxVariant
    from ptxdiff.running.collection import VariantItem
    from ptxdiff.triton.builds import NoTriton
    from ptxdiff.triton.targets import probe_with

    for item in (i.item for i in items if isinstance(i, VariantItem) and i.item.backend != "gpu"):
        if isinstance(item.loaded.case.variants[item.variant_name], PtxVariant):
            continue
        try:
            table = probe_with(item.compiler)
        except NoTriton:
            continue
        served = [name for name, info in table.items() if info.available]
        if served and item.target in table and item.target not in served:  # a build that serves none is broken
            by = f"the Triton build {item.compiler!r}" if item.compiler else "the installed Triton"
            reason = table[item.target].words.partition(". ")[0]
            near = did_you_mean(item.target, served)
            refused = f"{by} compiles no kernels for {item.target} ({reason})"
            yield f"--ptx-target: {refused}{near}; it serves {', '.join(served)}"
