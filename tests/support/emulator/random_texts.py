"""Random texts for `random_campaign`: each is made from a seed and a number.

Some are blocks and modules of these tests, and PTX that Triton makes of kernels, with mutated characters, words and
statements. Others are made of instructions with operands of fitting or of any kind, of words in random order, and of
bytes. Arguments and constraints are varied too.
"""

from __future__ import annotations

import contextlib
import io
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ptxdiff.emulator import emulate
from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel
from tests.support.emulator import random_ptx as rp
from tests.support.emulator.random_modules import MODULES

LIMIT = 2.0
"""Seconds that a program may run."""
INPUTS = [np.array([0x3F800000, 0, 0x80000001, 0x7FC00001, 0xFFFFFFFF], np.uint32), np.arange(5, dtype=np.uint32)]


@dataclass(frozen=True)
class Text:
    """A text, the function that runs it, and in words the arguments with which it runs."""

    text: Any
    doing: Callable[[], object]
    how: str


# making texts ------------------------------------------------------------------------------------------------

SIGNS = "{}()[],;:.$%@!|+-*/<>=_0123456789xfUb \n\"'&^~?\0\\\u00e9"


def characters(draw: random.Random, text: str) -> str:
    """The text with some characters removed, replaced, inserted, doubled or exchanged."""
    found = list(text)
    for _ in range(draw.choice((1, 1, 2, 3, 8))):
        if not found:
            break
        at = draw.randrange(len(found))
        change = draw.randrange(5)
        if change == 0:
            del found[at]
        elif change == 1:
            found[at] = chr(draw.choice((draw.randrange(128), draw.randrange(32, 127), draw.randrange(0x3000))))
        elif change == 2:
            found.insert(at, draw.choice(SIGNS))
        elif change == 3:
            found[at:at] = found[at : at + draw.randrange(1, 20)]
        else:
            other = draw.randrange(len(found))
            found[at], found[other] = found[other], found[at]
    return "".join(found)


def words(draw: random.Random, text: str) -> str:
    """The text with some words removed, replaced, inserted, doubled or exchanged."""
    found = rp.TOKENS.findall(text)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 5))):
        if not found:
            break
        at, other = draw.randrange(len(found)), draw.randrange(len(found))
        change = draw.randrange(7)
        if change == 0:
            del found[at]
        elif change < 3:
            found[at] = draw.choice(rp.vocabulary())
        elif change == 3:
            found.insert(at, draw.choice(rp.vocabulary()))
        elif change == 4:
            found[at], found[other] = found[other], found[at]
        elif change == 5:
            found.insert(at, found[at])
        else:
            found[at] = found[other]
    return "".join(found)


def statements(draw: random.Random, text: str) -> str:
    """The text with some statements removed, doubled, exchanged, guarded, inserted or moved into a block."""
    found = text.split(";")
    for _ in range(draw.choice((1, 1, 2, 4))):
        at, other = draw.randrange(len(found)), draw.randrange(len(found))
        change = draw.randrange(6)
        if change == 0 and len(found) > 1:
            del found[at]
        elif change == 1:
            found.insert(at, found[at])
        elif change == 2:
            found[at], found[other] = found[other], found[at]
        elif change == 3:
            found[at] = "{ " + found[at]
            found.append(" }")
        elif change == 4:
            found.insert(at, draw.choice(rp.VALID)[0].rstrip(";"))
        else:
            found[at] = f"@{draw.choice(['p', '!p', 'q', '%p1', '!%p2'])} {found[at].strip()}"
    return ";".join(found)


def mutated(draw: random.Random, text: str) -> str:
    """The text after one or two mutations."""
    for _ in range(draw.choice((1, 1, 2))):
        text = draw.choice((characters, words, statements))(draw, text)
    return text


def bound(draw: random.Random, forms: Sequence[Any]) -> Any:
    """One of the forms, with modifiers that can stand together."""
    while True:
        form = draw.choice(forms)
        chosen = (draw.choice(g.choices) if not g.optional or draw.random() < 0.4 else None for g in form.groups)
        found = rp.Bound(form, tuple(chosen))
        if not found.excluded:
            return found


