"""What pytest collects from a case file: one item for each variant, target and backend."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ptxdiff.backends import BACKENDS, create
from ptxdiff.backends.kept import KeptOutcomes
from ptxdiff.jobs import Backend, DisassemblingBackend, Job
from ptxdiff.model import load as loader
from ptxdiff.model.case import Case
from ptxdiff.model.policies import differs_on
from ptxdiff.model.targets import KNOWN, normal
from ptxdiff.model.variants import AsmVariant, CaseError, PlainVariant
from ptxdiff.processes.footprint import collect_seldom
from ptxdiff.processes.gpus import gpus
from ptxdiff.records import Proof, Result, Sent, brief_counts, sent
from ptxdiff.records.causes import cause_words, shown_first
from ptxdiff.records.escaping import OwnWords, line
from ptxdiff.running import carry_over, reuse
from ptxdiff.running.assemblers import AssemblerChoice, Chosen, timed_by
from ptxdiff.running.item import Item, ItemResults, label_of, not_run
from ptxdiff.running.replay import TokenError, parse
from ptxdiff.triton.builds import NoTriton
from ptxdiff.triton.ptxas import NoAssembler

if TYPE_CHECKING:
    from ptxdiff.model.load import LoadedCase


FILES_AT_ONCE = 8
"""Case files whose kernels are disassembled together: a call of nvdisasm takes a quarter of a second for any number.
All are compiled before the first of their items runs, so they are few."""


class Together:
    """The files, targets and backends whose kernels were disassembled together in this process.

    files: how many case files at once. Where other processes run some of them, it should be one. backends: those of
    this run that disassemble, by name: what one of them needs is read with what the others need.
    """

    def __init__(self, files: int = 1, backends: Mapping[str, DisassemblingBackend] | None = None) -> None:
        self.files, self.backends = files, backends or {}
        self._made: set[tuple[Path, str, str]] = set()

    def __call__(
        self, item: Item, backend: Backend, effort: str, items: Iterable[Item],
        runs: Callable[[Item], bool] = lambda item: True,
    ) -> None:  # fmt: skip
        """Prepare `item` at once with the items of its file among `items`, and with those of the next files that run.

        runs: whether an item of another file will run, and has no result already. A fault here fails none of them.
        """
        if not isinstance(backend, DisassemblingBackend) or _place(item) in self._made:
            return
        backends = {**self.backends, item.backend: backend}
        own, ours = _place(item), dict[tuple[Path, str, str], list[Item]]()
        for one in items:
            if one.target == item.target and one.backend in backends:
                ours.setdefault(_place(one), []).append(one)
        following = itertools.dropwhile(lambda place: place != own, (p for p in ours if p[2] == item.backend))
        jobs: dict[str, list[Job]] = {}
        for path, target, _ in itertools.islice((p for p in following if p not in self._made), self.files):
            for name, made_by in backends.items():
                place = path, target, name
                chosen = [i for i in ours.get(place, ()) if not i.compiler and (place == own or runs(i))]
                if chosen and place not in self._made:
                    self._made.add(place)
                    wanted = _each_kernel if made_by.every_setup else _first
                    jobs.setdefault(name, []).extend(job for i in chosen for job in wanted(i, made_by, effort))
        self._made.add(own)
        # One that needs every kernel reads all of them with one call; the others find theirs.
        for name in sorted(jobs, key=lambda name: not backends[name].every_setup):
            every = backends[name].every_setup
            backends[name].disassemble_ahead([j for n, some in jobs.items() if n == name or every for j in some])


def _place(item: Item) -> tuple[Path, str, str]:
    return item.loaded.path, item.target, item.backend


def _first(item: Item, backend: Backend, effort: str) -> list[Job]:
    """The first job of an item's plan; none if there is none. The item itself reports why."""
    from ptxdiff.running.run import jobs

    with contextlib.suppress(Exception):
        return [job for job in [next((job for _, job in jobs(item, backend, effort)), None)] if job]
    return []


def _each_kernel(item: Item, backend: Backend, effort: str) -> list[Job]:
    """A job for each setup of an item's plan, without inputs; none if there is no plan."""
    from ptxdiff.running.item_plan import ItemPlan
    from ptxdiff.running.plan import WorkItem

    with contextlib.suppress(Exception):
        plan = ItemPlan(item, backend, effort)
        setups = {repr(setup): setup for setup in plan.kernels()}
        return [plan.job(WorkItem(setup, ""), {}) for setup in setups.values()]
    return []


