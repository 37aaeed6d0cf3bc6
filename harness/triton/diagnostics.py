"""From what compilers say to one readable line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from harness.processes.pool import CallEnd

Kind = Literal["error", "unsupported", "not run"]
Ended = Literal["", "died", "crashed", "hung"]


@dataclass(frozen=True)
class Refusal:
    """Why there is no code.

    kind: "unsupported" where the target (or the PTX version that goes with it) lacks what the code needs, "not run"
    where an assembler that was chosen serves neither the target nor this PTX, else "error".
    words: one readable line. detail: all that the compiler said. stage: whose refusal it is. ended: how ptxas ended
    where it said nothing of the code: "crashed" and "hung" are faults of its own, "died" may be anybody's.
    """

    kind: Kind
    words: str
    detail: str = ""
    stage: Literal["triton", "ptxas", "nvdisasm"] = "triton"
    ended: Ended = ""


# ptxas's and Triton's ways to say that the instruction exists and the target has it not.
_UNSUPPORTED = re.compile(
    r"not supported on \.target"
    r"|requires \.target sm_\w+"
    r"|requires PTX ISA \.version"
    r"|cannot be compiled for architecture"
    r"|not supported in this architecture"
    r"|requires NVIDIA SM\d+"
    r"|requires compute capability"
    # Where tensor cores lack a dot of integers Triton makes multiply-adds of it, and knows those of floats alone.
    r"|'arith\.extf' op operand #0 must be floating-point-like, but got 'tensor<\w*xi8"
)

# What LLVM and ptxas say of faults that inline asm is prone to, and what its author can do about them.
_HINTS = (
    ("number of input constraints does not match", "write one input for each register that Triton passes"),
    ("number of output constraints does not match", "write one output for each register of the results"),
    (
        "inline asm with one output cannot return struct",
        "the constraints list one output, and the results need several registers: write one '=r' for each",
    ),
    ("inline asm without outputs", "no output is written as '=r' or '=&r'; Triton has no '+r', use both kinds"),
    ("expects an integer constant expression", "Triton passes registers, never constants: write 'r'"),
    ("Invalid $ operand number", "$N counts the outputs from $0, then the inputs"),
    ("Bad ${} expression", "a dollar sign that stands for itself is written '$$'"),
    ("Bad $ operand number", "a dollar sign that stands for itself is written '$$'"),
    ("cannot cast fp8", "the tensor holds bytes; in a case E4M3.typed[...] or E5M2.typed[...] has Triton's own type"),
    ("near '.loc'", "a ';' is missing, or an instruction goes on in a new line, and Triton puts .loc between lines"),
)


def kind_of(text: str) -> Kind:
    """Whether a complaint is about the target or about the code."""
    return "unsupported" if _UNSUPPORTED.search(text) else "error"


def with_hint(words: str) -> str:
    """`words`, followed by what to do where we know it."""
    return next((f"{words} ({hint})" for said, hint in _HINTS if said in words), words)


# What Triton raises when the reason went to standard error.
_VAGUE = re.compile(r"error encountered during parsing|PassManager::run failed")


def from_outcome(outcome: CallEnd) -> Refusal | None:
    """The refusal in a worker's outcome; None where it answered and no compiler said anything."""
    reply, said = outcome.reply, outcome.stderr.strip()
    if reply is None:
        words = f"the compiler {outcome.ended}"
        if said:
            words = f"{with_hint(main_line(said))}; {words}"
        return Refusal("error", words, said)
    if reply.raised:
        # What the worker found out to be the cause comes as a CompileFailure and speaks for itself.
        words = reply.message if reply.raised == "CompileFailure" else f"{reply.raised}: {reply.message}"
        if said and _VAGUE.search(words):
            words = main_line(said)
        return Refusal(kind_of(words), with_hint(one_line(words)), "\n".join(filter(None, (said, reply.trace))))
    if said:
        return Refusal(kind_of(said), with_hint(main_line(said)), said)
    return None


PIPELINE = "Failures have been detected while processing an MLIR pass pipeline"
"""What MLIR says of a pass that failed or died, behind the reason if it knows one."""

_FIRST = (
    re.compile(r"^LLVM ERROR: (?P<words>.+)"),
    # An abort in LLVM's cantFail: the reason stands on the line after.
    re.compile(r"^Failure value returned from cantFail wrapped call\n(?P<words>.+)"),
    re.compile(rf"(?:^|: )error: (?P<words>(?!{PIPELINE}).+)"),
    re.compile(r"(?P<words>Assertion [`'].+' failed)"),
    re.compile(r"^(?P<words>\w*(?:Error|Exception): .+)"),
    re.compile(r"(?:^|: )error: (?P<words>.+)"),
)


def main_line(text: str) -> str:
    """The line of a compiler's output that names the fault; the first one where none is known to."""
    for pattern in _FIRST:
        if found := re.search(pattern.pattern, text, flags=re.MULTILINE):
            # LLVM quotes the whole asm, lines and all; it is shown where it was written.
            return one_line(found["words"].partition(" string: '")[0])
    return one_line(text.strip().splitlines()[0]) if text.strip() else ""


def one_line(text: str) -> str:
    """The text with every run of white space a single space."""
    return " ".join(text.split())


@dataclass(frozen=True)
class Complaint:
    """One message of ptxas: its line in the PTX (None where it names none) and its words."""

    line: int | None
    words: str


_PTXAS = re.compile(r"^ptxas\S* (?:\S+, line (?P<line>\d+); )?(?P<level>error|fatal|warning)\s*: (?P<words>.*)$", re.M)


def ptxas_complaints(text: str, levels: tuple[str, ...] = ("error", "fatal")) -> list[Complaint]:
    """ptxas's messages of these levels, without repetitions of the closing one."""
    return [
        Complaint(int(m["line"]) if m["line"] else None, m["words"].strip())
        for m in _PTXAS.finditer(text)
        if m["level"] in levels and not m["words"].startswith("Ptx assembly aborted")
    ]
