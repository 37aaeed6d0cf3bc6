"""`ptxdiff list`: what there is to run."""

from __future__ import annotations

import argparse

from harness.cli import NAMES, UsageError, named, say


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("what", nargs="*", metavar="NAME", help=f"{NAMES} (default: cases)")
    parser.add_argument("--targets", action="store_true", help="list the targets that the installed Triton serves")

    parser.add_argument(
        "--references", action="store_true", help="list the functions of references, or of the modules named"
    )
    parser.add_argument("--formats", action="store_true", help="list the number formats of references.formats")


def main(args: argparse.Namespace) -> int:
    """Print one line a variant, or the tables that were asked for."""
    if args.references or args.formats:
        from harness.cli.index import formats, references

        for line in (*(formats() if args.formats else ()), *(references(args.what) if args.references else ())):
            say(line)
        return 0
    if args.targets:
        return _targets()
    from harness.model.describe import variant_info

    for chosen in named(args.what or ["cases"]):
        loaded, case = chosen.loaded, chosen.loaded.case
        ins = ", ".join(f"{n}: {a}" for n, a in case.inputs.items())
        outs = ", ".join(f"{n}: {a}" for n, a in case.outputs.items())
        say(f"{loaded.name}  ({ins}) -> ({outs})  {loaded.title}")
        for name in chosen.variants:
            info = variant_info(loaded, case.variants[name])
            packs = f"pack {', '.join(info.texts)}; " if info.kind == "asm" else ""
            expected = f"; expected failure: {info.expected_failure}" if info.expected_failure else ""
            say(f"    {name:<24} {info.kind:<7} {packs}{info.match}; ftz {info.ftz}; {info.targets}{expected}")
    return 0


def _targets() -> int:
    from harness.triton.installation import NoTriton
    from harness.triton.targets import probe

    try:
        table = probe()
    except NoTriton as e:
        raise UsageError(str(e)) from None
    for name, info in table.items():
        line = f"ptxas {info.ptxas}, PTX {info.ptx_version}" if info.available else f"not served: {info.words}"
        say(f"{name:<10} {line}")
    return 0
