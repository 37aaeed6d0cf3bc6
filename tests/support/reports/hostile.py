"""A run whose texts are all attacks: markup, broken attributes, ends of scripts and comments, template syntax."""

from __future__ import annotations

import base64
import zlib
from typing import Any

from ptxdiff.records import (
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
    Result,
    Run,
    RunRecords,
    Text,
    Timing,
    VariantInfo,
    splits,
    text_hash,
)

BEGIN, END = "// ptxdiff:begin", "// ptxdiff:end"

# Each sets window.pwned if a page evaluates it.
ATTACKS = (
    "<script>window.pwned=1</script>",
    "</script><script>window.pwned=1</script>",
    "</style></title></textarea><script>window.pwned=1</script>",
    '"><img src=x onerror="window.pwned=1">',
    "' onmouseover='window.pwned=1' autofocus onfocus='window.pwned=1' x='",
    "<!--<script>",
    "javascript:window.pwned=1",
    "{{ cycler.__init__.__globals__ }}{% raw %}",
    "]]>\x00\x1b[31m\ud7ff\u2028\n::error::pwned",
    "`````` | [x](javascript:window.pwned=1) <svg onload=window.pwned=1>",
    "\n::error::pwned\n  ::add-mask::pwned\r::stop-commands::pwned\u2028::warning::pwned",
    "##[error]pwned ##vso[task.setvariable variable=pwned]x ##teamcity[buildStop]",
    "\x1b]0;pwned\x07\x9b31m\x08\x08\u202epwned\u2066\u200b\ufeff",
)
EVERYTHING = " ".join(ATTACKS)
# Each would be a formula at the beginning of a cell.
FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1+1", "\r=1+1", " =1+1", "\n=1+1", "=cmd|' /C calc'!A0", "\uff1d1")


def run(planted: str = EVERYTHING, *, started: str = "2026-03-01T02:00:00Z") -> RunRecords:
    """Every text field, and every key of a mapping, holds the attack; verdicts are of all five kinds."""
    p = planted
    bits = Bits(p, p)
    offender = Offender(0, 1, p, {p: bits}, bits, bits, p, 3)
    ends = (Bits("0x0", p), Bits("0xf", p))
    counts = base64.b64encode(zlib.compress(bytes([1, 0, 0, 0] * 4))).decode()
    grid = Grid(p, p, (2, 2), counts, ends, ends, (Area(ends, ends, 4),))
    ptx = "\n".join([p, BEGIN, p, f"rcp.rn.f32 %r1, %r2; // {p}", END, p])
    ours = ptx.splitlines().index(BEGIN) + 2
    sass = "\n".join([p, f'\t//## File ".nv_debug_ptx_txt", line {ours}', f"        /*0000*/ {p} ;"])
    texts = {text_hash(t): Text(text_hash(t), kind, t) for kind, t in (("ptx", ptx), ("sass", sass), ("asm", p))}
    results = []
    for n, verdict in enumerate(("pass", "fail", "unsupported", "error", "not run", "fail")):
        for backend in ("emulator", "gpu", p):
            results.append(
                Result(
                    Key(p, f"{p}{n}", p, backend, shape=p, context=p, input_set=p),
                    verdict,  # type: ignore[arg-type]
                    expected_failure=n == 5,
                    evidence=p if n else "specification",
                    words=p,
                    message=p,
                    diagnosis=p,
                    total=10,
                    different=3,
                    classes={p: 3},
                    ulps={"0": 7, "3": 3},
                    ranges={"-3": (-1, 2), p: (0, 0)},
                    worst=offender if n in (0, 1, 5) else None,
                    offenders=(offender,),
                    findings=(p,),
                    replay=p,
                    inputs_digest=p,
                    outputs_digest=(Block(0, 10, f"{p}{n}{backend}{started}"),),
                    asm=text_hash(p),
                    ptx=text_hash(ptx),
                    sass=text_hash(sass),
                    resources={"registers": 5, "spill_stores": 8, p: 3},
                    instructions={p: 4},
                    fingerprint={p: p},
                    sweep={"seconds": 0.02, "copy": 0.008, p: 1.0},
                    notes=(p,),
                    grid=grid,
                    device=p,
                )
            )
    info = VariantInfo(p, p, p, p, p, p, p, {p: p}, {p: p})
    case = CaseInfo(p, p, p, {p: p}, {p: p}, p, p, {f"{p}{n}": info for n in range(6)}, p)
    other = CaseInfo(f"{p}2", p, p, {}, {}, p, p, {p: info}, f"{p}2")  # a second family: the matrix has headings
    about: dict[str, Any] = {"clocks": {p: 1}, "size": p, "timer": p, "notes": (p,), "device": p}
    times = ((1e-6, 2e-6), 1e-6, 9e-7, 2e-6, 1e-6)
    timings = [Timing(Key(p, f"{p}{n}", p, "gpu", shape=p), 8, 64, *times, **about) for n in range(2)]
    environment = {
        p: p,
        "gpus": [{"name": p, "target": p, "uuid": p}],
        "git": {"revision": p, "branch": p, "subject": p, "web": p},
        "ptxas": [{"version": p}],
    }
    head = Run(p, started, p, 0, environment, (p,))
    found = RunRecords(head, {p: case, f"{p}2": other}, texts, results, timings, End(p, 1.0, {p: 1}))
    found.conflicts = [Conflict(results[0].key, p)]
    found.disagreements = [Disagreement(*split.pair, 3, offender, (p,)) for split in splits(results)]
    return found
