"""`ptxdiff emulate`: run inline asm on values from the command line, and print inputs and outputs as bits and
values."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ptxdiff import options
from ptxdiff.cli import UsageError
from ptxdiff.emulator import SNIPPET_SECONDS
from ptxdiff.emulator.text import CONVENTIONS
from ptxdiff.suggestions import did_you_mean

if TYPE_CHECKING:
    from ptxdiff.model.derive import AsmForm

_EPILOG = """\
example: ptxdiff emulate 'cvt.rn.satfinite.e2m1x2.f32 $0, $2, $1;' -i float32=0.25,nan -i float32=5,-0x1 \\
             -o e2m1x2 --target sm_100a
Values are decimal numbers (rounded to the format), nan, inf, or bit patterns (0x...).
Without --constraints they are derived from the formats, as in a case file.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("asm", help="the asm text, as tl.inline_asm_elementwise takes it")
    options.add(parser, "input", "an input and its values", metavar="FORMAT=V,V,...")
    options.add(parser, "output", "an output's format", action="append", default=[], metavar="FORMAT")
    options.add(parser, "constraints")
    options.add(parser, "pack", "elements per invocation (default: 1)", default=1)
    options.add(
        parser,
        "convention",
        "the asm's spelling of operands: triton ($0, packed registers), llvm ($0, one element each), cuda (%%0)",
        default="triton",
        choices=CONVENTIONS,
    )
    options.add(parser, "target", "default: sm_90a", action=None, default="sm_90a")
    options.formerly(parser, "--fuse", options.add(parser, "fusion"))
    options.add(
        parser,
        "approximate",
        "bits of approximate instructions: a Hopper GPU's (default), or the nearest to the true value",
    )
    options.add(parser, "limit", "time limit in seconds (default: 10)", default=SNIPPET_SECONDS)
    options.add(parser, "trace", "show every instruction of the first pack", action="store_true")


def main(args: argparse.Namespace) -> int:
    """Print a table of inputs and outputs. Returns 1 if the emulator refuses the asm, else 0."""
    from ptxdiff.emulator import PtxError, Target, check_pack, emulate
    from ptxdiff.model.targets import written

    inputs = [_input(word) for word in args.input]
    outputs = [_format(name) for name in args.output]
    if not outputs:
        raise UsageError("give each output's format: -o float32")
    if len({len(units) for _, units in inputs if len(units) > 1}) > 1:
        raise UsageError("the inputs have different numbers of values; give each input equally many, or one value")
    try:
        args.target = written(args.target)
        Target.parse(args.target)
    except (PtxError, ValueError) as e:
        raise UsageError(str(e)) from None
    arguments = [units for _, units in inputs]
    dtypes = [fmt.storage for fmt in outputs]
    try:
        check_pack(args.pack)
        form = _form(args, [fmt for fmt, _ in inputs], outputs)
        results = emulate(
            form.text,
            form.constraints,
            arguments,
            dtypes,
            pack=args.pack,
            target=args.target,
            fuse=args.fusion,
            approximate=args.approximate,
            limit=args.limit,
            convention=form.convention,
        )
        if args.trace:
            _trace(form, arguments, dtypes, args, args.target)
    except PtxError as e:
        print(f"{type(e).__name__}: {e}{_with_suffix(e, args.target)}")
        return 1
    _print(inputs, outputs, results)
    if remark := _remark(form, args):
        print(remark)
    return 0


def _remark(form: AsmForm, args: argparse.Namespace) -> str:
    """A remark if approximate instructions may have other bits than on the target; else ""."""
    from ptxdiff.emulator import GENERATION, ROUNDED, analyse, of_generation

    names = analyse(form.text, form.constraints, target=args.target).approximate
    if not names:
        return ""
    if args.approximate == ROUNDED:
        return f"{', '.join(names)}: rounded to nearest, which no GPU does"
    return (
        ""
        if of_generation(args.target)
        else f"{', '.join(names)}: {GENERATION}'s bits, not confirmed for {args.target}"
    )


def _form(args: argparse.Namespace, inputs: Sequence[Any], outputs: Sequence[Any]) -> AsmForm:
    """The asm with the given constraints, or with constraints derived from the formats. Raises UsageError."""
    from ptxdiff.model.case import Case
    from ptxdiff.model.derive import AsmForm, asm_form
    from ptxdiff.model.variants import AsmVariant, CaseError, asm

    if args.constraints is not None:
        from ptxdiff.emulator.text import spelled

        written = spelled(args.asm, args.constraints, args.convention)
        return AsmForm(
            written.text, written.constraints, args.pack, "triton" if args.convention == "triton" else "llvm"
        )
    try:
        packs = _packs(args)
        variant = asm(args.asm, packs=packs, pack=None if packs else args.pack, convention=args.convention)
        case = Case(
            inputs={f"in{k}": fmt for k, fmt in enumerate(inputs)},
            outputs={f"out{k}": fmt for k, fmt in enumerate(outputs)},
            reference=len,
            variants={"asm": variant},
        )
        assert isinstance(variant, AsmVariant)
        return asm_form(case, variant, args.pack)
    except (CaseError, ValueError) as e:
        raise UsageError(str(e)) from None


