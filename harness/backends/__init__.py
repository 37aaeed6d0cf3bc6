"""The backends: a table with one row for each. A new backend is a module of this folder and its row.

Standard library only: every pytest run reads the table. A row imports its module when the backend is made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptxdiff.backends.kept import KeptOutcomes
    from ptxdiff.jobs import Backend


@dataclass(frozen=True)
class BackendSettings:
    """What backends are made with; each reads what concerns it.

    limit: the time limit in seconds for work on a GPU, or for one run on the CPU; None for the defaults. sanitize: the
    tool of compute-sanitizer that checks kernels on a GPU; "" for none. disassembled: the targets whose machine code
    the assembler backend also disassembles; None for all. approximate: the bits of approximate instructions on the
    emulator, one of `ptxdiff.emulator.binding.contraction.APPROXIMATE`. brief: whether machine code has the smaller
    plan of `auto` at quick effort (`ptxdiff.running.plan`). kept: where backends of one session keep the bits of PTX,
    so that each computes none that another has; None: each for itself.
    """

    limit: float | None = None
    sanitize: str = ""
    disassembled: Collection[str] | None = None
    approximate: str = "hopper"
    brief: bool = False
    kept: KeptOutcomes | None = None

    @property
    def cpu_limit(self) -> float:
        """Seconds for one run on the CPU."""
        from ptxdiff.emulator import KERNEL_SECONDS

        return KERNEL_SECONDS if self.limit is None else self.limit


@dataclass(frozen=True)
class BackendKind:
    """What the harness knows of a backend before it makes one.

    does: for pytest's list of markers. automatic: whether `auto` includes it; then `missing` gives the reason, in one
    line, why it leaves the backend out on this machine after all, "" if it does not. executes: whether it gives bits.
    asm_alone: whether it runs asm without a kernel of Triton around it. shares: whether it runs asm with outputs in
    registers of inputs, in every assignment that the constraints allow. chosen_ptxas: whether its code is made by a
    ptxas that the user can choose. disassembles: whether it reads machine code, that of a file's kernels together.
    reusable: whether its results depend on nothing that the key of reuse lacks. rests_on: gives a digest of evidence
    that decides its results, for that key. brief: whether `auto` gives it a smaller plan at quick effort.
    """

    does: str
    make: Callable[[BackendSettings], Backend]
    automatic: bool = True
    executes: bool = True
    asm_alone: bool = False
    shares: bool = False
    chosen_ptxas: bool = False
    disassembles: bool = False
    reusable: bool = False
    rests_on: Callable[[], str] | None = None
    brief: bool = False
    missing: Callable[[], str] = lambda: ""


def _gpu(settings: BackendSettings) -> Backend:
    from ptxdiff.backends.gpu_process import WatchedGpu

    return WatchedGpu(limit=settings.limit, sanitize=settings.sanitize)


def _emulator(settings: BackendSettings) -> Backend:
    from ptxdiff.backends.emulator import EmulatorBackend

    return EmulatorBackend(settings.cpu_limit, settings.approximate, settings.kept)


def _assembler(settings: BackendSettings) -> Backend:
    from ptxdiff.backends.assembler import AssemblerBackend

    return AssemblerBackend(disassembled=settings.disassembled)


def _sass(settings: BackendSettings) -> Backend:
    from ptxdiff.backends.sass import SassBackend

    return SassBackend(settings.cpu_limit, brief=settings.brief, kept=settings.kept)


def _no_machine_code() -> str:
    from ptxdiff.triton.builds import NoTriton
    from ptxdiff.triton.targets import tool

    try:
        gone = [name for name in ("ptxas", "nvdisasm") if not tool(name).exists()]
    except NoTriton as error:
        return str(error)
    if not gone:
        return ""
    return f"{gone[0]} is missing: Triton carries one, and TRITON_{gone[0].upper()}_PATH names another"


def _taught() -> str:
    from ptxdiff.conformance.taught import contents_digest

    return contents_digest()


BACKENDS: Mapping[str, BackendKind] = {
    "gpu": BackendKind("needs an NVIDIA GPU", _gpu, chosen_ptxas=True),
    "emulator": BackendKind("runs PTX on the CPU", _emulator, asm_alone=True, shares=True, reusable=True),
    "assembler": BackendKind(
        "compiles and assembles, runs nothing",
        _assembler,
        executes=False,
        chosen_ptxas=True,
        disassembles=True,
        reusable=True,
    ),
    "sass": BackendKind(
        "runs the machine code of ptxas on the CPU",
        _sass,
        shares=True,
        chosen_ptxas=True,
        disassembles=True,
        reusable=True,
        rests_on=_taught,
        brief=True,
        missing=_no_machine_code,
    ),
}


def create(name: str, **settings: Any) -> Backend:
    """The backend called `name`, with these `BackendSettings`. Raises ValueError for an unknown name."""
    if name not in BACKENDS:
        raise ValueError(f"no backend is called {name!r}; known: {', '.join(BACKENDS)}")
    return BACKENDS[name].make(BackendSettings(**settings))


# ---- Which backends can run kernels that another Triton build compiles -----------------------------------------------


def unavailable(compiler: str, backend: str, target: str) -> str | None:
    """The reason, in one line, why a backend cannot run what `compiler` compiles for a target; None if it can.

    compiler: the name of a Triton build; "" for this environment's own build, which each backend checks itself.
    """
    if not compiler:
        return None
    if backend == "gpu":
        return f"kernels of compiler {compiler} cannot be launched: the Triton launcher here is of another build"
    from ptxdiff.triton.builds import NoBuild
    from ptxdiff.triton.targets import probe_with

    try:
        info = probe_with(compiler).get(target)
    except NoBuild as error:
        return str(error)
    if info is None or not info.available:
        return f"compiler {compiler} does not serve {target}{f': {info.words}' if info and info.words else ''}"
    return None