class LintFailure(Exception):
    """The findings of one case file, as text."""


class LintItem(OwnWords, pytest.Item):
    """The linter on the asm of one case file, which is not run."""

    own_error = LintFailure

    def runtest(self) -> None:
        """Raise LintFailure for errors and warnings; notes alone pass."""
        from ptxdiff.lint import outputs
        from ptxdiff.lint.files import Report, lint_paths
        from ptxdiff.lint.settings import Configuration, Options

        path = self.path
        root = self.config.rootpath
        shown = path.relative_to(root) if path.is_relative_to(root) and Path.cwd() == root else path
        report = lint_paths([shown], Configuration(Options(force_exclude=True)))
        if report.excluded:
            pytest.skip(report.excluded[0].words)
        wrong = [f for f in report.findings if f.severity != "note"]
        if wrong:
            raise LintFailure(outputs.text(Report(findings=wrong, notes=report.notes, snippets=report.snippets)))

    def reportinfo(self) -> tuple[Path, int, str]:
        """The name under which pytest reports the item."""
        return self.path, 0, f"{self.path.name}: lint"


def lint_items(parent: pytest.Collector) -> Iterator[LintItem]:
    """The linter's item of a case file, if --ptx-lint asks for one."""
    if parent.config.option.ptx_lint:
        yield LintItem.from_parent(parent, name="lint")


OFFERED = pytest.StashKey[tuple[str, ...]]()
"""In a session's stash, under `--ptx-cluster`: the GPU generations that the cluster's nodes have."""

EMULATED_INSTEAD = pytest.StashKey[tuple[str, ...]]()
"""In a session's stash: targets whose GPU items run on the emulator instead, because no node has such a GPU."""

_TOGETHER = pytest.StashKey[Together]()
_BACKENDS = pytest.StashKey[dict[str, Backend]]()
_OUTCOMES = pytest.StashKey[KeptOutcomes]()
_TARGETS = pytest.StashKey[tuple[str, ...]]()
_FILES = pytest.StashKey[dict[str, Path]]()
_BROKEN = pytest.StashKey[list[str]]()
_DONE = pytest.StashKey[dict[tuple[str, str, str, str], ItemResults]]()

RUN_ID = "ptxdiff_run"
"""The key in a pytest-xdist worker's input under which the controller sends the id of the run."""

ALL = "all"
"""The value of `--ptx-target` that stands for every target."""

NO_DEVICE = "device"  # the target in the names of GPU items on a host without a GPU


_AT_ONCE = "store different values to one address at once"


def only_fused(results: Sequence[Result]) -> str:
    """A hint if results fail only where multiplications and additions are fused, on inputs that pass where they are
    not; "" otherwise."""
    failing = {r.key.input_set.partition("+")[0] for r in results if r.verdict == "fail"}  # in any order
    apart = {r.key.input_set.partition("+")[0] for r in results if r.verdict == "pass" and not r.key.fusion}
    verdicts = {r.verdict for r in results if not r.key.fusion}
    if not failing or not failing <= apart or verdicts != {"pass"}:
        return ""
    if any(_AT_ONCE in finding for r in results for finding in r.findings):
        return (
            "\n\nThe same inputs pass with fusion off: a thread that fuses its own product into a sum has other bits\n"
            "than the thread that exchanged the product with it, and both store the sum. Launch the kernel with\n"
            "enable_fp_fusion=False, and state fusion=False; or exchange nothing that is still a product (mul.rn)."
        )
    return (
        "\n\nThe same inputs pass with fusion off: a fused multiply-add makes the difference. If both are right,\n"
        "reference=either(apart, fused) accepts both; if the kernel must not fuse, its asm needs mul.rn and add.rn."
    )


def _other_repairs(failing: Sequence[Result]) -> str:
    """The repairs of an item's failures beside the first one's, such as further constraints without `&`."""
    first = shown_first(failing)
    known = [r for r in failing if r.diagnosis == first.diagnosis and r.findings]
    if not first.diagnosis:
        return ""
    repairs = dict.fromkeys(cause_words(r.diagnosis, r.findings) for r in known)
    repairs.pop(cause_words(first.diagnosis, first.findings), None)
    return "".join(f"\nalso: {repair}" for repair in repairs)


class ItemFailure(Exception):
    """The verdict `fail` or `error`; the text is the whole message."""


