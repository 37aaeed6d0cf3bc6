"""Records: the measured facts that leave a run, as typed, versioned JSON lines.

A records file holds one `run` line (the environment, once), then in the order in which they came: `case` lines (what a
report must know of a case, so that it needs no case file), `text` lines (asm, PTX and SASS, each stored once under its
hash), `result` and `timing` lines; then `disagreement` lines, and an `end` line that a run which was cut short lacks.
Values are bits in hexadecimal, because JSON has no NaN. Reports, comparisons and gates read these and nothing else.

`types` has the record types, `encoding` their JSON, `files` the writing and reading of whole files, `lock` who
may write one, `merge` several runs as one, `agreement` where targets and variants give different bits, `evidence` what
passes rest on.
"""

from harness.records.agreement import Split, explained, splits
from harness.records.encoding import from_json, to_json
from harness.records.evidence import bases, beside
from harness.records.files import Writer, collect, collector_paused, read, read_lines, resumable
from harness.records.lock import FileLock
from harness.records.merge import MACHINES, machines, merged
from harness.records.types import (
    PYTORCH,
    SCHEMA,
    VERDICTS,
    Area,
    Bits,
    Block,
    CaseInfo,
    Conflict,
    Disagreement,
    End,
    Grid,
    Key,
    Offender,
    Record,
    RecordError,
    Result,
    Run,
    RunRecords,
    Text,
    Timing,
    VariantInfo,
    Verdict,
    WriteError,
    text_hash,
)
from harness.speed import Beside

__all__ = [
    "MACHINES",
    "PYTORCH",
    "SCHEMA",
    "VERDICTS",
    "Area",
    "Beside",
    "Bits",
    "Block",
    "CaseInfo",
    "Conflict",
    "Disagreement",
    "End",
    "FileLock",
    "Grid",
    "Key",
    "Offender",
    "Record",
    "RecordError",
    "Result",
    "Run",
    "RunRecords",
    "Split",
    "Text",
    "Timing",
    "VariantInfo",
    "Verdict",
    "WriteError",
    "Writer",
    "bases",
    "beside",
    "collect",
    "collector_paused",
    "explained",
    "from_json",
    "machines",
    "merged",
    "read",
    "read_lines",
    "resumable",
    "splits",
    "text_hash",
    "to_json",
]
