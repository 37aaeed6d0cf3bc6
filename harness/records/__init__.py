"""Records: the measured facts of a run, as typed, versioned JSON lines.

A records file holds one `run` line (the environment, once). Then follow, in the order of their making, `case` lines
(all that a report needs about a case, so that it needs no case file), `text` lines (asm, PTX and SASS, each stored once
under its hash) or `stored text` lines (of texts in the folder's store), and `result`, `timing` and `in registers`
lines. `disagreement` lines, `mutation` lines of `ptxdiff mutate`, and an `end` line come last; a run that was cut short
has no `end`. Every line ends in a checksum, so that a changed or lost line is never read as a measurement (`seal`), and
a result has a digest from where it was made, so that nobody changes one and writes it again by mistake (`unedited`).
Values are bits in hexadecimal, because JSON has no NaN. Reports, comparisons and gates read records and
nothing else.

`types` has the record types, `key` the key of a measurement, `encoding` their JSON, `rules` the contradictions that are
refused, `seal` the checksums, `unedited` digests of what a run made, `files` whole files, `texts` their bytes and the
store of texts that the runs of a folder share, `lock` the lock on a file, `history_facts` what a history needs of a
run, `compare` two runs side by side,
`agreement` targets and variants with different bits, `brief` what a smaller plan leaves out, `causes` one cause of many
failures, `escaping` texts in each medium, `provenance` digests of bits, `statistics` verdicts on two timings,
`in_registers` speed in registers and where the faster variant pays, `kill_rate` how many planted mistakes runs catch.
"""

from ptxdiff.records.agreement import (
    AssemblerTally,
    Split,
    beside,
    by_assembler,
    evidence_of_passes,
    explained,
    names_assembler,
    passes,
    splits,
)
from ptxdiff.records.brief import brief_counts, brief_words
from ptxdiff.records.encoding import from_json, to_json
from ptxdiff.records.files import (
    MACHINES,
    Sent,
    Writer,
    collect,
    collector_paused,
    lines,
    machines,
    merged,
    newest_file,
    of_run,
    packed,
    read,
    read_lines,
    received,
    resumable,
    runs_of,
    sent,
    unpacked,
)
from ptxdiff.records.in_registers import ALONE, InRegisters
from ptxdiff.records.key import Key
from ptxdiff.records.lock import FileLock
from ptxdiff.records.seal import Seal
from ptxdiff.records.statistics import Beside
from ptxdiff.records.texts import COMPRESSED, PLAIN, TextStore, is_records_name, record_files
from ptxdiff.records.types import (
    DECLARED,
    EVIDENCE,
    EXPECTED,
    PTXAS,
    PYTORCH,
    SCHEMA,
    SKIPPED,
    UNPROVED,
    VERDICTS,
    Area,
    Bits,
    Block,
    CaseInfo,
    Conflict,
    Disagreement,
    End,
    Evidence,
    Grid,
    Mutation,
    Offender,
    Proof,
    Record,
    RecordError,
    Result,
    Run,
    RunRecords,
    Share,
    StoredText,
    Survivor,
    Text,
    TextKind,
    Timing,
    VariantInfo,
    Verdict,
    WriteError,
    text_hash,
)

__all__ = [
    "ALONE",
    "COMPRESSED",
    "DECLARED",
    "EVIDENCE",
    "EXPECTED",
    "MACHINES",
    "PLAIN",
    "PTXAS",
    "PYTORCH",
    "SCHEMA",
    "SKIPPED",
    "UNPROVED",
    "VERDICTS",
    "Area",
    "AssemblerTally",
    "Beside",
    "Bits",
    "Block",
    "CaseInfo",
    "Conflict",
    "Disagreement",
    "End",
    "Evidence",
    "FileLock",
    "Grid",
    "InRegisters",
    "Key",
    "Mutation",
    "Offender",
    "Proof",
    "Record",
    "RecordError",
    "Result",
    "Run",
    "RunRecords",
    "Seal",
    "Sent",
    "Share",
    "Split",
    "StoredText",
    "Survivor",
    "Text",
    "TextKind",
    "TextStore",
    "Timing",
    "VariantInfo",
    "Verdict",
    "WriteError",
    "Writer",
    "beside",
    "brief_counts",
    "brief_words",
    "by_assembler",
    "collect",
    "collector_paused",
    "evidence_of_passes",
    "explained",
    "from_json",
    "is_records_name",
    "lines",
    "machines",
    "merged",
    "names_assembler",
    "newest_file",
    "of_run",
    "packed",
    "passes",
    "read",
    "read_lines",
    "received",
    "record_files",
    "resumable",
    "runs_of",
    "sent",
    "splits",
    "text_hash",
    "to_json",
    "unpacked",
]
