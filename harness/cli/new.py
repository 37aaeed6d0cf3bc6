"""`ptxdiff new`: a case file to start from."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from harness.cli import UsageError
from harness.ours import ROOT

_TEMPLATE = '''"""{title}"""

from harness import Case, asm
from references.formats import F32


def reference({inputs}):
    """What is right, bit for bit, from the specification: int64 codes in, int64 codes out."""
    raise NotImplementedError("write the reference, or use one of references/")


case = Case(
    inputs={{{formats}}},
    outputs={{"y": F32}},
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
    parser.add_argument("--folder", default="cases")
    parser.add_argument("--from", dest="example", metavar="EXAMPLE", help="copy an example: " + ", ".join(examples()))
    parser.add_argument(
        "--instruction", default="rcp.rn.f32", metavar="TEXT",
        help="the instruction to start with, alone or with its operands: 'fma.rn.f32 $0, $1, $2, $3;'",
    )  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """Write the file, never over one that is there."""
    if not args.name.isidentifier():
        raise UsageError(f"{args.name!r} is no case name; use letters, digits and underscores")
    if args.name.startswith("_") or args.name == "conftest":
        raise UsageError(f"{args.name!r}: files called so are no case files; choose another name")
    path = Path(args.folder) / f"{args.name}.py"
    if path.exists():
        raise UsageError(f"{path} is there already")
    known = examples()
    if args.example and args.example not in known:
        raise UsageError(f"there is no example {args.example!r}; there are {', '.join(known)}")
    text = known[args.example].read_text(encoding="utf-8") if args.example else _template(args)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"{path}\nrun it: pytest {path}")
    return 0


def _template(args: argparse.Namespace) -> str:
    text = _with_operands(args.instruction)
    last = max((int(n) for n in re.findall(r"\$(\d+)", text)), default=1)
    inputs = ["x"] if last < 2 else [f"x{n}" for n in range(1, last + 1)]
    title, formats = f"{args.name}: what it computes.", ", ".join(f'"{n}": F32' for n in inputs)
    instruction = json.dumps(text, ensure_ascii=False)  # in double quotes
    return _TEMPLATE.format(title=title, instruction=instruction, inputs=", ".join(inputs), formats=formats)


def _with_operands(instruction: str) -> str:
    """The instruction as asm has it, operands and semicolon added where they are missing."""
    text = instruction.strip().rstrip(";").rstrip()
    if not text:
        raise UsageError("--instruction is empty; write one such as rcp.rn.f32")
    return f"{text};" if "$" in text else f"{text} $0, $1;"


def examples() -> dict[str, Path]:
    """The case files that come with ptxdiff, by name: from `cases/` of a checkout, in a wheel beside this module."""
    for folder in (Path(__file__).parent / "examples", ROOT / "cases"):
        if folder.is_dir():
            return {p.stem: p for p in sorted(folder.glob("[!_]*.py"))}
    return {}
