"""Run the process that owns the GPU under compute-sanitizer, and parse the tool's log into findings."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAM = "compute-sanitizer"

# Without torch's caching allocator every tensor is its own allocation, so the tool detects accesses past its end.
VARIABLES = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}

ATTACHES_IN = 600
"""Seconds in which the process must let the tool attach. The tool's own 10 are too few on a busy host, and a process
that it has not attached to runs unchecked."""


@dataclass(frozen=True)
class SanitizerReport:
    """One fault that the tool reports. Fields that the tool does not give are "".

    kind: the fault, in the tool's words. kernel, offset: its place in the code. source: `file.py:12`. thread: the
    thread that committed it. address: the memory address. detail: the other lines of the report.
    """

    tool: str
    kind: str
    kernel: str = ""
    offset: str = ""
    source: str = ""
    thread: str = ""
    address: str = ""
    detail: str = ""

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Equal for reports of the same fault by different threads."""
        return (self.kind, self.kernel, self.offset, self.source)

    def text(self, count: int) -> str:
        """One line for `count` reports with the same place, of which this is the first."""
        where = f" in {self.kernel}+{self.offset}" if self.kernel else ""
        where += f" ({self.source})" if self.source else ""
        parts = [f"{self.tool}: {self.kind}{where}"]
        parts += [f"{count} times, first by {self.thread}" if count > 1 else f"by {self.thread}"] * bool(self.thread)
        parts += [f"address {self.address}"] * bool(self.address) + [self.detail] * bool(self.detail)
        return ", ".join(parts)


def missing() -> str:
    """The reason why compute-sanitizer cannot be used here; "" if it can."""
    if _program():
        return ""
    return f"{PROGRAM} is not installed; it comes with the CUDA toolkit: put its folder on the PATH, or set CUDA_HOME"


def _program() -> str | None:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    return shutil.which(PROGRAM) or shutil.which(PROGRAM, path=f"{home}/bin")


def command(tool: str, log: Path) -> tuple[str, ...]:
    """The command that runs another command under compute-sanitizer and writes the tool's output to `log`.

    log: the tool replaces `%p` in its name with the process's id.
    """
    program = _program() or PROGRAM
    options = ("--tool", tool, "--log-file", str(log), "--target-processes", "application-only")
    waits = ("--launch-timeout", str(ATTACHES_IN))
    return (program, *options, *waits, "--report-api-errors", "no", "--show-backtrace", "no")


_HEAD = re.compile(r"^========= (?P<kind>\S.*)$")
_MORE = re.compile(r"^=========     +(?P<words>\S.*)$")
_AT = re.compile(r"^at (?P<kernel>.+?)\+(?P<offset>0x[0-9a-f]+)(?: in (?P<source>\S+:\d+))?$")
# The first line of a race names its place.
_HEAD_AT = re.compile(r"^(?P<kind>.*) at (?P<kernel>\S+?)\+(?P<offset>0x[0-9a-f]+)(?: in (?P<source>\S+:\d+))?$")
_BY = re.compile(r"^by (?P<thread>thread .*)$")
_ADDRESS = re.compile(r"^(?:Address|Access at|Access to|Accessing|Access) (?P<address>0x[0-9a-f]+)\b ?(?P<detail>.*)$")
# Lines about the tool itself or the program as a whole, which are no faults.
_REMARKS = re.compile(
    r"^(?:COMPUTE-SANITIZER|.* SUMMARY|Target application|Warning|Internal|Default timeout|Program hit|Error: (?!Race))"
)
_NOT_ATTACHED = re.compile(r"^=+ (?:Error: )?No attachable process found", re.M)


def not_attached(log: str) -> bool:
    """Whether the tool says that it has not attached to the process, which then runs unchecked."""
    return bool(_NOT_ATTACHED.search(log))


def findings(tool: str, log: str) -> tuple[str, ...]:
    """The faults in a log of compute-sanitizer, one line for each place in the code, in order."""
    groups: dict[tuple[str, ...], list[SanitizerReport]] = {}
    for fault in parsed(tool, log):
        groups.setdefault(fault.place, []).append(fault)
    return tuple(group[0].text(len(group)) for group in groups.values())


def parsed(tool: str, log: str) -> Iterator[SanitizerReport]:
    """Every fault in a log of compute-sanitizer."""
    head, more = "", list[str]()
    for line in [*log.splitlines(), "========= end"]:
        if match := _MORE.match(line):
            more.append(match["words"].strip())
        elif match := _HEAD.match(line):
            if head and not _REMARKS.match(head):
                yield _finding(tool, head, more)
            head, more = match["kind"].strip(), []


def _finding(tool: str, kind: str, more: Iterable[str]) -> SanitizerReport:
    facts: dict[str, str] = {"kind": kind}
    if match := _HEAD_AT.match(kind):
        facts |= {k: v for k, v in match.groupdict().items() if v}
    rest = []
    for report_line in more:
        for pattern in (_AT, _BY, _ADDRESS):
            if (match := pattern.match(report_line)) and not match.groupdict().keys() & facts.keys():
                facts |= {k: v for k, v in match.groupdict().items() if v}
                break
        else:
            if not report_line.startswith(("Saved host backtrace", "Host Frame", "Device Frame", "Leaked")):
                rest.append(report_line)
    detail = ", ".join(filter(None, (facts.pop("detail", ""), *rest)))
    return SanitizerReport(tool=tool, detail=detail, **facts)
