"""The assembler backend compiles and assembles a variant's Triton kernel for a target. It executes nothing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Sequence

from ptxdiff.jobs import Artifacts, Job, Outcome
from ptxdiff.triton.assemble import Disassembly, disassemble, disassemble_ahead, making_ahead
from ptxdiff.triton.build import Built
from ptxdiff.triton.builds import NoTriton
from ptxdiff.triton.compile import submit
from ptxdiff.triton.diagnostics import Refusal
from ptxdiff.triton.launch import Launch, launch_of, launched_experiment
from ptxdiff.triton.targets import probe, tool


class AssemblerBackend:
    """See `ptxdiff.jobs.Backend`. May be used from several threads.

    disassemble: "always", "never", or "once": only the first setup of each variant and target, because disassembling
    takes 0.2 s. disassembled: the only targets that are disassembled; None for all. Targets that nvdisasm does not know
    get no SASS.
    """

    name = "assembler"
    every_setup = False

    def __init__(self, disassemble: str = "once", disassembled: Collection[str] | None = None) -> None:
        self._policy, self._disassembled = disassemble, disassembled
        self._seen: set[tuple[object, ...]] = set()
        self._lock = threading.Lock()

    def unavailable(self, target: str) -> str | None:
        """The reason why nothing can be assembled for `target` here; None if it can."""
        try:
            info = probe().get(target)
        except NoTriton as error:
            return str(error)
        if info is None:
            return f"neither Triton nor its ptxas knows {target}"
        return None if info.available else f"the installed Triton does not serve {target}: {info.words}"

    def run(self, job: Job) -> Outcome:
        """Compile and assemble one job."""
        made = assembled(job)
        if isinstance(made, Outcome):
            return made
        launch, built = made
        return Outcome(
            "assembled",
            notes=notes(built),
            identity=launched_experiment(machine(built), job, launch, built.compilation).digest,
            artifacts=artifacts(built, self._sass(job, built)),
        )

    def prepare(self, job: Job) -> None:
        """See `ptxdiff.jobs.CompilingBackend`."""
        with contextlib.suppress(ValueError, TypeError, NoTriton):
            submit(launch_of(job).spec(job.target))

    def disassemble_ahead(self, jobs: Sequence[Job]) -> None:
        """See `ptxdiff.jobs.DisassemblingBackend`; each job is the first of its variant."""
        wanted = [job for job in jobs if self._policy != "never" and self._is_disassembled(job.target)]
        if len(wanted) < 2:
            return
        with making_ahead(str(wanted[0].path)):
            for job in wanted:
                self.prepare(job)
            made = []
            for job in wanted:
                with contextlib.suppress(Exception):  # the job's own run reports the error
                    made.append(launch_of(job).build(job.target))
            disassemble_ahead([b.assembly.cubin for b in made if isinstance(b, Built)], str(tool("nvdisasm")))

    def _is_disassembled(self, target: str) -> bool:
        return self._disassembled is None or target in self._disassembled

    def _sass(self, job: Job, built: Built) -> Disassembly | None:
        key = (str(job.path), job.case_name, job.variant_name, job.target, job.setup.assembler)
        with self._lock:
            first = key not in self._seen
            self._seen.add(key)
        if self._policy == "never" or (self._policy == "once" and not first):
            return None
        if not self._is_disassembled(job.target):
            return None
        sass = disassemble(built.assembly, str(tool("nvdisasm")))
        return sass if isinstance(sass, Disassembly) else None


def assembled(job: Job) -> tuple[Launch, Built] | Outcome:
    """A job's launch and its machine code, or the outcome that says why there is none."""
    try:
        launch = launch_of(job)
        built = launch.build(job.target)
    except NoTriton as error:
        return Outcome("not run", str(error))
    except (ValueError, TypeError) as error:
        return Outcome("error", str(error))
    return refused(built) if isinstance(built, Refusal) else (launch, built)


def refused(refusal: Refusal) -> Outcome:
    """The outcome for a compiler's or assembler's refusal."""
    return Outcome(refusal.kind, refusal.words, ended=refusal.ended if refusal.ended != "died" else "")


def machine(built: Built) -> str:
    """The assembler's name, for the machine in an experiment's identity."""
    tool = built.compilation.ptxas
    return tool.chosen.label if tool.chosen else tool.name


def notes(built: Built) -> tuple[str, ...]:
    """Remarks for the report on how the machine code was made."""
    stated, name = built.assembly.stated, built.compilation.ptxas.name
    if not stated:
        return ()
    return (f"{name} knows PTX ISA versions up to {stated}: the PTX's .version was lowered to {stated}",)


def artifacts(built: Built, sass: Disassembly | None = None) -> Artifacts:
    """The PTX, the SASS if disassembled, and ptxas's resource figures of a build."""
    return Artifacts(
        ptx=built.compilation.ptx,
        sass=sass.text if sass else None,
        resources=built.assembly.resources,
        instructions=sass.opcodes if sass else {},
        ptxas=built.compilation.ptxas.version,
        body=built.compilation.body_hash,
        asm=built.compilation.asm,
    )
