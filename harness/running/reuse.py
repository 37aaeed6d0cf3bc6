"""Results of earlier runs, reused if nothing that decides them has changed.

Each entry is one test item of the emulator, the assembler, or the interpreter of machine code. Its key has the
definitions of the variant and of the whole case (whose reference decides the inputs), what stands around them
(`model/identity/dependencies`), the place of the item, effort and limits, the assemblers with their levels, the text of
the harness and its ledgers, and what is installed: Python, the packages that compute, and each file of Triton, or of
the Triton build that compiles the variant. The entry lists the files that the case's code opened; it is used if their
contents are the same. A part that cannot be encoded equals no part of another process, so nothing is reused.

A process stores nothing if the harness was edited after the process began: it may still run the old text. Only items
with repeatable verdicts are stored: no errors, and nothing that was not run. A reference that asks a clock does not
depend on its inputs alone; `--ptx-fresh` is for such references.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ptxdiff as harness_package
from ptxdiff import references
from ptxdiff.backends import BACKENDS
from ptxdiff.diskcache import DiskCache
from ptxdiff.jobs import Backend, Job, Outcome
from ptxdiff.model import load as loader
from ptxdiff.model.identity import digest
from ptxdiff.model.identity.definition import INCOMPARABLE, definition, harness
from ptxdiff.model.identity.dependencies import dependencies, opened
from ptxdiff.model.identity.opened import digest_of
from ptxdiff.model.identity.source import forget as forget_sources
from ptxdiff.model.variants import CaseError
from ptxdiff.records import (
    Block,
    CaseInfo,
    Disagreement,
    Key,
    RecordError,
    Result,
    Split,
    Text,
    from_json,
    of_run,
    received,
    to_json,
)
from ptxdiff.running.assemblers import Chosen, tritons_own
from ptxdiff.running.carry_over import is_altered, state_of
from ptxdiff.running.item import Item, ItemResults, fingerprint_of
from ptxdiff.triton.builds import NoBuild, NoTriton, installation_of
from ptxdiff.triton.ptxas import NoAssembler

_VERDICTS = ("pass", "fail", "unsupported")
_RESULT = b'{"record":"result",'
_PACKAGES = ("triton", "torch", "numpy", "numba", "llvmlite", "ml_dtypes", "mpmath", "scipy")
_SETTINGS = ("TRITON_", "NUMBA_", "TORCH_", "ATEN_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_", "NPY_")
"""Prefixes of environment variables that may change what compilers, references or numpy compute."""
_kept = DiskCache("items", 40_000, 1 << 30)
_pairs = DiskCache("pairs")


def find(item: Item, *settings: Any) -> ItemResults | None:
    """The results of an earlier run, marked as reused; None if none has this item's key.

    settings: what else decides the results, such as the effort.
    """
    try:
        stored = _kept.get(*_key(item, settings)) if _comparable(item) else None
    except NoBuild:  # the build that compiled it is not installed
        return None
    if stored is None:
        return None
    try:
        head, *lines = zlib.decompress(stored).split(b"\n")
        entry = json.loads(head)
        run, files, read = str(entry["run"]), entry["files"], dict(entry["opened"])
        found = ItemResults.of([received(of_run(n, run) if n.startswith(_RESULT) else n) for n in lines])
    except (ValueError, KeyError, TypeError, zlib.error, RecordError):
        return None
    results, texts = found.results, found.texts.values()
    item_key = (item.loaded.name, item.variant_name, item.target, item.backend)
    if not results or any(r.key.item != item_key or r.verdict not in _VERDICTS or r.reused != run for r in results):
        return None
    mine = fingerprint_of(item)
    if any(r.fingerprint != mine for r in results) or files != _files(texts):
        return None
    if any(digest_of(path) != made for path, made in read.items()):
        return None
    return found


def keep(item: Item, found: ItemResults, run: str, *settings: Any) -> None:
    """Store an item's results, at once or with those of the next items. run: the id of the run that made them."""
    global _waits_until
    if (
        not BACKENDS[item.backend].reusable
        or not found.results
        or any(r.verdict not in _VERDICTS for r in found.results)
    ):
        return
    read = _read_by(item)
    if read is None:
        return
    head = json.dumps({"run": run, "files": _files(found.texts.values()), "opened": dict(read)}).encode()
    lines = [head, *(text for _, text in found.sent)]
    _waiting.append((zlib.compress(b"\n".join(lines), 1), _key(item, settings)))
    began = time.monotonic()
    if began >= _waits_until:
        store_waiting()
        ended = time.monotonic()
        _waits_until = ended + min(max(_STORE_EVERY, _LOOKS_APART * (ended - began)), _STORE_AT_LAST)