class CaseFile(OwnWords, pytest.File):
    """A case file. Items of the case called `case` belong to the file, those of another case to a group of its name."""

    own_error = CaseError

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Load the file and list its items."""
        try:
            return [*lint_items(self), *_of_cases(self, loader.load(self.path))]
        except CaseError:
            self.config.stash.setdefault(_BROKEN, []).append(self.nodeid)
            raise


class CaseModule(OwnWords, pytest.Module):
    """A test module in a folder of cases: its tests, as pytest collects them, then its cases."""

    own_error = CaseError

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """List the tests and the cases. Raises CaseError if the file has neither."""
        tests = list(super().collect())
        if not loader.cases_in(vars(self.obj)):  # `load` would execute the file again
            if not tests:
                loader.load(self.path)
            return tests
        return [*tests, *lint_items(self), *_of_cases(self, loader.load(self.path))]


def _of_cases(parent: pytest.Collector, cases: Iterable[loader.LoadedCase]) -> Iterator[pytest.Item | pytest.Collector]:
    """The items of a file's cases, or their groups. Raises CaseError if another file has a case of that name."""
    if _FILES not in parent.config.stash:
        carry_over.of_session(parent.config)
    named = parent.config.stash.setdefault(_FILES, {})
    for loaded in cases:
        loader.claim(named, loaded)
        if loaded.attribute == "case":
            yield from items(parent, loaded)
        else:
            yield CaseGroup.from_parent(parent, name=loaded.attribute, loaded=loaded)


