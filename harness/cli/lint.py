"""`ptxdiff lint`: find mistakes in the inline PTX of files, or of one snippet."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ptxdiff import options
from ptxdiff.cli import UsageError, say
from ptxdiff.extras import require
from ptxdiff.lint.settings import Configuration, Options, SettingsError, unknown_rule

if TYPE_CHECKING:
    from ptxdiff.lint.files import Report
    from ptxdiff.lint.snippet import Snippet

_EPILOG = """\
examples: ptxdiff lint src/ kernels.cu
          ptxdiff lint --asm 'add.f32 $0, $1, $2;' --constraints '=f,f,f' --output float32
          ptxdiff lint --fix src/            # shows the repairs
          ptxdiff lint --fix --write src/    # makes the repairs
          ptxdiff lint --lsp                 # a language server, for editors
Python is parsed and never imported; of C++ and CUDA files only asm statements are read. A comment silences a rule:
# ptxdiff: ignore[rule] in Python, // ptxdiff: ignore[rule] in C++ and within asm; without [rule] all rules on its line.
Settings are those of [tool.ptxdiff.lint] in the nearest pyproject.toml above each file.
Exit codes: 0 nothing or only notes found, 1 errors or warnings found, 2 wrong usage.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files and folders; - is a snippet on standard input")
    parser.add_argument("--asm", help="the text of one snippet")
    options.add(parser, "constraints", "the snippet's constraints")
    options.add(parser, "pack", "elements per call of the snippet (default: 1)", default=1)
    output = options.add(
        parser, "output", "the dtype of each result (repeatable)", action="append", default=[], metavar="DTYPE"
    )
    options.formerly(parser, "--dtype", output)
    options.add(parser, "input", "the dtype of each argument (repeatable)", metavar="DTYPE")
    options.add(parser, "convention", "the snippet's spelling of operands", default="triton")
    parser.add_argument("--impure", action="store_true", help="the snippet has side effects (is_pure=False, volatile)")
    options.add(parser, "target", "a target that must run all (repeatable)", default=[])
    options.add(parser, "format", choices=("text", "json", "sarif", "github"), default="text")
    parser.add_argument("--select", action="append", default=[], metavar="RULE,...", help="only these rules")
    parser.add_argument("--ignore", action="append", default=[], metavar="RULE,...", help="all rules except these")
    parser.add_argument("--isolated", action="store_true", help="read no settings from pyproject.toml")
    parser.add_argument(
        "--force-exclude", action="store_true", help="apply the exclude setting to the paths given here, too"
    )
    options.add(parser, "baseline", "report only findings that are not in this baseline", metavar="FILE")
    parser.add_argument("--write-baseline", action="store_true", help="write all findings into the file of --baseline")
    parser.add_argument("--fix", action="store_true", help="show repairs as a diff")
    options.add(parser, "write", "with --fix: make the repairs")
    parser.add_argument("--lsp", action="store_true", help="be a language server on standard input and output")
    options.add(parser, "jobs", "processes (default: one for each CPU)", type=int, default=0)
    parser.add_argument("--explain", metavar="RULE", help="print the page of a rule")
    parser.add_argument("--rules", action="store_true", help="list all rules")
    options.add(parser, "verbose", "list every place that could not be checked", action="store_true", default=False)


def main(args: argparse.Namespace) -> int:
    """Lint, and print the findings. Returns 1 for errors or warnings, else 0."""
    if args.explain or args.rules:
        return _explain(args.explain)
    configuration = _configuration(args)
    if args.lsp:
        return _serve(args, configuration.options)
    _check(args)
    try:
        snippet = _snippet(args)
        report = _snippet_report(snippet, configuration) if snippet else _report(args, configuration)
        if args.fix:
            _fix(args, snippet, report, configuration)
            if args.write:
                report = _report(args, configuration)
        if args.baseline is not None:
            _baseline(args, report)
    except SettingsError as error:
        raise UsageError(str(error)) from None
    _print(args, report)
    return int(any(f.severity != "note" for f in report.findings))


def _serve(args: argparse.Namespace, options: Options) -> int:
    """Be a language server until the editor ends the session."""
    given = {"paths": args.paths, "--asm": args.asm, "--baseline": args.baseline, "--fix": args.fix}
    if other := [name for name, value in given.items() if value]:
        raise UsageError(f"--lsp reads documents from an editor; give no {other[0]} with it")
    _check_targets(args)
    require("pygls", "lsprotocol", purpose="--lsp")
    from ptxdiff.lint.server import serve

    serve(options)
    return 0


def _explain(name: str | None) -> int:
    from ptxdiff.lint.rules import page, rules

    known = rules()
    if name is None:
        for rule in known.values():
            say(f"{rule.name:<28} {rule.severity:<8} {rule.summary}")
        return 0
    if name not in known:
        raise UsageError(unknown_rule(name))
    say(page(name))
    return 0


def _configuration(args: argparse.Namespace) -> Configuration:
    """What the options say about rules, targets and settings. Raises UsageError."""
    selected, ignored = (
        tuple(name.strip() for names in option for name in names.split(",")) for option in (args.select, args.ignore)
    )
    targets = tuple(args.target)
    try:
        return Configuration(Options(selected or None, ignored, targets, args.isolated, args.force_exclude))
    except SettingsError as error:
        raise UsageError(str(error)) from None


def _check_targets(args: argparse.Namespace) -> None:
    from ptxdiff.emulator import PtxError, Target
    from ptxdiff.model.targets import written

    try:
        args.target = [written(target) for target in args.target]
        for target in args.target:
            Target.parse(target)
    except (PtxError, ValueError) as e:
        raise UsageError(f"--target: {e}") from None


