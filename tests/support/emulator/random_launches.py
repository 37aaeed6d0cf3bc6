"""Random kernels whose threads do not communicate, right ones and wrong ones, run as machine code and step by step.

`python -m tests.support.emulator.random_launches --kernels N --seed S` compares both ways on many: bits, undefined
bytes, counts of instructions, and the texts of errors have to be equal. It prints how many ran as machine code.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

from ptxdiff.emulator.errors import PtxError
from ptxdiff.emulator.kernel.compiled import launch
from ptxdiff.emulator.kernel.run import Buffer, BufferPointer, load_kernel, run_kernel

FAULTS = (
    "", "", "", "no guard", "beyond", "before", "misaligned", "overlap", "same place", "twice", "uninitialised",
    "shifted", "gather", "read-only", "undefined input", "not coherent", "own", "one buffer", "shifted blocks",
    "equal values", "guard undefined", "partly",
)  # fmt: skip
_INTEGER = (
    "add.s32 {d}, {a}, {b};", "sub.s32 {d}, {a}, {b};", "mul.lo.s32 {d}, {a}, {b};", "xor.b32 {d}, {a}, {b};",
    "and.b32 {d}, {a}, {b};", "min.s32 {d}, {a}, {b};", "max.u32 {d}, {a}, {b};", "shl.b32 {d}, {a}, 3;",
    "shr.s32 {d}, {a}, 5;", "mad.lo.s32 {d}, {a}, {b}, {a};", "prmt.b32 {d}, {a}, {b}, 0x5140;", "not.b32 {d}, {a};",
    "selp.b32 {d}, {a}, {b}, %q0;", "@%q0 mov.b32 {d}, {a};", "@!%q0 add.s32 {d}, {b}, 7;",
    "setp.lt.s32 %q0, {a}, {b};",
    "{{ .reg .b16 lo, hi; mov.b32 {{lo, hi}}, {a}; mov.b32 {d}, {{hi, lo}}; }}", "div.u32 {d}, {a}, {b};",
    "{{ .reg .b64 w; mul.wide.u32 w, {a}, {b}; shr.u64 w, w, 9; cvt.u32.u64 {d}, w; }}", "popc.b32 {d}, {a};",
    "{{ .reg .b16 h; cvt.u16.u32 h, {a}; cvt.s32.s16 {d}, h; }}", "mov.u32 {d}, %laneid;", "mov.u32 {d}, %nctaid.x;",
    "add.cc.u32 {d}, {a}, {b}; addc.u32 {d}, {d}, {b};",
)  # fmt: skip
_FLOAT = (
    "add.f32 {d}, {a}, {b};", "mul.f32 {d}, {a}, {b};", "fma.rn.f32 {d}, {a}, {b}, {a};", "min.f32 {d}, {a}, {b};",
    "ex2.approx.ftz.f32 {d}, {a};", "rcp.rn.f32 {d}, {a};", "neg.f32 {d}, {a};", "cvt.rn.f32.s32 {d}, {a};",
    "{{ .reg .b16 h; cvt.rn.f16.f32 h, {a}; cvt.f32.f16 {d}, h; }}", "fma.rn.f16x2 {d}, {a}, {b}, {a};",
)  # fmt: skip


@dataclass
class Launch:
    """A kernel's text and its launch. arrays: of the parameters a, b and y; two may be one."""

    text: str
    arrays: list[np.ndarray]
    count: int
    grid: tuple[int, ...]
    block: tuple[int, ...]
    fault: str
    undefined: set[int] = field(default_factory=set)
    shift: int = 0


