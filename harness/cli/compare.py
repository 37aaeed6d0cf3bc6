"""`ptxdiff compare`: list what changed between two runs or targets, or tell whether two PTX files, or two cubins of one
kernel, give equal bits.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ptxdiff import options
from ptxdiff.cli import UsageError, say

_EPILOG = """\
example: ptxdiff compare before.ptx after.ptx --like cases/cuda_fma.py::cuda --report build/compare.html
Two PTX files of one kernel run in the emulator on the inputs of a case. Their outputs are compared with each other bit
for bit, and each with the case's reference. If they differ, both run in lockstep on the thread that stores the first
difference, and the first instructions with different values are shown. Exit code 0: equal, and right by the reference.
Kernels of nvcc and of Triton differ in blocks and parameters, so --like, --entry, --grid, --block, --parameters and
--shared may be given once for both files, or twice: for the first file, then for the second.
Two cubins of a variant's kernel, by two releases or levels of ptxas, run as machine code on the CPU:
ptxdiff compare O0.cubin O3.cubin --like cases/x.py::variant --target sm_90a
"""
PTX = ".ptx"
CUBIN = ".cubin"
PTX_OPTIONS = ("like", "entry", "grid", "block", "parameters", "shared", "target", "effort", "report")


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("before", help="a records file, a folder (its newest run is used), or a PTX file")
    parser.add_argument(
        "after", nargs="?",
        help="another of the same kind (default: the two newest runs of a folder; with --between, the first again)",
    )  # fmt: skip
    between = parser.add_argument(
        "--between", nargs=2, metavar=("X", "Y"), help="compare target X of the first run with target Y of the second"
    )
    options.formerly(parser, "--targets", between)
    parser.add_argument("--kind", action="append", help="show differences of this kind only (repeatable)")
    parser.add_argument("-v", "--verbose", action="store_true", help="print each difference on a line of its own")
    files = parser.add_argument_group("two PTX files")
    files.add_argument(
        "--like",
        action="append",
        metavar="CASE",
        help="the case with the inputs and the reference: cases/x.py::variant",
    )
    files.add_argument(
        "--entry", action="append", metavar="NAME",
        help="the kernel, if a file has several; give it twice if the names in the two files differ",
    )  # fmt: skip
    files.add_argument(
        "--grid", action="append", metavar="X,Y,Z", help="blocks: numbers or expressions such as ceil(n/256)"
    )
    files.add_argument("--block", action="append", metavar="X,Y,Z", help="threads per block")
    files.add_argument(
        "--parameters", action="append", metavar="A,B,...", help="inputs, outputs, sizes or numbers, in order"
    )
    files.add_argument("--shared", action="append", type=int, metavar="BYTES", help="dynamic shared memory")
    options.add(files, "target", "default: the later target of the two files", action=None)
    options.add(files, "effort", "how many inputs (default: quick)", choices=("quick", "full"), default=None)
    options.add(files, "report", "write the comparison as an HTML page")


def main(args: argparse.Namespace) -> int:
    """Print the differences. Returns 0 if results were compared and there are none, else 1."""
    ptx = [name for name in (args.before, args.after) if name is not None and name.endswith(PTX)]
    if str(args.before).endswith(CUBIN):
        return _cubins(args)
    given = [o for o in PTX_OPTIONS if getattr(args, o) is not None]
    if not ptx:
        if given:
            raise UsageError(f"--{given[0]} is for two PTX files; the name {args.before} does not end in {PTX}")
        return _records(args)
    if len(ptx) < 2:
        other = args.before if args.after in ptx else args.after
        second = f"{other} is not" if other else "no second file is given"
        raise UsageError(f"{ptx[0]} is a PTX file, but {second}; compare two PTX files, or two files of records")
    if args.between or args.kind:
        raise UsageError(f"--{'between' if args.between else 'kind'} is for records; {ptx[0]} is a PTX file")
    if args.like is None:
        raise UsageError("name the case that has the files' inputs and reference: --like cases/x.py::variant")
    return _files(args)


def _records(args: argparse.Namespace) -> int:
    from ptxdiff.model.targets import normal
    from ptxdiff.records import RecordError, read, record_files, runs_of
    from ptxdiff.records.compare import KINDS, CompareError, compare, grouped

    unknown = [k for k in args.kind or [] if k not in KINDS]
    if unknown:
        raise UsageError(f"no kind of difference is called {unknown[0]!r}; there are {', '.join(KINDS)}")
    for name in (args.before, args.after):
        if name is not None and (name.endswith(".py") or "::" in name):
            raise UsageError(
                f"{name} names a case, and compare takes two runs' records, or two {PTX} files with whole kernels. "
                "Two pieces of asm are compared as variants of one case: ptxdiff run compares each with the reference"
            )
    before, after = Path(args.before), Path(args.after or args.before)
    if args.after is None and not args.between:
        if len(record_files(before)) < 2:
            raise UsageError(
                "give a second run, a folder with two runs, or two targets of one run: "
                "ptxdiff compare A --between sm_90a sm_100a"
            )
        try:
            before, after = runs_of(before)[-2:]
        except RecordError as e:
            raise UsageError(str(e)) from None
        say(f"{before.name} → {after.name}")
    try:
        before, after = run_file(before), run_file(after)
        targets = (normal(args.between[0]), normal(args.between[1])) if args.between else None
        runs = read(before), read(after)
        comparison = compare(*runs, targets=targets)
    except (RecordError, CompareError, ValueError) as e:
        raise UsageError(str(e)) from None
    for name, (old, new) in comparison.environment.items():
        say(f"  {name}: {old} → {new}")
    shown = comparison.of(*args.kind) if args.kind else list(comparison.differences)
    for line in map(str, shown) if args.verbose else grouped(shown):
        say(line)
    for path, run in zip((before, after), runs, strict=True):
        if run.end is None:
            say(f"{path}: the run was cut short: what it lacks was not compared, so the exit code is 1")
    say(f"{comparison.matched} results in both, {comparison.equal} of them equal; {len(shown)} differences")
    if not comparison.ran:
        say(f"{'nothing ran in either' if comparison.matched else 'no result is in both'}, so nothing was compared")
    whole = all(run.end is not None for run in runs)
    return 0 if comparison.ran and whole and not shown else 1


def run_file(path: Path) -> Path:
    """The records file that a name means: of a folder its newest, which is said. Raises RecordError."""
    from ptxdiff.records import newest_file, record_files

    if not path.is_dir():
        return path
    chosen, runs = newest_file(path), len(record_files(path))
    say(f"{path}: {chosen.name}" + (f", the newest of {runs} runs" if runs > 1 else ""))
    return chosen


def _cubins(args: argparse.Namespace) -> int:
    """Compare two cubins on the inputs of a variant. Returns 0 if they give equal bits."""
    from ptxdiff.cli import named
    from ptxdiff.comparing.files import compare_cubins
    from ptxdiff.model.naming import agreed
    from ptxdiff.model.targets import normal
    from ptxdiff.model.variants import CaseError

    if not str(args.after).endswith(CUBIN) or not args.like or len(args.like) != 1:
        raise UsageError(f"give two files that end in {CUBIN}, and the variant whose kernel they hold, once: --like")
    try:
        cubins = Path(args.before).read_bytes(), Path(args.after).read_bytes()
        chosen = [(c.loaded, v, c.target) for c in named(args.like) for v in c.variants]
        if len(chosen) != 1:
            raise UsageError(f"--like={args.like[0]}: name one variant")
        loaded, variant, target = chosen[0]
        target = agreed("--target", normal(args.target) if args.target else None, target) or "sm_90a"
        comparison = compare_cubins(loaded, variant, target, cubins, args.effort or "quick")
    except (OSError, CaseError, ValueError) as e:
        raise UsageError(str(e)) from None
    if comparison.refused:
        say(f"not compared: {comparison.refused}")
        return 1
    say(comparison.words or f"equal bits in {comparison.runs} launches of {loaded.name}::{variant} for {target}")
    return bool(comparison.words)


def _files(args: argparse.Namespace) -> int:
    from ptxdiff.comparing.files import compare_files, message
    from ptxdiff.comparing.launch import launches
    from ptxdiff.model.variants import CaseError

    try:
        loaded, variants, target = launches(
            (args.before, args.after), args.like, args.entry or (), grid=args.grid or (), block=args.block or (),
            parameters=args.parameters or (), shared=args.shared or (), target=args.target,
        )  # fmt: skip
        comparison = compare_files(loaded, variants, target, args.effort or "quick")
    except CaseError as e:
        raise UsageError(str(e)) from None
    say(message(comparison))
    if args.report:
        from ptxdiff.comparing.files import facts
        from ptxdiff.reports.comparison import write

        written = write(facts(comparison, {name: v.text for name, v in variants.items()}), Path(args.report))
        say(f"report: {written.resolve()}")
    return 0 if comparison.passed else 1