def operand(draw: random.Random) -> str:
    """An operand of any kind."""

    def register() -> str:
        return f"%{draw.choice(rp.REGISTERS)}_{draw.randrange(3)}"

    def element() -> str:
        return register() if draw.random() < 0.7 else draw.choice(["_", "$1", "0", "1.5", "%tid.x"])

    made: list[tuple[float, Callable[[], str]]] = [
        (0.55, register),
        (0.10, lambda: draw.choice(["$0", "$1", "$2", "_"])),
        (0.10, lambda: draw.choice(rp.IMMEDIATES)),
        (0.10, lambda: "{" + ", ".join(element() for _ in range(draw.randrange(1, 6))) + "}"),
        (0.04, lambda: f"{register()}|{register()}"),
        (0.04, lambda: draw.choice("!-~") + register()),
        (0.03, lambda: f"{register()}.{draw.choice(['b0', 'h1', 'b3210', 'x', 'y'])}"),
        (0.02, lambda: f"[{register()}+{draw.choice(rp.IMMEDIATES)}]"),
        (0.02, lambda: draw.choice(["%tid.x", "%v.x", "%w", "%v", "WARP_SZ", "here", "%clock64"])),
    ]
    return draw.choices([m for _, m in made], [w for w, _ in made])[0]()


OF_A_BLOCK = {
    1: ["%pred_0"],
    8: ["%b8_0"],
    16: ["%b16_0", "%u16_0", "%s16_0", "%f16_0"],
    32: ["%b32_0", "%u32_0", "%s32_0", "%f32_0", "%f16x2_0", "$1", "$2"],
    64: ["%b64_0", "%u64_0", "%s64_0", "%f64_0"],
}
"""Registers of a block by width: `WRITTEN` gives them values."""
OF_A_MODULE = {
    1: ["%p1", "%p2"],
    16: ["%h1", "%h2"],
    32: ["%r1", "%r2", "%r3", "%r4", "%f1"],
    64: [f"%rd{n}" for n in range(1, 7)],
}
"""Registers of a module by width."""
ADDRESSES = [
    *("[%rd1]", "[%rd4]", "[s]", "[%r2]", "[%rd1+4]", "[l]", "[g]", "[a]", "[%rd6]", "[s+8]", "[%rd1+-4]", "[d]"),
    *("[0]", "[%rd1+9223372036854775807]", "[18446744073709551615]", "[%r2+1099511627776]"),
]
NUMBERS = ["0", "1", "0x80", "255", "-1", "1.5", "0f3F800000", "31", "4294967295", "4294967296", "16"]
WRITTEN = "".join(
    f"mov.b{w} %{t}{w}_0, {7 + w};" for w in (16, 32, 64) for t in "bus"
) + (
    "mov.f32 %f32_0, 1.5; mov.f64 %f64_0, 1.5; mov.pred %pred_0, 1; mov.b16 %f16_0, %b16_0; mov.b32 %f16x2_0, %b32_0;"
    "cvt.u8.u32 %b8_0, $2;"
)  # fmt: skip


def typed(draw: random.Random, registers: dict[int, list[str]], forms: Sequence[Any]) -> str:
    """An instruction whose operands mostly have the right widths."""
    instruction = bound(draw, forms)
    every = [r for group in registers.values() for r in group]
    operands = []
    for spec in instruction.form.operands:
        if draw.random() < 0.1:
            operands.append(operand(draw))
        elif spec.constant or draw.random() < 0.1:
            operands.append(draw.choice(NUMBERS))
        else:
            operands.append(draw.choice(registers.get(instruction.type_of(spec).width, registers[32])))
    if not instruction.form.operands:
        for _ in range(draw.randrange(5)):
            vector = "{" + ", ".join(draw.choice(every) for _ in range(draw.choice((1, 2, 4)))) + "}"
            choices = [draw.choice(ADDRESSES), draw.choice(every), draw.choice(NUMBERS), vector]
            operands.append(draw.choices(choices, (35, 40, 15, 10))[0])
    guard = draw.choice(("", "", "", f"@{draw.choice(('', '!'))}{draw.choice(registers[1])} "))
    return f"{guard}{instruction.spelling} {', '.join(operands)};"