def store_waiting() -> None:
    """Store the results that wait, unless this process may run other code than lies on disk, which the keys describe.

    A look at all files takes as long as storing the results of several items. So it is made seldom, and always after
    the results for which it speaks.
    """
    if _waiting and not _edited_meanwhile():
        for data, key in _waiting:
            _kept.put(data, *key)
    _waiting.clear()


_STORE_EVERY, _STORE_AT_LAST = 0.5, 10.0  # seconds between two looks, at least and at most
_LOOKS_APART = 50
"""A look is followed by so many times its own duration without one. On a loaded machine one took a twentieth of the
half second between two of them."""
_waiting: list[tuple[bytes, tuple[bytes, ...]]] = []
_waits_until = 0.0  # of `time.monotonic`


def assembled_by(item: Item, assemblers: Sequence[Chosen]) -> tuple[str, ...] | None:
    """The assemblers of an item's kernels, each with its level and its program's digest: a part of the settings.

    None if a label does not determine the program, so that results must not be stored: a script may call any program.
    """
    if not BACKENDS[item.backend].chosen_ptxas:
        return ()
    try:
        own = [tritons_own(item.target, item.compiler) if a is None else a for a in assemblers]
    except (NoTriton, NoBuild, NoAssembler):
        return None
    if any(a.script for a in own):
        return None
    keys = ("" if chosen is None else chosen.label for chosen in assemblers)  # in the spelling of the results' keys
    return tuple(f"{key}: {a.label}" for key, a in zip(keys, own, strict=True))


def find_disagreement(items: Sequence[Item], stored_key: tuple[Any, ...]) -> Disagreement | None:
    """The disagreement that an earlier run found between results of exactly these items; None if there is none.

    stored_key: which results of the items, and what else decides their outputs.
    """
    if any(not BACKENDS[i.backend].reusable or not _comparable(i) or _read_by(i) for i in items):
        return None
    try:
        stored = _pairs.get(*_pair(items, stored_key))
        disagreement = None if stored is None else from_json(json.loads(zlib.decompress(stored)))
    except (NoBuild, ValueError, KeyError, TypeError, zlib.error, RecordError):
        return None
    return (
        disagreement
        if isinstance(disagreement, Disagreement) and (disagreement.one, disagreement.other) == stored_key[:2]
        else None
    )


def keep_disagreement(items: Sequence[Item], found: Disagreement, stored_key: tuple[Any, ...]) -> None:
    """Store a disagreement between results of these items. stored_key: see `find_disagreement`."""
    if all(BACKENDS[i.backend].reusable and _read_by(i) == {} for i in items) and not _edited_meanwhile():
        _pairs.put(zlib.compress(json.dumps(to_json(found)).encode(), 1), *_pair(items, stored_key))


def _pair(items: Sequence[Item], stored_key: tuple[Any, ...]) -> tuple[bytes, ...]:
    return tuple(part for item in items for part in _key(item, stored_key))


def key_of(item: Item, *settings: Any) -> str | None:
    """A digest of all that decides an item's results; None if this process may run other code than lies on disk."""
    if _edited_meanwhile():
        return None
    try:
        return digest(_key(item, settings))
    except NoBuild:  # the build that compiles it is not installed
        return None


def _key(item: Item, settings: tuple[Any, ...]) -> tuple[bytes, ...]:
    item_key = (item.loaded.name, str(item.loaded.path), item.variant_name, item.target, item.backend)
    parts = [digest((item_key, settings)), _case(item), _surroundings()]
    if item.compiler:
        parts.append(f"{item.compiler} {installation_of(item.compiler)}")
    if rests_on := BACKENDS[item.backend].rests_on:
        parts.append(rests_on())
    return tuple(part.encode() for part in parts)


