"""`ptxdiff new`: write a new case file from a template, or copy an example."""

from __future__ import annotations

import argparse
import ast
import json
import re
from pathlib import Path

from ptxdiff import options
from ptxdiff.cli import UsageError
from ptxdiff.locations import ROOT
from ptxdiff.suggestions import did_you_mean

_TEMPLATE = '''"""{title}"""

from ptxdiff import Case, asm
from ptxdiff.references.formats import {imported}


def reference({inputs}):
    """The right result, bit for bit, by the specification: int64 codes in, int64 codes out."""
    raise NotImplementedError("write the reference, or use one of references/")


case = Case(
{guess}    inputs={{{formats}}},
    outputs={{"y": {output}}},
    reference=reference,
    variants={{
        # Operands are numbered outputs first. An approximate instruction takes match=ulp(N, source="...").
        "asm": asm({instruction}),
    }},
    source="PTX ISA, section of the instruction",
)
'''


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("name", help="the case's name: letters, digits and underscores")
    options.formerly(parser, "--folder", options.add(parser, "cases"))
    parser.add_argument("--from", dest="example", metavar="EXAMPLE", help="copy an example: " + ", ".join(examples()))
    parser.add_argument(
        "--instruction", default="rcp.rn.f32", metavar="TEXT",
        help="the case's instruction, with or without operands: 'fma.rn.f32 $0, $1, $2, $3;' (default: %(default)s)",
    )  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """Write the file. Raises UsageError if it exists."""
    if not args.name.isidentifier():
        raise UsageError(f"{args.name!r} is no case name; use letters, digits and underscores")
    if args.name.startswith("_") or args.name == "conftest":
        raise UsageError(f"{args.name!r}: files of this name are not loaded as case files; choose another name")
    path = Path(args.cases) / f"{args.name}.py"
    if path.exists():
        raise UsageError(f"{path} exists already; choose another name, or delete the file")
    known = examples()
    if args.example and args.example not in known:
        hint = did_you_mean(args.example, known)
        raise UsageError(f"there is no example {args.example!r}{hint} (ptxdiff new --help lists all)")
    text = known[args.example].read_text(encoding="utf-8") if args.example else _template(args)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(path)
    for helper in helpers(known[args.example]) if args.example else []:
        beside = path.parent / helper.relative_to(known[args.example].parent)
        if not beside.exists():
            beside.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(helper.read_text(encoding="utf-8"), encoding="utf-8")
            print(beside)
    print(f"run it: pytest {path}")
    return 0


def _template(args: argparse.Namespace) -> str:
    text, output, formats, known = _with_operands(args.instruction)
    inputs = ["x"] if len(formats) < 2 else [f"x{n}" for n in range(1, len(formats) + 1)]
    return _TEMPLATE.format(
        title=f"{args.name}: what it computes.",
        guess="" if known else "    # The formats are not known from the instruction: set them.\n",
        imported=", ".join(sorted({output, *formats})),
        instruction=json.dumps(text, ensure_ascii=False),  # in double quotes
        inputs=", ".join(inputs),
        formats=", ".join(f'"{n}": {f}' for n, f in zip(inputs, formats, strict=True)),
        output=output,
    )


def _with_operands(instruction: str) -> tuple[str, str, list[str], bool]:
    """The instruction with operands and semicolon; the formats of the output and the inputs; whether they are known.

    If they are not known, all formats are F32.
    """
    text = instruction.strip().rstrip(";").rstrip()
    if not text:
        raise UsageError("--instruction is empty; write one such as rcp.rn.f32")
    known = _known(text.split()[0])
    if "$" not in text and known:
        operands, output, formats = known
        return f"{text} {', '.join(operands)};", output, formats, True
    text = f"{text};" if "$" in text else f"{text} $0, $1;"
    last = max((int(n) for n in re.findall(r"\$(\d+)", text)), default=1)
    if known and len(known[2]) == last:
        return text, *known[1:], True
    return text, "F32", ["F32"] * max(last, 1), False


def _known(spelling: str) -> tuple[list[str], str, list[str]] | None:
    """Operands, the output's format and the inputs' formats of an instruction with one result; None for others."""
    from ptxdiff.emulator import isa
    from ptxdiff.emulator.isa.forms import find
    from ptxdiff.references import formats

    isa.load()
    opcode, *modifiers = spelling.split(".")
    form = next(iter(find(opcode, tuple(modifiers))), None)
    if form is None or len(form.form.destinations) != 1 or any(o.vector or o.selector for o in form.form.operands):
        return None
    given = [o for o in form.form.operands if o.destination or not o.optional]
    types = [form.type_of(o) for o in given if not o.constant]
    names = [t.name.upper() if hasattr(formats, t.name.upper()) else f"U{t.width}" for t in types]
    if not all(hasattr(formats, n) for n in names):
        return None
    numbers = iter(range(len(given)))
    operands = ["0" if o.constant else f"${next(numbers)}" for o in given]
    if opcode == "cvt" and names[0].endswith("X2") and names[1:] == [names[1]] * 2:
        # One input of neighbouring elements: the first source operand goes to the upper half, so it is the second.
        return ["$0", "$2", "$1"], names[0].removesuffix("X2"), names[1:2]
    return operands, names[0], names[1:]


def helpers(example: Path) -> list[Path]:
    """The files that an example imports relatively, directly or indirectly, and the PTX files that any of them
    names."""
    files: list[Path] = []
    todo = [example]
    while todo:
        file = todo.pop()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(".ptx"):
                given = file.parent / node.value
                if given.is_file() and given not in files:
                    files.append(given)
            if isinstance(node, ast.ImportFrom) and node.level:
                target = file.parents[node.level - 1].joinpath(*(node.module or "").split(".")).with_suffix(".py")
                if target.is_file() and target not in files:
                    files.append(target)
                    todo.append(target)
    return sorted(files)


def examples() -> dict[str, Path]:
    """The example case files by name: in a wheel from the folder beside this module, else from `cases/`."""
    for folder in (Path(__file__).parent / "examples", ROOT / "cases"):
        if folder.is_dir():
            return {p.stem: p for p in sorted(folder.glob("[!_]*.py"))}
    return {}