LETTERS = [
    *(*rp.REGISTER_WIDTH, "0", "1", "n", "i", "s", "+r", "&r", "=r", "%r", "~{memory}", "", " r", "rh", "=f", "=h"),
    *("=l", "=b", "=d", "\u00e9", "=&r", "99999999999999999999", "{}", "=r|r", "m", "X"),
]
BASES = ["=r,r,r", "=r,r,n", "=&r,r,r", "=r,r", "=f,f,f", "=r,=r,r,r", "=l,l,l", "=h,h,h", "=r,0,r", "=r,n,n"]
TYPES: list[Any] = [
    *("uint32", "float32", "int32", "uint8", "float16", "bfloat16", "float8e4nv", "int64", "float64", "bool", "int16"),
    *("float8_e4m3fn", "complex64", "object", "S4", "junk", "V4", ">u4", "int4", None, 3, ("uint32", "uint32"), []),
    *(["int8"], np.dtype("f4")),
]
ARGUMENTS: list[Any] = [
    *(0, 1, -1, 2**31, 2**32, 2**63, 2**64 - 1, 2**70, True, 1.5, float("nan"), 1e300, None, "x", b"a", [1, 2], {}),
    *([[1], [2, 3]], np.float32([1, 2, 3, 4, 5]), np.uint8([1, 2, 3]), np.zeros((0,)), np.zeros((2, 5), np.int64)),
    *(np.bool_([1, 0, 1]), np.array("x"), np.float64(2), np.int8(3), np.zeros(5, ">i4"), np.complex64(1)),
    np.arange(4000, dtype=np.uint32),
]
OPTIONS: dict[str, list[Any]] = {
    "pack": [1, 1, 2, 4, 8, 3, 0, -1, 2**40, 4096, None, "2", True, 1.0],
    "order": [None, 0, 5, -1, "a", 2**70, 1.5],
    "padding": [None, 0, 5, -1, "a", 2**70, 1.5],
    "share": [None, {0: 1}, {0: 2}, {1: 0}, {5: 5}, {-1: 0}, {"a": 1}, [(0, 1)], {0: True}],
    "target": [None, "sm_1", "x", 90, "sm_999", "sm_90b", "", *rp.TARGETS],
    "limit": [0, -1, "a", 1, float("nan")],
    "special": [None, {}, {"%laneid": 3}, {"%tid.x": INPUTS[1]}, {"%tid": 1}, {"x": 2}, {1: 2}, {"%laneid": "a"}, 7],
}


# kinds of texts ----------------------------------------------------------------------------------------------


def _block(text: Any, constraints: Any, arguments: Any = INPUTS, dtype: Any = "uint32", **more: Any) -> Text:
    how = f"{constraints!r}, {arguments!r}, {dtype!r}, {more!r}"
    return Text(text, lambda: emulate(text, constraints, arguments, dtype, **more), how)


def _options(draw: random.Random) -> dict[str, Any]:
    return {"target": draw.choice(rp.TARGETS), "padding": 3, "fuse": draw.random() < 0.3, "limit": LIMIT}


def _of_a_mutated_block(draw: random.Random) -> Text:
    text, constraints = draw.choice(blocks())
    return _block(mutated(draw, text), constraints, **_options(draw))


def _of_operands(draw: random.Random) -> Text:
    lines = []
    for _ in range(draw.randrange(1, 4)):
        instruction = bound(draw, rp.EVERY)
        count = max(0, (len(instruction.form.operands) or draw.randrange(5)) + draw.choice((0, 0, 0, 0, -1, 1)))
        guard = draw.choice(("", "", "", "@%pred_0 ", "@!%pred_1 "))
        line = f"{guard}{instruction.spelling} {', '.join(operand(draw) for _ in range(count))};"
        lines.append(draw.choice(("{}",) * 6 + rp.AROUND).replace("{}", line))
    written = WRITTEN if draw.random() < 0.5 else ""
    return _block(rp.DECLARED + written + " ".join(lines) + " mov.b32 $0, $1;", "=&r,r,r", **_options(draw))


def _of_typed_instructions(draw: random.Random) -> Text:
    lines = " ".join(typed(draw, OF_A_BLOCK, CALCULATING) for _ in range(draw.randrange(1, 5)))
    text = f"{rp.DECLARED}{WRITTEN}{lines} mov.b32 $0, {draw.choice(OF_A_BLOCK[32])};"
    return _block(text, "=&r,r,r", **_options(draw))


def _of_words(draw: random.Random) -> Text:
    text = " ".join(draw.choice(rp.vocabulary()) for _ in range(draw.randrange(20)))
    return _block(text, draw.choice(BASES), **_options(draw))


def _of_bytes(draw: random.Random) -> Text:
    noise = draw.randbytes(draw.randrange(200)).decode("latin-1")
    if draw.random() < 0.5:
        text = draw.choice(blocks())[0]
        at = draw.randrange(len(text))
        noise = text[:at] + noise[: draw.randrange(1, 12)] + text[at:]
    if draw.random() < 0.3:
        module = draw.choice(modules())
        at = draw.randrange(len(module))
        return _launch(draw, module[:at] + noise[: draw.randrange(1, 60)] + module[at:])
    return _block(noise, draw.choice(BASES), **_options(draw))


def _of_constraints(draw: random.Random) -> Text:
    text, constraints = draw.choice(blocks())
    if draw.random() < 0.5:
        constraints = ",".join(draw.choice(LETTERS) for _ in range(draw.randrange(1, 6)))
    else:
        constraints = characters(draw, constraints)
    return _block(text, constraints, **_options(draw))