def _comparable(item: Item) -> bool:
    """Whether another process can have the item's key: all that it is made of has an encoding."""
    case = item.loaded.case
    parts = definition(case, item.variant, exact=True)
    return state_of(case)[1] and not any(d.startswith(INCOMPARABLE) for d in parts.values())


def _read_by(item: Item) -> Mapping[str, str] | None:
    """The files that the case's code has opened, with digests; None if no later run could have the same results."""
    read = opened(item.loaded.path)
    return None if read.unknown or is_altered(item.loaded.case) or not _comparable(item) else read.files


def _case(item: Item) -> str:
    case, variant = item.loaded.case, item.variant
    path = _resolved(item.loaded.path)
    around = dependencies(path, exact=True)
    known = _cases.get((id(case), id(variant), path))
    if known is None or known[2] != around:
        made = digest((definition(case, variant, exact=True), state_of(case)[0], around))
        known = _cases[id(case), id(variant), path] = (case, variant, around, made)
    return known[3]


_resolved = functools.cache(Path.resolve)

_cases: dict[tuple[int, int, Path], tuple[Any, Any, dict[str, str], str]] = {}
"""By the ids of case and variant, which are kept alive, so that no other object gets their ids, and by the file, since
two files may bind the same case."""


def forget() -> None:
    """Forget what this process has computed for keys: of files, cases and the environment, which may have changed."""
    forget_sources()
    _cases.clear()
    _surroundings.cache_clear()


def _edited_meanwhile() -> bool:
    """Whether a file of the harness or the references is newer than this process."""
    began = _began()
    return any(_newest(package.__path__[0]) >= began for package in (harness_package, references))


def _newest(folder: str) -> float:
    """When the newest Python file below a folder was changed. Called often: `rglob` takes ten times as long."""
    newest = 0.0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                newest = max(newest, _newest(entry.path))
            elif entry.name.endswith(".py"):
                newest = max(newest, entry.stat().st_mtime)
    return newest


_IMPORTED = time.time()


