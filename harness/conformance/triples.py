"""fma.rn.f16x2 on all 2^48 triples of float16, on the GPU here: `python -m ptxdiff.conformance.triples --journal FILE`.

A thread holds eight values of c and walks through all b for one a, so that nothing but tallies touches memory. The
right result is computed without the instruction: the product of two float16 is exact in float32 (22 bits, exponents
from -48 to 31); the exact sum with c lies between the float32 sums rounded down and up; of these the one with an odd
last bit is the sum rounded to odd (if both are equal, it is exact); and a number rounded to odd with 24 bits rounds
to the same float16 as the exact one, because 24 >= 11 + 2 (Boldo and Melquiond, 2008, theorem 3; subnormal results have
fewer bits). A sum of zero is +0 unless both are -0: rounded down it is -0, which is even, and rounded up +0.

The journal has a line for each finished launch, so a run continues where it stopped. Its digest is that of all result
bits: for each a the sum over pairs of c of a hash of the results in the order of b.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

VALUES = 1 << 16
PAIRS = 4
"""Pairs of c that a thread holds."""
BLOCK = 256
SLICES = VALUES // (2 * PAIRS * BLOCK)
"""Blocks for one a."""
LAUNCH = 512
"""Values of a for a launch: about a second on an H200."""
KEPT = 6
FACTOR, FIRST_MIX, SECOND_MIX = 0x9E3779B1, 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F

_HEAD = """.version 8.0
.target {target}
.address_size 64
.visible .entry triples(.param .u64 digests, .param .u64 report, .param .u64 first, .param .u64 values)
{{
.reg .pred p; .reg .b16 lo, hi; .reg .b32 x, t, a, a2, b2, n, q, i, w, f0, f1, l0, h0, l1, h1, wrong;
.reg .f32 af, bf, m; .reg .b32 c<{pairs}>, s<{pairs}>, d; .reg .f32 u<{pairs}>, v<{pairs}>;
.reg .b64 k, sum, at, old;
mov.u32 x, %ctaid.x; mov.u32 t, %tid.x;
div.u32 a, x, {slices}; mul.lo.u32 q, a, {slices}; sub.u32 q, x, q; mad.lo.u32 q, q, {block}, t;
ld.param.u32 i, [first]; add.u32 i, i, a; mul.lo.u32 a2, i, 0x10001;
mov.b32 {{lo, hi}}, a2; cvt.f32.f16 af, lo; mov.b32 wrong, 0; mov.b32 b2, 0;
ld.param.u32 n, [values];
"""


def kernel_text(target: str, fma: str = "fma.rn.f16x2 d, a2, b2, c{j};") -> str:
    """The PTX of the kernel. fma: computes d from a2, b2 and c{j}, which a test replaces."""
    lines = [_HEAD.format(target=target, pairs=PAIRS, slices=SLICES, block=BLOCK)]
    for j in range(PAIRS):
        lines.append(
            f"add.u32 w, q, {j * SLICES * BLOCK}; mul.lo.u32 c{j}, w, 0x20002; add.u32 c{j}, c{j}, 0x10000;"
            f"mov.b32 {{lo, hi}}, c{j}; cvt.f32.f16 u{j}, lo; cvt.f32.f16 v{j}, hi; mov.b32 s{j}, 0;"
        )
    lines.append("LOOP: mov.b32 {lo, hi}, b2; cvt.f32.f16 bf, lo; mul.rn.f32 m, af, bf;")
    for j in range(PAIRS):
        lines.append(
            fma.replace("{j}", str(j)) + f"add.rm.f32 l0, m, u{j}; add.rp.f32 h0, m, u{j};"
            f"add.rm.f32 l1, m, v{j}; add.rp.f32 h1, m, v{j};"
            "and.b32 w, l0, 1; setp.ne.u32 p, w, 0; selp.b32 f0, l0, h0, p;"
            "and.b32 w, l1, 1; setp.ne.u32 p, w, 0; selp.b32 f1, l1, h1, p;"
            "cvt.rn.f16x2.f32 w, f1, f0; xor.b32 w, w, d; or.b32 wrong, wrong, w;"
            f"mad.lo.u32 s{j}, s{j}, {FACTOR:#x}, d;"
        )
    lines.append("add.u32 b2, b2, 0x10001; sub.u32 n, n, 1; setp.ne.u32 p, n, 0; @p bra LOOP; mov.b64 sum, 0;")
    for j in range(PAIRS):
        lines.append(
            f"add.u32 w, q, {j * SLICES * BLOCK}; mov.b64 k, {{s{j}, w}}; mul.lo.u64 k, k, {FIRST_MIX:#x};"
            f"shr.u64 at, k, 32; xor.b64 k, k, at; mul.lo.u64 k, k, {SECOND_MIX:#x}; add.u64 sum, sum, k;"
        )
    lines.append(
        "ld.param.u64 at, [digests]; mul.wide.u32 k, a, 8; add.u64 at, at, k; red.global.add.u64 [at], sum;"
        "setp.eq.u32 p, wrong, 0; @p ret;"
        "ld.param.u64 at, [report]; atom.global.add.u64 old, [at], 1;"
        f"setp.ge.u64 p, old, {KEPT}; @p ret; shl.b64 old, old, 3; add.u64 at, at, old;"
        "mov.b64 k, {q, i}; st.global.u64 [at+8], k; ret;\n}"
    )
    return "\n".join(lines)


def folded(results: Iterable[NDArray[np.uint32]]) -> int:
    """The digest of one a: parts of results [values of b, pairs of c], the lower half for the even c."""
    total: Any = np.uint32(0)
    for part in results:
        for row in part:
            total = total * np.uint32(FACTOR) + row
    pair = np.arange(len(total), dtype=np.uint64)
    word = (total.astype(np.uint64) | pair << np.uint64(32)) * np.uint64(FIRST_MIX)
    return int(((word ^ word >> np.uint64(32)) * np.uint64(SECOND_MIX)).sum(dtype=np.uint64))


def read(path: Path) -> dict[int, list[int]]:
    """The digests of the values of a in a journal. Raises ValueError for a line with differences."""
    done: dict[int, list[int]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        entry = json.loads(line)
        if entry["wrong"]:
            raise ValueError(f"{path}: results differ from {entry['first']} on: {entry['wrong']}")
        done[entry["first"]] = [int(word, 16) for word in entry["digests"]]
    return done


def digest_of(done: dict[int, list[int]]) -> str:
    """The digest of all results; "" if some a is missing."""
    sums = [done.get(first, []) for first in range(0, VALUES, LAUNCH)]
    if any(len(some) != LAUNCH for some in sums):
        return ""
    return hashlib.sha256(np.array(sums, np.uint64).tobytes()).hexdigest()


def run(path: Path, seconds: float) -> int:
    """Continue the journal for so many seconds. Returns 1 if a result differs."""
    from ptxdiff.conformance.fetch import Hardware
    from ptxdiff.conformance.kernels import assembled

    hardware = Hardware()
    gpu = hardware.gpu
    made = assembled(kernel_text(gpu.target), gpu.target, hardware.assembler)
    if not isinstance(made, bytes):
        raise SystemExit(f"ptxas: {made.words}")
    kernel = gpu.kernel(gpu.load(made), "triples")
    digests, report = gpu.allocate(8 * LAUNCH), gpu.allocate(8 * (1 + KEPT))
    done, started, launches = read(path), time.monotonic(), 0
    with path.open("a") as journal:
        for first in (f for f in range(0, VALUES, LAUNCH) if f not in done):
            if time.monotonic() - started > seconds:
                break
            digest_words, told = np.zeros(LAUNCH, np.uint64), np.zeros(1 + KEPT, np.uint64)
            gpu.upload(digests, digest_words)
            gpu.upload(report, told)
            gpu.start(kernel, [digests, report, first, VALUES], SLICES * LAUNCH, BLOCK)
            gpu.download(digest_words, digests)
            gpu.download(told, report)
            wrong = [place(int(w)) for w in told[1 : 1 + min(int(told[0]), KEPT)]]
            done[first], launches = digest_words.tolist(), launches + 1
            entry = {"first": first, "wrong": wrong, "digests": [f"{d:x}" for d in done[first]], "device": gpu.name}
            journal.write(json.dumps(entry) + "\n")
            journal.flush()
            if wrong:
                print(f"{int(told[0])} threads have results that differ, the first of them: {wrong}")
                return 1
    spent = time.monotonic() - started
    rate = launches * LAUNCH * VALUES**2 / spent if launches else 0.0
    print(f"{gpu.name}: {len(done)} of {VALUES // LAUNCH} launches done, {launches} now in {spent:.1f} s, "
          f"{rate:.3g} results a second; all agree; digest {digest_of(done) or 'after the last'}")  # fmt: skip
    return 0


def place(word: int) -> str:
    """The a and the values of c of a thread."""
    pairs = [(word & 0xFFFFFFFF) + j * SLICES * BLOCK for j in range(PAIRS)]
    return f"a {word >> 32:#06x}, c " + ", ".join(f"{2 * q:#06x}/{2 * q + 1:#06x}" for q in pairs)


def main(words: Sequence[str]) -> int:
    """Run, or compare a value of a with the emulator."""
    parser = argparse.ArgumentParser(prog="python -m ptxdiff.conformance.triples")
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=500.0, help="begin no launch after this time (default: 500)")
    parser.add_argument("--emulate", type=lambda t: int(t, 0), metavar="A", help="compute the digest of one a here")
    args: Any = parser.parse_args(words)
    if args.emulate is None:
        return run(args.journal, args.seconds)
    known = read(args.journal)
    first = args.emulate - args.emulate % LAUNCH
    mine = folded(emulated(args.emulate, VALUES))
    theirs = known[first][args.emulate - first] if first in known else None
    words_of = "the same" if mine == theirs else "no line for it" if theirs is None else f"the journal has {theirs:x}"
    print(f"a {args.emulate:#06x}: {mine:x} by the emulator; {words_of}")
    return int(theirs not in (None, mine))


def emulated(a: int, values: int, pairs: int = VALUES // 2) -> Iterator[NDArray[np.uint32]]:
    """The results of the emulator for one a, the first values of b, and the first pairs of c: parts [values, pairs]."""
    from ptxdiff.emulator import emulate

    c = (np.arange(pairs, dtype=np.uint32) * 0x20002 + 0x10000).astype(np.uint32)
    for first in range(0, values, _TOGETHER):
        b = np.arange(first, min(first + _TOGETHER, values), dtype=np.uint32)[:, None] * np.uint32(0x10001)
        operands = [np.ascontiguousarray(w) for w in np.broadcast_arrays(np.uint32(a * 0x10001), b, c)]
        computed_values: Any = emulate("fma.rn.f16x2 $0, $1, $2, $3;", "=r,r,r,r", operands, "uint32")
        yield computed_values


_TOGETHER = 64  # values of b in one call of the emulator


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