def random_launch(rng: np.random.Generator) -> Launch:
    """A kernel of loads from a and b, arithmetic, and stores to y, with a fault or without."""
    fault = str(rng.choice(FAULTS))
    width = int(rng.choice([1, 2, 4, 4, 4, 8]))
    vector = int(rng.choice([1, 2, 4])) if width < 8 else int(rng.choice([1, 2]))
    parts = int(rng.choice([1, 1, 2, 3]))
    block = [(32,), (64,), (96,), (128,), (16, 4), (8, 4, 2), (32, 2)][rng.integers(7)]
    grid = [(1,), (3,), (7,), (3, 2), (2, 2, 2)][rng.integers(5)]
    threads, blocks = int(np.prod(block)), int(np.prod(grid))
    items = threads * blocks * vector * parts
    count = items - int(rng.integers(0, min(items, 3 * threads * vector))) // vector * vector
    size = width * vector
    lines = _index(rng, block, grid)
    kind, register = {1: ("b8", "%h"), 2: ("b16", "%h"), 4: ("b32", "%r"), 8: ("b64", "%d")}[width]
    # Element of this part: blocked within a block, or neighbouring, as compilers lay them out.
    blocked = bool(rng.integers(2))
    body: list[str] = []
    guard_kind = str(rng.choice(["predicate", "branch", "exit"])) if parts == 1 else "predicate"
    stride = vector if fault != "overlap" or vector == 1 else vector // 2
    for part in range(parts):
        if blocked:
            body += [f"mad.lo.u32 %e{part}, %block, {threads * parts}, %in;"]
            body += [f"add.u32 %e{part}, %e{part}, {part * threads};"]
        else:
            body += [f"mad.lo.u32 %e{part}, %global, {parts}, {part};"]
        body += [f"mul.lo.u32 %e{part}, %e{part}, {stride};"]
        if fault == "same place" and part == parts - 1:
            body += [f"and.b32 %e{part}, %e{part}, {~(2 * vector - 1) & 0xFFFFFFFF};"]
        body += [f"setp.lt.u32 %p{part}, %e{part}, %n;", f"mul.wide.u32 %o{part}, %e{part}, {width};"]
    if fault == "guard undefined":
        body += ["setp.ne.b32 %p0, %never, 0;"]
    if guard_kind == "exit":
        body += ["@!%p0 exit;"]
    if guard_kind == "branch":
        body += ["@!%p0 bra END;"]
    loads: list[str] = []
    for part in range(parts):
        guard = "" if fault == "no guard" or guard_kind != "predicate" else f"@%p{part} "
        for name in "ab"[: int(rng.integers(1, 3))]:
            names = [f"{register}{name}{part}_{k}" for k in range(vector)]
            loads += names
            if guard and fault != "uninitialised" and rng.integers(4):
                body += [f"mov.{'b16' if width < 4 else kind} {one}, 0;" for one in names]
            body += [f"add.s64 %x{name}{part}, %{name}, %o{part};"]
            offset = {"shifted": size, "beyond": size * int(rng.integers(0, 9)), "before": -size}.get(fault, 0)
            offset = 1 if fault == "misaligned" and name == "a" else offset
            if fault == "gather" and name == "a":
                body += [
                    f"and.b32 %g, %e{part}, 0xfffffff0;",
                    f"mul.wide.u32 %xa{part}, %g, {width};",
                    f"add.s64 %xa{part}, %xa{part}, %a;",
                ]
            cache = ".nc" if fault == "not coherent" else ""
            braces = f"{{{', '.join(names)}}}" if vector > 1 else names[0]
            many = f"v{vector}." if vector > 1 else ""
            body += [f"{guard}ld.global{cache}.{many}{kind} {braces}, [%x{name}{part}+{offset}];"]
    body += ["setp.lt.s32 %q0, %in, 7;"]
    results = _arithmetic(rng, body, loads, width, parts * vector)
    for part in range(parts):
        guard = "" if fault == "no guard" or guard_kind != "predicate" else f"@%p{part} "
        if fault == "partly" and guard:
            guard = ""
        values = results[part * vector : part * vector + vector]
        if fault == "equal values":
            body += [f"mov.{'b16' if width < 4 else kind} {register}same, 5;"]
            values = [f"{register}same"] * vector
            body += [f"and.b64 %o{part}, %o{part}, -64;"]
        braces = f"{{{', '.join(values)}}}" if vector > 1 else values[0]
        spelled = f"st.global.{f'v{vector}.' if vector > 1 else ''}{kind}"
        body += [f"add.s64 %xy{part}, %y, %o{part};", f"{guard}{spelled} [%xy{part}], {braces};"]
        if fault == "twice" and part == 0:
            body += [f"{guard}{spelled} [%xy{part}], {braces};"]
    declared = [
        ".reg .pred %p<4>, %q<2>;", ".reg .b32 %e<4>, %g, %in, %block, %global, %n, %t<12>, %never;",
        ".reg .b64 %o<4>, %a, %b, %y, " + ", ".join(f"%x{name}{part}" for name in "aby" for part in range(4)) + ";",
    ]  # fmt: skip
    for letter, bits in (("h", 16), ("r", 32), ("d", 64)):
        names = [f"%{letter}{name}{p}_{k}" for name in "abz" for p in range(4) for k in range(4)]
        declared += [f".reg .b{bits} %{letter}same, {', '.join(names)};"]
    given = [f"ld.param.u64 %{name}, [{name}];" for name in "aby"] + ["ld.param.u32 %n, [n];"]
    given += [f"cvta.to.global.u64 %{name}, %{name};" for name in "aby" if rng.integers(2)]
    text = (
        ".version 8.6\n.target sm_90a\n.address_size 64\n"
        ".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 y, .param .u32 n) "
        f".reqntid {', '.join(map(str, block))}\n{{\n"
        + "\n".join([*declared, *given, *lines, *body, "END:", "ret;", "}"])
    )
    spare = 64
    arrays = [rng.integers(0, 256, items * width + spare, np.uint8) for _ in range(2)]
    arrays += [np.zeros(items * width + spare, np.uint8)]
    shift = 0
    if fault in ("own", "one buffer", "not coherent", "shifted"):
        arrays[2] = arrays[0]
    if fault == "shifted blocks":
        arrays[2] = arrays[0]
        shift = size * int(rng.integers(0, threads))
    if fault == "read-only":
        arrays[2].flags.writeable = False
    undefined = {2} if rng.integers(2) and arrays[2] is not arrays[0] else set()
    if fault == "undefined input":
        undefined.add(1)
    return Launch(text, arrays, count, grid, block, fault, undefined, shift)