class CaseGroup(pytest.Collector):
    """The items of a case that is not called `case`."""

    def __init__(self, *, loaded: loader.LoadedCase, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.loaded = loaded

    def collect(self) -> Iterable[pytest.Item]:
        """List the case's items."""
        return items(self, self.loaded)


def items(parent: pytest.Collector, loaded: loader.LoadedCase) -> Iterator[pytest.Item]:
    """One item for each variant, target and backend of this run; with --benchmark-only, the timing items alone."""
    if parent.config.getoption("benchmark_only", False):  # of pytest-benchmark, to run only benchmarks
        from ptxdiff.timing.items import benchmark_items

        for target in _devices(parent.config):
            yield from benchmark_items(parent, loaded, target, timed_by(parent.config, target))
        return
    everywhere = [(backend, target, _marker(backend)) for backend, target in places(parent.config)]
    within = f"{parent.nodeid}::"
    for variant in loaded.case.variants:
        # With `--dist loadgroup`, one worker gets a variant's items, or a file's: see `running/xdist`.
        group = _marker("xdist_group", f"{loaded.name}::{variant}")
        for backend, target, marker in everywhere:
            label = label_of(variant, target, backend)
            # With the whole id: newer pytest splits ids for --lf at `::`, also within brackets.
            yield VariantItem.from_parent(
                parent, name=label, nodeid=within + label, of=(loaded, variant, target, backend), marked=(marker, group)
            )
    yield from proof_items(parent, loaded)
    if parent.config.option.ptx_timing:
        from ptxdiff.timing.items import timing_item

        for target in _devices(parent.config):
            yield timing_item(parent, loaded, target, timed_by(parent.config, target))


def go_on_without_broken(session: pytest.Session) -> None:
    """Run the other items if nothing but case files failed to be collected: one broken file says nothing about them.

    pytest would run nothing. The broken files stay errors, and the records stay without an end.
    """
    broken = session.config.stash.get(_BROKEN, [])
    if broken and session.testsfailed == len(broken):
        session.config.option.continue_on_collection_errors = True


def item_in(config: pytest.Config, path: str, item: tuple[str, ...]) -> Item:
    """An item of a case file that this session does not run. path: as a record of its case has it.

    Raises LookupError if there is no such file, case or variant now, and CaseError if the file cannot be loaded.
    """
    if _FILES not in config.stash:
        carry_over.of_session(config)
    places = (base / path for base in (config.rootpath, *config.rootpath.parents))
    file = next((candidate for candidate in places if candidate.is_file()), None)
    if file is None:
        raise LookupError(f"there is no {path}")
    name, variant, target, backend = item
    loaded = next((c for c in loader.load(file) if c.name == name), None)
    if loaded is None or variant not in loaded.case.variants:
        raise LookupError(f"{file} has no {name}::{variant}")
    return Item(loaded, variant, target, backend)


def check_replay(config: pytest.Config, collected: Iterable[pytest.Item]) -> None:
    """Check the replay token against each case that is to run. Raises UsageError if it belongs to another case."""
    cases = {i.item.loaded.name: i.item.loaded.case for i in collected if isinstance(i, VariantItem)}
    for name, case in cases.items():
        try:
            parse(config.option.ptx_replay, case)
        except TokenError as e:
            several = f" ({name} is one of {len(cases)} cases that would run)" if len(cases) > 1 else ""
            raise pytest.UsageError(
                f"--ptx-replay: {e}{several}; give the item and the token as the failure message prints them"
            ) from None


def _devices(config: pytest.Config) -> list[str | None]:
    """The targets of the GPU backend; None if this host has no GPU."""
    return [None if target == NO_DEVICE else target for backend, target in places(config) if backend == "gpu"]


def places(config: pytest.Config) -> list[tuple[str, str]]:
    """(backend, target) pairs: on the GPU backend the targets of this host's GPUs, on others all chosen targets."""
    chosen = config.option.ptx_backend or ["auto"]
    automatic: list[str] = []
    if "auto" in chosen:  # else nothing needs to be looked for
        automatic = [name for name, kind in BACKENDS.items() if kind.automatic and not kind.missing()]
    wanted = list(dict.fromkeys(n for c in chosen for n in (automatic if c == "auto" else (c,))))
    named = _named_targets(config)
    found = []
    for backend in wanted:
        if backend != "gpu":
            found += [(backend, target) for target in named or _all_targets(config)]
        elif there := generations(config):
            explicit = "gpu" in chosen or config.option.ptx_require_gpu  # others say why they do not run
            found += [(backend, t) for t in named or there if explicit or t in there]
        else:
            found.append((backend, NO_DEVICE))
    return found if config.option.ptx_require_gpu else _with_emulated(config, found)


def left_out(config: pytest.Config) -> dict[str, str]:
    """The backends that `auto` leaves out on this machine, each with the reason in one line."""
    if "auto" not in (config.option.ptx_backend or ["auto"]):
        return {}
    return {name: why for name, kind in BACKENDS.items() if kind.automatic and (why := kind.missing())}


def is_brief(config: pytest.Config, backend: str) -> bool:
    """Whether the items of a backend have a smaller plan: at quick effort, if `auto` chose it and nobody names it."""
    asked = backend in (config.option.ptx_backend or ())
    return BACKENDS[backend].brief and config.option.ptx_effort == "quick" and not asked


def _named_targets(config: pytest.Config) -> list[str]:
    """The targets that the command line names, each once: `--ptx-target=hopper --ptx-target=sm_90` names one."""
    return list(dict.fromkeys(normal(t) for t in config.option.ptx_target or [] if t != ALL))


def generations(config: pytest.Config) -> list[str]:
    """The generations of the GPUs that can run items: the cluster's, or this host's."""
    here = (g.target for g in gpus()) if OFFERED not in config.stash else config.stash[OFFERED]
    return list(dict.fromkeys(here))


def _with_emulated(config: pytest.Config, found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The places, with the emulator for each GPU that no node of the cluster has."""
    if OFFERED not in config.stash:
        return found
    missing = [t for backend, t in found if backend == "gpu" and t not in (*config.stash[OFFERED], NO_DEVICE)]
    config.stash[EMULATED_INSTEAD] = tuple(missing)
    return list(dict.fromkeys(("emulator", t) if b == "gpu" and t in missing else (b, t) for b, t in found))


def _all_targets(config: pytest.Config) -> tuple[str, ...]:
    if _TARGETS not in config.stash:
        from ptxdiff.triton.targets import available

        try:
            config.stash[_TARGETS] = available()
        except NoTriton:  # the emulator works without Triton
            config.stash[_TARGETS] = KNOWN
    return config.stash[_TARGETS]


_ADDRESS = re.compile(
    r"(?P<file>[^:]+)\.py::(?:(?P<group>[\w.]+)::)?(?P<variant>.+)\[(?P<target>\w+)-(?P<backend>\w+)\](?:@.*)?"
)


def item_of(nodeid: str) -> tuple[str, str, str, str] | None:
    """Case, variant, target and backend of an item, from its pytest id; None for an item that is not ptxdiff's."""
    address = _ADDRESS.fullmatch(nodeid)
    if address is None or address["backend"] not in BACKENDS:
        return None
    stem = address["file"].rpartition("/")[2]
    case = f"{stem}.{address['group']}" if address["group"] else stem
    return case, address["variant"], address["target"], address["backend"]


def known_as(nodeid: str) -> str:
    """The name of an item in every process of a run: without the suffix that pytest-xdist adds in workers."""
    address = item_of(nodeid)
    return nodeid if address is None else "{}::{}[{}-{}]".format(*address)


@functools.lru_cache(64)
def _marker(name: str, *arguments: str) -> pytest.MarkDecorator:
    """A marker, made once for the items that follow each other: making one takes longer than making an item."""
    marker: pytest.MarkDecorator = getattr(pytest.mark, name)
    return marker(*arguments) if arguments else marker


class VariantItem(OwnWords, pytest.Item):
    """One variant on one target by one backend. of: the fields of its `Item`.

    A collection may have tens of thousands, of which it runs few: what only a run needs is made then.
    """

    own_error = ItemFailure
    expected_error = (pytest.xfail.Exception,)

    _found: ItemResults | None = None
    _reused: ItemResults | None = None

    def __init__(
        self,
        *,
        of: tuple[LoadedCase, str, str, str],
        nodeid: str,
        marked: Sequence[pytest.MarkDecorator],
        **kwargs: Any,
    ) -> None:
        super().__init__(nodeid=nodeid, **kwargs)
        self._of = of
        self._collected_as = nodeid  # pytest-xdist adds a suffix later
        for marker in marked:  # as `add_marker` does, which takes longer than all else here
            self.keywords[marker.name] = marker
            self.own_markers.append(marker.mark)

    @functools.cached_property
    def item(self) -> Item:
        """The item, which is one object as long as this one lives."""
        return Item(*self._of)

    @property
    def found(self) -> ItemResults:
        """The results so far; none before the run and after their report."""
        return self._found or ItemResults()

    @property
    def address(self) -> str:
        """The id that a user types to run the item again: relative to the working folder."""
        file, colons, rest = self._collected_as.partition("::")
        here = os.path.relpath(self.config.rootpath / file, self.config.invocation_params.dir)
        return f"{Path(here).as_posix()}{colons}{rest}"

    def runtest(self) -> None:
        """Run the item and raise its verdict as pytest's outcome."""
        done = _done(self.config).get(
            (self.item.loaded.name, self.item.variant_name, self.item.target, self.item.backend)
        )
        if done is not None:
            self._check_unchanged(done)
            self._conclude(done)
            return
        if reason := self._without_device():
            self._found = not_run(self.item, reason)
        else:
            self._found = self._reused or self._earlier() or self._run()
        self._conclude(self.found)

    def is_known(self) -> bool:
        """Whether the item has a result already. False if that cannot be found out; `runtest` then reports why."""
        if is_done(self) or self._without_device():
            return True
        try:
            self._reused = self._earlier()
        except Exception:
            return False
        return self._reused is not None

    def teardown(self) -> None:
        """Drop the results, which were reported: those of a long run take gigabytes."""
        self._found = self._reused = None

    def _without_device(self) -> str:
        """Why no GPU can run the item; "" if that is not known before the run."""
        offered = self.config.stash.get(OFFERED, None)
        if self.item.target == NO_DEVICE:
            return "no NVIDIA GPU on " + ("this machine" if offered is None else "any node of the cluster")
        if offered is not None and self.item.backend == "gpu" and self.item.target not in offered:
            return f"no node of the cluster has a GPU of {self.item.target}"
        return ""

    def _run(self) -> ItemResults:
        """Run the item, and store results that a later run may reuse."""
        from ptxdiff.running.run import run_item  # with machine code and its repairs, which reused results do not need

        carry_over.note_states()
        backend = backend_of(self.config, self.item.backend)
        effort = self.config.option.ptx_effort
        replay = self._replay(self.item.loaded.case)
        dump = Path(self.config.option.ptx_dump) if self.config.option.ptx_dump else None
        if replay is None and OFFERED not in self.config.stash:  # a node of a cluster runs few items of many files
            files = 1 if hasattr(self.config, "workerinput") else FILES_AT_ONCE  # a worker runs any of the files
            if _TOGETHER not in self.config.stash:
                self.config.stash[_TOGETHER] = Together(files, self._disassembling())
            together = self.config.stash[_TOGETHER]
            beside = dict[int, VariantItem]()
            together(self.item, backend, effort, self._beside(beside), lambda item: beside[id(item)]._runs())
        remark = carry_over.before_run(self.item)
        item_results = run_item(
            self.item, backend, effort, node=self.address, replay=replay, dump=dump, assemblers=self.assemblers
        )
        carry_over.after_run(self.item)
        carry_over.with_dependencies(self.item, item_results)
        if remark and item_results.results:
            item_results.results[0] = replace(item_results.results[0], notes=(*item_results.results[0].notes, remark))
        if self._reusable:
            reuse.keep(self.item, item_results, run_id(self.config), *self._settings)
        return item_results

    def _disassembling(self) -> dict[str, DisassemblingBackend]:
        """The backends of this session's items that disassemble, by name."""
        fields = (i._of for i in self.session.items if isinstance(i, VariantItem))  # which makes none of their items
        names = dict.fromkeys(backend for _, _, _, backend in fields)
        made = {n: backend_of(self.config, n) for n in names if BACKENDS[n].disassembles}
        return {n: b for n, b in made.items() if isinstance(b, DisassemblingBackend)}

    def _earlier(self) -> ItemResults | None:
        """The results of an earlier run with the same key."""
        return reuse.find(self.item, *self._settings) if self._reusable else None

    def _beside(self, into: dict[int, VariantItem]) -> Iterator[Item]:
        """The items of the session that are not done, whose kernels Triton's ptxas assembles. into: by their ids."""
        for other in self.session.items:
            if isinstance(other, VariantItem) and other.assemblers == (None,) and not is_done(other):
                into[id(other.item)] = other
                yield other.item

    def _runs(self) -> bool:
        """Whether no result of the item is known. True if that cannot be found out; `runtest` then reports why."""
        try:
            return self._earlier() is None
        except Exception:
            return True

    @property
    def _reusable(self) -> bool:
        wanted = (
            os.environ.get("PTXDIFF_REUSE") != "0"
            and self.config.option.ptx_replay is None
            and not self.config.option.ptx_dump
        )
        if not wanted or not BACKENDS[self.item.backend].reusable:
            return False
        return reuse.assembled_by(self.item, self.assemblers) is not None

    @property
    def assemblers(self) -> tuple[Chosen, ...]:
        """The assemblers of the item's kernels; None is Triton's own."""
        return assemblers_of(self.config, self.item)

    @property
    def _settings(self) -> tuple[Any, ...]:
        """What decides the results besides the item: options, and the options of the repeat command."""
        option = self.config.option
        limits = str(option.ptx_limit), str(self.config.getini("ptx_limit"))
        by = reuse.assembled_by(self.item, self.assemblers)
        settings = option.ptx_effort, option.ptx_approximate, limits, self.address, _disassembled(self.config), by
        return (*settings, "brief") if is_brief(self.config, self.item.backend) else settings

    def _check_unchanged(self, done: ItemResults) -> None:
        """Refuse to resume with results of a variant whose definition has changed."""
        if brief_counts(done.results)[0] and not is_brief(self.config, self.item.backend):
            raise ItemFailure(
                f"{self.address}: --ptx-resume: the records hold results of the smaller plan of auto, and "
                f"--ptx-backend={self.item.backend} asks for the whole one; start a new records file"
            )
        if changes := carry_over.changed_since(self.item, done.results):
            raise ItemFailure(
                f"{self.address}: --ptx-resume: the records hold results of an earlier definition of this variant: "
                f"{changes}; start a new records file"
            )

    def _replay(self, case: Case) -> Any:
        token = self.config.option.ptx_replay
        if token is None:
            return None
        try:
            return parse(token, case)
        except TokenError as e:
            raise ItemFailure(f"--ptx-replay: {e}") from None

    def _conclude(self, found: ItemResults) -> None:
        verdict = found.verdict
        shown = [r for r in found.results if r.verdict == verdict and not r.expected_failure]
        reason = shown[0].words if shown else ""
        if verdict == "not run" and self.config.option.ptx_require_gpu and self.item.backend == "gpu":
            raise ItemFailure(f"{self.nodeid}: --ptx-require-gpu, but this was not run: {reason}")
        if verdict in ("fail", "error"):
            if not shown:  # every result is an expected failure, as in a replay of one
                expected = found.results[0]
                pytest.xfail(f"{expected.diagnosis}: {expected.words}")
            more = (
                f"\n\n({len(shown)} of {len(found.results)} results of this item {verdict})" if len(shown) > 1 else ""
            )
            more += only_fused(found.results) + _other_repairs(shown)
            raise ItemFailure(shown_first(shown).message + more)
        if verdict == "unsupported":
            pytest.skip(line(f"unsupported: {reason}"))
        if verdict == "not run":
            pytest.skip(line(f"not run: {reason}"))
        known = [r for r in found.results if r.expected_failure]
        if known:
            pytest.xfail(line(f"{known[0].diagnosis}: {known[0].words}"))

    def ptxdiff_records(self) -> list[Sent]:
        """The item's records, for its report."""
        return [_described(self), *self.found.sent] if self.found.results else []

    def reportinfo(self) -> tuple[Path, int, str]:
        """The item's file, and its id within the file, as pytest prints them."""
        return self.path, 0, self.nodeid.partition("::")[2]  # with the case, where the file has several


_DESCRIBED = pytest.StashKey[dict[int, tuple[loader.LoadedCase, Sent]]]()
"""The records of cases by the cases' ids. The cases are kept alive, so that no other object gets the same id."""


def _described(item: VariantItem) -> Sent:
    """The record of the item's case, which is sent with each of its items."""
    from ptxdiff.model.describe import case_info

    known = item.config.stash.setdefault(_DESCRIBED, {})
    loaded = item.item.loaded
    if id(loaded) not in known:
        root = Path(os.path.commonpath([item.config.rootpath, item.path]))
        known[id(loaded)] = loaded, sent(case_info(loaded, item.path.relative_to(root).as_posix()))
    return known[id(loaded)][1]


def is_done(item: VariantItem) -> bool:
    """Whether the resumed records hold the item's results."""
    return (item.item.loaded.name, item.item.variant_name, item.item.target, item.item.backend) in _done(item.config)


def run_id(config: pytest.Config) -> str:
    """The id of this run; in a worker of pytest-xdist, the controller's."""
    given = getattr(config, "workerinput", {}).get(RUN_ID)
    if given is None:
        recorder = config.pluginmanager.getplugin("ptxdiff-recorder")
        given = recorder.run_id if recorder is not None else ""
    return str(given)


def deciding(config: pytest.Config) -> tuple[Any, ...] | None:
    """The options that decide the results of the emulator and the assembler; None if nothing is to be reused."""
    option = config.option
    if os.environ.get("PTXDIFF_REUSE") == "0":
        return None
    return option.ptx_approximate, str(option.ptx_limit), str(config.getini("ptx_limit"))


def backend_of(config: pytest.Config, name: str) -> Backend:
    """The backend of that name for this session, made once, with the limits that the options set."""
    made = config.stash.setdefault(_BACKENDS, {})
    if name not in made:
        config.add_cleanup(reuse.store_waiting)
        limit = config.option.ptx_limit or config.getini("ptx_limit")
        made[name] = create(
            name,
            limit=float(limit) if limit else None,
            sanitize=config.option.ptx_sanitize or "",
            disassembled=_disassembled(config),
            approximate=config.option.ptx_approximate,
            brief=is_brief(config, name),
            kept=config.stash.setdefault(_OUTCOMES, KeptOutcomes()),
        )
    return made[name]


def assemblers_of(config: pytest.Config, item: Item) -> tuple[Chosen, ...]:
    """The assemblers that run an item. Raises ItemFailure if one has disappeared since the options were read."""
    option = config.option
    try:
        choice = AssemblerChoice.of(option.ptx_assembler, option.ptx_opt, option.ptx_effort)
        return choice.resolved(item.backend, item.target, item.compiler)
    except NoTriton:
        return (None,)  # the backend reports what is missing
    except NoAssembler as e:
        raise ItemFailure(f"--ptx-assembler: {e}") from None


def _disassembled(config: pytest.Config) -> tuple[str, ...] | None:
    """The targets for which SASS is disassembled; None for all.

    nvdisasm takes at least a fifth of a second, however small the kernel. So a quick run on several targets
    disassembles for one of them only: sm_90a, or else the first that `--ptx-target` names.
    """
    named = _named_targets(config)
    if config.option.ptx_effort != "quick" or len(named) == 1:
        return None
    return ("sm_90a",) if "sm_90a" in named or not named else (named[0],)


def _done(config: pytest.Config) -> dict[tuple[str, str, str, str], ItemResults]:
    """The items whose results the resumed records hold, with these results."""
    if _DONE not in config.stash:
        by_item: dict[tuple[str, str, str, str], ItemResults] = {}
        path = Path(config.option.ptx_records or "")
        if config.option.ptx_resume and path.is_file():
            from ptxdiff.records import resumable

            for result in resumable(path).results:
                by_item.setdefault(result.key.item, ItemResults()).results.append(result)
        config.stash[_DONE] = by_item
    return config.stash[_DONE]


# ---- Items of `--ptx-prove` ------------------------------------------------------------------------------------------


class Counterexample(Exception):
    """An input on which a variant is wrong, as text."""


class ProofItem(OwnWords, pytest.Item):
    """The proof of one variant, or of its machine code (`against` is "sass"), for all inputs."""

    own_error = Counterexample

    def __init__(self, *, loaded: LoadedCase, variant: str, against: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.loaded, self.variant, self.against = loaded, variant, against
        self.proof: Proof | None = None

    def runtest(self) -> None:
        """Raise Counterexample if there is one; skip where neither a proof nor a counterexample was found."""
        from ptxdiff.proving.solving import require_solvers
        from ptxdiff.proving.verdicts import REFERENCE, default_target, proof_of

        require_solvers("--ptx-prove")
        case = self.loaded.case
        variant, target = case.variants[self.variant], default_target(case, self.variant, self.against)
        if self.against == REFERENCE and (variant.expected_failure is not None or differs_on(variant, target)):
            pytest.skip("not proved: it is declared to be wrong")
        proof = self.proof = proof_of(self.loaded, self.variant, target, against=self.against)
        if proof.verdict == "counterexample":
            inputs = "; ".join(f"{n} = {', '.join(units)}" for n, units in proof.inputs.items())
            machine_code = " as machine code" if self.against == "sass" else ""
            subject = f"{self.loaded.name}::{self.variant} [{proof.target}]{machine_code}"
            raise Counterexample(f"{subject} is wrong for {inputs}: {proof.words}")
        if proof.verdict == "not settled":
            pytest.skip(f"not proved: {proof.words}")

    def ptxdiff_records(self) -> list[Sent]:
        """The item's records, for its report."""
        from ptxdiff.model.describe import case_info

        if self.proof is None:
            return []
        root = Path(os.path.commonpath([self.config.rootpath, self.path]))
        return [sent(case_info(self.loaded, self.path.relative_to(root).as_posix())), sent(self.proof)]

    def reportinfo(self) -> tuple[Path, int, str]:
        """The name under which pytest reports the item."""
        return self.path, 0, f"{self.loaded.name}::{self.variant}: proof against {self.against}"


def proof_items(parent: pytest.Collector, loaded: LoadedCase) -> Iterator[ProofItem]:
    """The items that --ptx-prove and --ptx-prove-against ask for.

    By the reference: each variant of an elementwise case in asm or plain Triton. Of machine code: each variant.
    """
    asked = parent.config.option
    sides = dict.fromkeys(asked.ptx_prove_against or (("reference",) if asked.ptx_prove else ()))
    for against in sides:
        for name, variant in loaded.case.variants.items():
            by_elements = loaded.case.elementwise and isinstance(variant, AsmVariant | PlainVariant)
            if against == "sass" or by_elements:
                suffix = "proof" if against == "reference" else f"proof-{against}"
                yield ProofItem.from_parent(
                    parent, name=f"{name}[{suffix}]", loaded=loaded, variant=name, against=against
                )


# ---- What a run of cases alone is spared -----------------------------------------------------------------------------

SUMMARY = "hypothesispytest"
"""The plugin that imports hypothesis at the end of every run, which takes half a second."""


def free_items(session: Callable[[], pytest.Session | None]) -> None:
    """Free the items of a session as this process ends.

    Each item refers to itself by its keywords, so Python's end would look for tens of thousands of such cycles, several
    times. Not earlier: whoever called `pytest.main` may still look at the items.
    """
    ended = session()
    if ended is None:
        return
    for item in ended.items:
        if isinstance(item, VariantItem):
            vars(item).clear()
    ended.items.clear()
    vars(ended).get("_collection_cache", {}).clear()  # of pytest, with all reports


def spare(session: pytest.Session) -> None:
    """Change this process for the items of cases that it is about to run. With tests among them, change nothing."""
    if not session.items or not all(isinstance(item, VariantItem) for item in session.items):
        return
    collect_seldom()
    atexit.register(free_items, weakref.ref(session))
    plugins = session.config.pluginmanager
    if "hypothesis" not in sys.modules and plugins.has_plugin(SUMMARY):
        plugins.unregister(name=SUMMARY)
