"""Turns the messages of compilers into one readable line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ptxdiff.processes.pool import CallEnd

Kind = Literal["error", "unsupported", "not run"]
Ended = Literal["", "died", "crashed", "hung"]


@dataclass(frozen=True)
class Refusal:
    """Why there is no code.

    kind: "unsupported" if the target (or its PTX version) lacks what the code needs; "not run" if a chosen assembler
    serves neither the target nor this PTX; else "error". words: one readable line. detail: the compiler's whole output.
    stage: which tool refused. ended: how ptxas ended if it gave no message on the code: "crashed" and "hung" are its
    own faults, "died" may have another cause.
    """

    kind: Kind
    words: str
    detail: str = ""
    stage: Literal["triton", "ptxas", "nvdisasm"] = "triton"
    ended: Ended = ""


# Messages of ptxas and Triton that say: the instruction exists, but the target lacks it.
_UNSUPPORTED = re.compile(
    r"not supported on \.target"
    r"|requires \.target sm_\w+"
    r"|requires PTX ISA \.version"
    r"|cannot be compiled for architecture"
    r"|not supported in this architecture"
    r"|requires NVIDIA SM\d+"
    r"|requires compute capability"
    # On targets whose tensor cores have no dot of integers, Triton tries multiply-adds, which it has for floats alone.
    r"|'arith\.extf' op operand #0 must be floating-point-like, but got 'tensor<\w*xi8"
)

# Messages of LLVM and ptxas on common faults of inline asm, and what its author can do.
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
    ("near '.loc'", "a ';' is missing, or an instruction spans several lines, and Triton puts .loc between lines"),
)


def kind_of(text: str) -> Kind:
    """Whether a message is about the target or about the code."""
    return "unsupported" if _UNSUPPORTED.search(text) else "error"


def with_hint(words: str) -> str:
    """`words`, followed by a hint if there is one."""
    return next((f"{words} ({hint})" for phrase, hint in _HINTS if phrase in words), words)


# Triton raises these after it printed the reason to standard error.
_VAGUE = re.compile(r"error encountered during parsing|PassManager::run failed")


def from_outcome(outcome: CallEnd) -> Refusal | None:
    """The refusal in a worker's outcome; None if it answered and no compiler printed an error."""
    reply, output = outcome.reply, outcome.stderr.strip()
    if reply is None:
        message = f"the compiler {outcome.ended}"
        if output:
            message = f"{with_hint(main_line(output))}; {message}"
        return Refusal("error", message, output)
    if reply.raised:
        # A CompileFailure has the cause that the worker found, in full.
        message = reply.message if reply.raised == "CompileFailure" else f"{reply.raised}: {reply.message}"
        if output and _VAGUE.search(message):
            message = main_line(output)
        return Refusal(kind_of(message), with_hint(one_line(message)), "\n".join(filter(None, (output, reply.trace))))
    if output:
        return Refusal(kind_of(output), with_hint(main_line(output)), output)
    return None


PIPELINE = "Failures have been detected while processing an MLIR pass pipeline"
"""MLIR's message on a pass that failed or crashed, after the reason if there is one."""

_FIRST = (
    re.compile(r"^LLVM ERROR: (?P<words>.+)"),
    # An abort in LLVM's cantFail: the reason is on the next line.
    re.compile(r"^Failure value returned from cantFail wrapped call\n(?P<words>.+)"),
    re.compile(rf"(?:^|: )error: (?P<words>(?!{PIPELINE}).+)"),
    re.compile(r"(?P<words>Assertion [`'].+' failed)"),
    re.compile(r"^(?P<words>\w*(?:Error|Exception): .+)"),
    re.compile(r"(?:^|: )error: (?P<words>.+)"),
)


def main_line(text: str) -> str:
    """The line of a compiler's output that names the fault; the first line if none is recognised."""
    for pattern in _FIRST:
        if match := re.search(pattern.pattern, text, flags=re.MULTILINE):
            # LLVM quotes the whole asm here; messages show it elsewhere.
            return one_line(match["words"].partition(" string: '")[0])
    return one_line(text.strip().splitlines()[0]) if text.strip() else ""


def one_line(text: str) -> str:
    """The text with single spaces in place of all runs of white space."""
    return " ".join(text.split())


@dataclass(frozen=True)
class Complaint:
    """One message of ptxas: its line in the PTX (None if it names none) and its words."""

    line: int | None
    words: str


_PTXAS = re.compile(r"^ptxas\S* (?:\S+, line (?P<line>\d+); )?(?P<level>error|fatal|warning)\s*: (?P<words>.*)$", re.M)


def ptxas_complaints(text: str, levels: tuple[str, ...] = ("error", "fatal")) -> list[Complaint]:
    """ptxas's messages of these levels, without its closing line."""
    return [
        Complaint(int(m["line"]) if m["line"] else None, m["words"].strip())
        for m in _PTXAS.finditer(text)
        if m["level"] in levels and not m["words"].startswith("Ptx assembly aborted")
    ]
