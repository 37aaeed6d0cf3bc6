"""`ptxdiff new`: a case file to start from."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli import UsageError
from harness.ours import ROOT

_TEMPLATE = '''"""{title}"""

import torch

from harness import Case, asm, ulp
from references.formats import F32


def reference(x):
    """What is right, bit for bit, from the specification: int64 codes in, int64 codes out."""
    raise NotImplementedError("write the reference, or use one of references/")


case = Case(
    inputs={{"x": F32}},
    outputs={{"y": F32}},
    reference=reference,
    variants={{
        # Operands are numbered outputs first. match=ulp(1) for an approximate instruction, with its source.
        "asm": asm("{instruction} $0, $1;"),
    }},
    source="PTX ISA, section of the instruction",
)
'''


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("name", help="the case's name: letters, digits and underscores")
    parser.add_argument("--folder", default="cases")
    parser.add_argument("--from", dest="example", metavar="EXAMPLE", help="copy an example: " + ", ".join(examples()))
    parser.add_argument("--instruction", default="rcp.rn.f32", help="the instruction to start with")


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
    return _TEMPLATE.format(title=f"{args.name}: what it computes.", instruction=args.instruction)


def examples() -> dict[str, Path]:
    """The case files that come with ptxdiff, by name: from `cases/` of a checkout, in a wheel beside this module."""
    for folder in (Path(__file__).parent / "examples", ROOT / "cases"):
        if folder.is_dir():
            return {p.stem: p for p in sorted(folder.glob("[!_]*.py"))}
    return {}