def _index(rng: np.random.Generator, block: tuple[int, ...], grid: tuple[int, ...]) -> list[str]:
    """The number of a thread in its block, and of its block, in registers."""
    lines = ["mov.u32 %in, %tid.x;", "mov.u32 %block, %ctaid.x;"]
    below = 1
    for axis, size in zip("xyz", block, strict=False):
        if axis != "x":
            lines += [f"mov.u32 %t0, %tid.{axis};", f"mad.lo.u32 %in, %t0, {below}, %in;"]
        below *= size
    names = "xyz"[: len(grid)]
    for number, axis in enumerate(names[1:], 1):
        lines += [f"mov.u32 %t1, %ctaid.{axis};", "mov.u32 %t2, %nctaid.x;"]
        if number == 2:
            lines += ["mov.u32 %t3, %nctaid.y;", "mul.lo.u32 %t2, %t2, %t3;"]
        lines += ["mad.lo.u32 %block, %t1, %t2, %block;"]
    threads = int(np.prod(block))
    return [*lines, f"mad.lo.u32 %global, %block, {threads}, %in;"]


def _arithmetic(rng: np.random.Generator, body: list[str], loads: list[str], width: int, wanted: int) -> list[str]:
    """Steps that make results of what was loaded; the names of registers with them."""
    if width != 4:
        if width == 8:
            for number in range(wanted):
                body += [f"add.s64 %dz{number // 4}_{number % 4}, {rng.choice(loads)}, {rng.choice(loads)};"]
            return [f"%dz{number // 4}_{number % 4}" for number in range(wanted)]
        for number in range(wanted):
            body += [f"xor.b16 %hz{number // 4}_{number % 4}, {rng.choice(loads)}, {rng.choice(loads)};"]
        return [f"%hz{number // 4}_{number % 4}" for number in range(wanted)]
    have = list(loads)
    for number in range(wanted):
        name = f"%rz{number // 4}_{number % 4}"
        body += [f"mov.b32 {name}, {rng.choice(have)};"]
        for _ in range(int(rng.integers(1, 4))):
            line = str(rng.choice(_INTEGER if rng.integers(3) else _FLOAT))
            body += [line.format(d=name, a=rng.choice(have), b=rng.choice([*have, name]))]
        have.append(name)
    return [f"%rz{number // 4}_{number % 4}" for number in range(wanted)]


def outcome(one: Launch, *, compiled: bool) -> tuple[Any, bool]:
    """What a launch gives, by machine code where possible or never, and whether it was used."""
    used = []
    plain = launch.ran

    def noted(grid: Any) -> bool:
        used.append(plain(grid))
        return used[-1]

    kernel = load_kernel(one.text)
    made: dict[int, Buffer] = {}
    for number, array in enumerate(one.arrays):
        if id(array) not in made:
            copy = array.copy()
            copy.flags.writeable = array.flags.writeable
            made[id(array)] = Buffer(copy, f"array {number}", defined=number not in one.undefined)
    buffers = [made[id(array)] for array in one.arrays]
    given = [*buffers[:2], BufferPointer(buffers[2], one.shift), one.count]
    settings = {"WORTH": 0, "ALWAYS": 0, "PIECE": 128} if compiled else {"WORTH": 1 << 62}
    with mock.patch.multiple(launch, **settings), mock.patch.object(launch, "ran", noted):
        launch._made.clear()
        try:
            done = run_kernel(kernel, given, one.grid, num_threads=one.block, limit=None)
        except PtxError as error:
            return (type(error).__name__, str(error), [b.array.tobytes() for b in buffers]), any(used)
    unwritten = [None if b.unwritten is None else b.unwritten.tobytes() for b in buffers]
    return (done, done.variables, [b.array.tobytes() for b in buffers], unwritten), any(used)


def main(words: list[str] | None = None) -> int:
    """Compare both ways on many kernels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    counts: Counter[tuple[str, str, bool]] = Counter()
    failures = 0
    for number in range(given.kernels):
        one = random_launch(np.random.default_rng([given.seed, number]))
        plain, _ = outcome(one, compiled=False)
        code, used = outcome(one, compiled=True)
        what = plain[0] if isinstance(plain[0], str) else "right"
        counts[one.fault, what, used] += 1
        if plain != code:
            failures += 1
            print(f"differs: seed {given.seed}, kernel {number}, {one.fault!r}: {plain[:2]} {code[:2]}\n{one.text}")
    for (fault, what, used), count in sorted(counts.items()):
        print(f"{fault or 'none':<20}{what:<20}{'machine code' if used else 'step by step':<16}{count}")
    used_code = sum(count for (_, _, used), count in counts.items() if used)
    print(f"{given.kernels} kernels, {used_code} as machine code, {failures} differ")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