def _with_suffix(error: Exception, target: str) -> str:
    """A hint for features that `sm_90` lacks and `sm_90a` has; "" for other errors."""
    from ptxdiff.emulator import UnsupportedOnTarget
    from ptxdiff.model.targets import normal

    if not isinstance(error, UnsupportedOnTarget) or target[-1:].isalpha():
        return ""
    return f"\n(Triton compiles for {normal(target)}: -t {normal(target)})"


def _packs(args: argparse.Namespace) -> tuple[int, ...] | None:
    """The packs to derive for a single instruction without constraints; None for longer asm, which is not changed."""
    from ptxdiff.model.variants import single_instruction

    return (args.pack,) if args.constraints is None and single_instruction(args.asm) else None


def _format(name: str) -> Any:
    from ptxdiff.references.formats import FORMATS

    short = {fmt.name.replace("float", "f").replace("uint", "u").replace("int", "i"): fmt for fmt in FORMATS.values()}
    known = {**{name.lower(): fmt for name, fmt in short.items()}, **FORMATS}  # f32 is float32
    if name.lower() in known:
        return known[name.lower()]
    raise UsageError(f"no format is called {name!r}{did_you_mean(name, known)}; known: {', '.join(FORMATS)}")


def _input(word: str) -> tuple[Any, Any]:
    import numpy as np

    name, equals, values = word.partition("=")
    if not equals or not values:
        raise UsageError(f"-i {word!r}: write FORMAT=VALUE,VALUE, as in -i float32=1.5,0x7f800000")
    fmt = _format(name)
    units = [_unit(fmt, text.strip()) for text in values.split(",")]
    unsigned = np.array([u & ((1 << fmt.unit_bits) - 1) for u in units], dtype=f"uint{fmt.unit_bits}")
    return fmt, unsigned.view(fmt.numpy_dtype())


def _unit(fmt: Any, text: str) -> int:
    """The bits of one storage unit: of a bit pattern, or of a number rounded to the format. Raises UsageError."""
    import numpy as np

    try:
        if "0x" in text.lower():
            bits = int(text, 16)
            if abs(bits) >> fmt.unit_bits:
                raise UsageError(f"{text} has more bits than {fmt.name}, which has {fmt.unit_bits}")
            return bits
        if not fmt.is_float:
            number, size = int(text), 1 << (fmt.unit_bits - int(fmt.has_sign))
            if not -size * fmt.has_sign <= number < size:
                raise UsageError(f"{text} is outside the range of {fmt.name}; give its bits as 0x... if you mean these")
            return number
        if fmt.view is None:
            raise UsageError(f"{text!r}: give values of {fmt.name} as bit patterns (0x...)")
        with np.errstate(all="ignore"):
            value = np.array(float(text)).astype(fmt.view_dtype())
        return int(value.view(fmt.storage))
    except ValueError:
        raise UsageError(f"{text!r} is neither a number nor a bit pattern (0x...)") from None


def _print(inputs: list[tuple[Any, Any]], outputs: list[Any], results: Any) -> None:
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    columns = [*((f"in{k}", fmt, units) for k, (fmt, units) in enumerate(inputs))]
    columns += [(f"out{k}", fmt, units) for k, (fmt, units) in enumerate(zip(outputs, results, strict=True))]
    for name, fmt, _ in columns:
        table.add_column(f"{name} {fmt.name}")
    rows = max(np.asarray(units).size for _, _, units in columns)
    for row in range(rows):
        table.add_row(*(_cell(fmt, np.resize(np.asarray(units), rows)[row : row + 1]) for _, fmt, units in columns))
    Console().print(table)


def _cell(fmt: Any, unit: Any) -> str:
    from ptxdiff.references.formats import render, unpack

    return " ".join(render(fmt.single, int(code)) for code in unpack(fmt, unit))


def _trace(form: Any, arguments: Any, dtypes: Any, args: argparse.Namespace, target: str) -> None:
    from ptxdiff.emulator import trace

    first = [a[: args.pack] for a in arguments]
    traced = trace(
        form.text,
        form.constraints,
        first,
        dtypes,
        pack=args.pack,
        target=target,
        fuse=args.fusion,
        convention=form.convention,
        approximate=args.approximate,
    )
    for line in traced.lines:
        written = ", ".join(f"{n} = {_hex(v)}" for n, v in line.writes.items()) if line.executed else "not executed"
        read = ", ".join(f"{n} = {_hex(v)}" for n, v in line.reads.items())
        print(f"{line.line:>4}  {line.text:<60} {read}{' -> ' if read else ''}{written}")
    print()


def _hex(value: int | None) -> str:
    return "undefined" if value is None else f"{value:#x}"