def _of_arguments(draw: random.Random) -> Text:
    text, constraints = draw.choice(rp.VALID)
    options = _options(draw)
    for name, choices in OPTIONS.items():
        if draw.random() < 0.2:
            options[name] = draw.choice(choices)
    arguments = [draw.choice(ARGUMENTS) for _ in range(draw.choice((0, 1, 2, 2, 2, 3)))]
    dtype = draw.choice(TYPES) if draw.random() < 0.5 else "uint32"
    if draw.random() < 0.1:
        constraints = draw.choice([None, 5, "", "=", "=r", "=r,r,r,r" * 50])
    return _block(text, constraints, arguments, dtype, **options)


def _of_a_mutated_module(draw: random.Random) -> Text:
    return _launch(draw, mutated(draw, draw.choice(modules())))


def _of_a_longer_module(draw: random.Random) -> Text:
    text = draw.choice(modules())
    for _ in range(draw.randrange(1, 4)):
        at = draw.choice([m.end() for m in re.finditer(";", text) if m.start() > text.find("{")])
        text = f"{text[:at]} {typed(draw, OF_A_MODULE, draw.choice((MEMORY, MEMORY, rp.EVERY)))} {text[at:]}"
    return _launch(draw, words(draw, text) if draw.random() < 0.2 else text)


def _launch(draw: random.Random, text: str) -> Text:
    arrays = [np.zeros(256, np.uint32), np.zeros(256, np.uint32), np.zeros(16, np.uint8)]
    defined = draw.random() < 0.9
    buffers: list[Any] = [Buffer(a, "xys"[n], defined=defined) for n, a in enumerate(arrays)]
    numbers = [draw.choice([0, 1, 5, 2**40, -1, 1.5])] if draw.random() < 0.3 else []
    values = [*buffers[: draw.choice((3, 3, 3, 2, 1, 0))], *numbers]
    grid, shared = draw.choice([(1,), (2,), (1,), (2, 2)]), draw.choice([0, 1024, 60000])
    fuse = draw.random() < 0.3

    def run() -> None:
        kernel = load_kernel(text, None, fuse)
        with contextlib.redirect_stdout(io.StringIO()):
            run_kernel(kernel, values, grid, num_threads=kernel.threads or 128, shared_bytes=shared, limit=LIMIT)

    return Text(text, run, f"parameters {values}, grid {grid}, shared_bytes {shared}, fuse {fuse}")


CALCULATING = [f for f in rp.EVERY if f.function is not None]
MEMORY = [f for f in rp.EVERY if f.function is None]
KINDS: dict[str, tuple[int, Callable[[random.Random], Text]]] = {
    "block": (22, _of_a_mutated_block),
    "operands": (18, _of_operands),
    "typed": (12, _of_typed_instructions),
    "words": (5, _of_words),
    "bytes": (8, _of_bytes),
    "constraints": (6, _of_constraints),
    "arguments": (9, _of_arguments),
    "module": (12, _of_a_mutated_module),
    "longer": (8, _of_a_longer_module),
}
"""Kinds of texts: how many of a hundred are of the kind, and the function that makes one."""


@cache
def blocks() -> list[tuple[str, str]]:
    """Asm blocks of the tests, with their constraints."""
    from tests.emulator.test_corpus_idioms import IDIOMS

    return [*rp.VALID, *((asm, constraints) for asm, constraints, *_ in IDIOMS.values())]


@cache
def modules() -> list[str]:
    """Modules of the tests, and PTX that Triton makes of some kernels if it is installed."""
    try:
        from tests.emulator.kernel.test_triton_kernels import compile_for
    except BaseException as error:
        if type(error).__name__ != "Skipped":
            raise
        return MODULES
    x, h = np.zeros(64, np.float32), np.zeros(64, np.int32)
    made = [
        compile_for("softmax", "sm_90a", {"x": x, "y": x, "N": 60, "B": 64}, 1),
        compile_for("histogram_shared", "sm_100a", {"x": h, "h": h, "B": 64, "BINS": 16}, 1),
        compile_for("row_sums", "sm_80", {"x": x, "y": x, "M": 8, "N": 8, "BM": 8, "BN": 8}, 1),
    ]
    return MODULES * 2 + [c.ptx for c in made]


def made(seed: int, number: int, kinds: Sequence[str] = tuple(KINDS)) -> Text:
    """The text of a number: always the same for the same seed and kinds."""
    draw = random.Random(f"{seed}:{number}")
    kind = draw.choices(kinds, [KINDS[k][0] for k in kinds])[0]
    return KINDS[kind][1](draw)