def _began() -> float:
    """When this process began, in seconds since the epoch. On other systems, when this module was imported."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return _IMPORTED


@functools.cache
def _surroundings() -> str:
    """A digest of all that runs the items: the harness, its ledger, installed packages, and their settings."""
    from ptxdiff.backends.emulator import ASM_ALONE
    from ptxdiff.conformance.ledger import PATH
    from ptxdiff.triton.builds import NoTriton, installation

    try:
        triton = installation()
    except NoTriton:
        triton = ""
    ledger = hashlib.sha256(PATH.read_bytes()).hexdigest() if PATH.exists() else ""
    settings = sorted((n, v) for n, v in os.environ.items() if n.startswith((*_SETTINGS, ASM_ALONE)))
    return digest((harness(), ledger, triton, platform.python_version(), platform.machine(), _versions(), settings))


def _versions() -> tuple[tuple[str, str], ...]:
    versions = []
    for package in _PACKAGES:
        try:
            versions.append((package, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            versions.append((package, ""))
    return tuple(versions)


def _files(texts: Iterable[Text]) -> dict[str, str]:
    """The source files that the PTX texts name, with digests of their contents now: PTX has their line numbers."""
    from ptxdiff.triton.ptx_text import files_named

    return {name: made for t in texts if t.kind == "ptx" for name, made in files_named(t.text).items()}


# Explains splits at the end of a run -------------------------------------------------------------------------------
#
# One pair of setups of each split is run again, and their outputs are compared.
#
# `ptxdiff.records.agreement` finds from digests that bits differ. The first input at which they differ, and the lines
# of PTX that differ, need the outputs themselves. Running two setups again costs less than keeping the outputs of all,
# and the result does not depend on which process ran what, or in which order.

LINES_SHOWN = 12
PAIRS_LOOKED_AT = 24
"""The most splits of a run that are explained; the others are reported from their digests alone."""


class Agreement:
    """Runs a pair of setups of each split again and compares the outputs.

    root: the folder that the cases' paths are relative to, or one below it. backend: makes a backend by name.
    assemblers: those that run an item. settings: whatever else decides the outputs; disagreements are then stored for
    the next run, as results are. None: nothing is stored.
    """

    def __init__(
        self,
        root: Path,
        cases: Iterable[CaseInfo],
        backend: Callable[[str], Backend],
        effort: str,
        assemblers: Callable[[Item], Sequence[Chosen]] = lambda _: (None,),
        settings: tuple[Any, ...] | None = None,
    ) -> None:
        self.root, self.backend, self.effort = root, backend, effort
        self.assemblers, self.settings = assemblers, settings
        self.paths = {info.case: info.path for info in cases}
        self._loaded: dict[str, loader.LoadedCase] = {}
        self._made_of: dict[Key, Mapping[str, str]] = {}
        self._blocks: dict[Key, tuple[Block, ...]] = {}

    def disagreements(self, results: Sequence[Result], splits: Sequence[Split]) -> list[Disagreement]:
        """One disagreement for each of the first splits; a split that cannot be run again is left out."""
        blocks = self._blocks = {r.key: r.outputs_digest for r in results}
        self._made_of = {r.key: r.fingerprint for r in results}
        disagreeing = []
        for split in splits[:PAIRS_LOOKED_AT]:
            one, other = split.pair
            differing = next(
                ((a.first, a.count) for a, b in zip(blocks[one], blocks[other], strict=False) if a.digest != b.digest),
                (0, 0),
            )
            if (disagreement := self._look(one, other, differing)) is not None:
                disagreeing.append(disagreement)
        return disagreeing

    def _look(self, one: Key, other: Key, block: tuple[int, int]) -> Disagreement | None:
        try:
            items = self._item(one), self._item(other)
            stored_key = self._stored_key(one, other, block)
            if stored_key is not None and (known := find_disagreement(items, stored_key)) is not None:
                return known
            (job, first), (_, second) = self._again(items[0], one, block), self._again(items[1], other, block)
        except (LookupError, CaseError):  # the file was deleted or edited during the run
            return None
        if not first.outputs or not second.outputs:
            return None
        from ptxdiff.judging.judge import judge_same

        judgement = judge_same(job.case, job.inputs, first.outputs, second.outputs, job.setup.pack)
        if not judgement.offenders:
            return None
        lines = ptx_lines(first.artifacts.ptx or "", second.artifacts.ptx or "")
        disagreement = Disagreement(one, other, judgement.different, judgement.offenders[0], lines)
        if stored_key is not None:
            keep_disagreement(items, disagreement, stored_key)
        return disagreement

    def _stored_key(self, one: Key, other: Key, block: tuple[int, int]) -> tuple[Any, ...] | None:
        """The key of a stored disagreement, apart from the items; it contains the bits that differ."""
        if self.settings is None:
            return None
        return one, other, block, self._blocks[one], self._blocks[other], self.effort, *self.settings

    def _item(self, key: Key) -> Item:
        if key.case not in self._loaded:
            places = (base / self.paths[key.case] for base in (self.root, *self.root.parents))
            for file in [path for path in places if path.is_file()][:1]:
                self._loaded |= {c.name: c for c in loader.load(file)}
        item = Item(self._loaded[key.case], key.variant, key.target, key.backend)
        if fingerprint_of(item) != self._made_of.get(key):
            raise LookupError(f"{key}: the case has changed since it was run")
        return item

    def _again(self, item: Item, key: Key, block: tuple[int, int]) -> tuple[Job, Outcome]:
        from ptxdiff.running.run import run_again

        return run_again(item, self.backend(key.backend), self.effort, key, block, self.assemblers(item))


def ptx_lines(before: str, after: str) -> tuple[str, ...]:
    """The lines by which two PTX texts differ, marked `-` and `+`, without headers, comments and declarations."""
    from ptxdiff.triton.ptx_text import body

    if not before or not after or before == after:
        return ()
    was, now = ([line for line in body(ptx).splitlines() if not line.startswith(".reg")] for ptx in (before, after))
    lines = difflib.unified_diff(was, now, n=0, lineterm="")
    changed = [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    more = len(changed) - LINES_SHOWN
    return (*changed[:LINES_SHOWN], *([f"and {more} more"] if more > 0 else []))