def _check(args: argparse.Namespace) -> None:
    _check_targets(args)
    if args.jobs < 0:
        raise UsageError(f"--jobs must be a number of processes, or 0 for one for each CPU; found {args.jobs}")
    if args.write and not args.fix:
        raise UsageError("--write makes the repairs that --fix shows; give both")
    if args.write_baseline and args.baseline is None:
        raise UsageError("--write-baseline writes the file of --baseline FILE; give both")
    alone = args.asm is not None or args.paths == ["-"]
    if alone and args.baseline is not None:
        raise UsageError("--baseline belongs to files and folders, not to one snippet")
    if "-" in args.paths and args.paths != ["-"]:
        raise UsageError("- reads one snippet from standard input; give no other path with it")
    if args.asm is not None and args.paths:
        raise UsageError("--asm gives one snippet; give either --asm or paths")
    if alone and args.constraints is None:
        raise UsageError("a snippet needs its --constraints, such as '=f,f,f'")
    if not alone and (args.constraints is not None or args.output or args.input):
        raise UsageError("--constraints, --output and --input belong to a snippet (--asm, or -)")
    if not alone and not args.paths:
        raise UsageError("give files or folders, or a snippet with --asm")
    for path in args.paths:
        if path != "-" and not Path(path).exists():
            raise UsageError(f"there is no file or folder {path}")
        if path != "-" and Path(path).is_file():
            from ptxdiff.lint.extract import SUFFIXES

            if Path(path).suffix.lower() not in SUFFIXES:
                raise UsageError(f"{path}: lint reads only files that end in {', '.join(sorted(SUFFIXES))}")


def _snippet(args: argparse.Namespace) -> Snippet | None:
    """The snippet on the command line or standard input; None if paths are given. Raises UsageError."""
    if args.asm is None and args.paths != ["-"]:
        return None
    from ptxdiff.lint.extract.calls import dtype_name
    from ptxdiff.lint.extract.values import TextValue
    from ptxdiff.lint.snippet import Snippet

    text = args.asm if args.asm is not None else sys.stdin.read()
    for name in [*args.output, *args.input]:
        if dtype_name(TextValue.plain(name)) is None:
            raise UsageError(f"no dtype is called {name!r}; use one such as float32, bfloat16 or uint8")
    dtypes = [tuple(dtype_name(TextValue.plain(n)) for n in names) or None for names in (args.output, args.input)]
    pure = False if args.impure else True if args.convention != "cuda" else None
    return Snippet(
        text, args.constraints, args.convention, pure, args.pack, dtypes[0], dtypes[1], targets=tuple(args.target)
    )


def _snippet_report(snippet: Snippet, configuration: Configuration) -> Report:
    """The findings of one snippet, under the settings of the working directory."""
    from ptxdiff.lint.engine import lint
    from ptxdiff.lint.files import Report

    here = Path.cwd() / "snippet"
    snippet = replace(snippet, targets=configuration.targets(here))
    findings = lint(snippet, configuration.selection(here).rules)
    return Report(findings=findings, snippets=1, settings=configuration.files)


def _report(args: argparse.Namespace, configuration: Configuration) -> Report:
    from ptxdiff.lint.files import lint_paths

    return lint_paths([Path(p) for p in args.paths], configuration, args.jobs)


def _baseline(args: argparse.Namespace, report: Report) -> None:
    """Take the baseline's findings out of the report; with --write-baseline, write it first."""
    from ptxdiff.lint.baseline import LintBaseline, read_baseline

    if args.write_baseline:
        old = read_baseline(args.baseline) if Path(args.baseline).exists() else LintBaseline(args.baseline)
        baseline = old.updated(report)
        try:
            baseline.write()
        except OSError as error:
            raise UsageError(f"--baseline {args.baseline} cannot be written: {error.strerror}") from None
        number = sum(each.count for each in baseline.entries)
        say(f"{args.baseline}: {number} known findings", sys.stdout if args.format == "text" else sys.stderr)
    else:
        baseline = read_baseline(args.baseline)
    baseline.apply(report)


def _print(args: argparse.Namespace, report: Report) -> None:
    from ptxdiff.lint import outputs

    if args.format == "text":
        print(outputs.text(report, args.verbose))
    else:
        print({"json": outputs.as_json, "sarif": outputs.sarif, "github": outputs.github}[args.format](report))


def _fix(args: argparse.Namespace, snippet: Snippet | None, report: Report, configuration: Configuration) -> None:
    """Show the repairs, and with --write make them. For formats other than text they go to standard error."""
    from ptxdiff.lint.extract import decoded
    from ptxdiff.lint.fixes import fixed_snippet, repaired

    out = sys.stdout if args.format == "text" else sys.stderr
    if snippet is not None:
        for finding in report.findings:
            if finding.fix:
                fixed = fixed_snippet(snippet, finding.fix)
                say(f"{finding.rule}: {finding.fix.words}:\n{fixed.asm}\n{fixed.constraints}", out)
        return
    for path in dict.fromkeys(f.path for f in report.findings if f.fix):
        source = decoded(path, Path(path).read_bytes())
        result = repaired(path, source.text, configuration.selection(Path(path)), configuration.targets(Path(path)))
        say(result.diff(), out)
        for finding in result.refused:
            say(f"{path}:{finding.line}: [{finding.rule}] cannot be repaired mechanically here; do it by hand", out)
        if args.write and result.after != source.text:
            if source.newline is None:
                say(f"{path}: not written: its lines end in different ways; make them equal first", out)
            else:
                Path(path).write_bytes(source.encoded(result.after))
