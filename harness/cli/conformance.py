"""`ptxdiff conformance`: print the ledger of instruction forms, or measure forms on the GPU here."""

from __future__ import annotations

import argparse
import ast
import json
import math
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptxdiff import options
from ptxdiff.cli import UsageError

if TYPE_CHECKING:
    from ptxdiff.conformance.fetch import CudaContext
    from ptxdiff.conformance.ledger import Entry, Ledger
    from ptxdiff.conformance.measure import Tally

INPUTS, TILES = 1 << 28, 1 << 20
"""The default number of inputs of a form, and of tiles of a matrix product."""

_EPILOG = """\
examples: ptxdiff conformance cvt              the forms of one opcode
          ptxdiff conformance 'cvt.*.e4m3x2.*' the forms that a pattern matches
          ptxdiff conformance --summary        the number of forms with each status, by opcode
          ptxdiff conformance ex2              with the largest errors over all inputs, and a plot of them
          ptxdiff conformance ex2 --plot ex2.svg
          ptxdiff conformance --device --seconds 300 --write
          ptxdiff conformance mma wgmma --device --inputs 2**20 --seconds 500 --write --resume
          ptxdiff conformance --teach sequences --target sm_90a --write
          ptxdiff conformance --fit rsqrt      coefficients of the special function unit of the GPU here
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("forms", nargs="*", help="opcodes, forms, or patterns of forms (default: all)")
    parser.add_argument("--status", action="append", default=[], help="only forms with this status (repeatable)")
    parser.add_argument("--summary", action="store_true", help="counts by opcode only")
    form = options.add(
        parser, "format", "json prints runs, counts and entries", choices=("text", "json"), default="text"
    )
    options.formerly(parser, "--json", form, "json")
    options.add(parser, "ledger", type=Path)
    parser.add_argument(
        "--device",
        action="store_true",
        help="measure on the GPU here and report what changed; with --teach: run the same machine code there, too",
    )
    parser.add_argument(
        "--errors", action="store_true", help="compute approximate forms' largest errors over all inputs (minutes each)"
    )
    options.add(parser, "write", "with --device or --errors: write the result to the ledger file")
    parser.add_argument(
        "--teach", choices=("forms", "sequences", "programs"),
        help="run what ptxas makes of PTX forms, or of short sequences, and compare: which machine instructions are "
        "believed (with --target; default: the targets in the ledger of machine instructions); programs: random ones, "
        "which teach those that move data or order threads",
    )  # fmt: skip
    options.add(parser, "target", "with --teach: a target (repeatable)", default=[])
    parser.add_argument(
        "--contexts", type=int, metavar="N",
        help="with --teach forms: only as many forms as bring each machine instruction into N kernels (minutes; all "
        "forms take much longer)",
    )  # fmt: skip
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="write a plot of errors by exponent (.svg, .png, .html)"
    )
    parser.add_argument(
        "--fit", metavar="FUNCTION", help="fit the special function unit of the GPU here: rcp, rsqrt, sqrt, ex2, ..."
    )
    options.add(parser, "seconds", "with --device: time for all forms (default: 600)", default=600.0)
    parser.add_argument(
        "--inputs", type=_count, metavar="N",
        help="with --device: the most inputs of a form, such as 2**30 (default: 2**28; for matrix products the number "
        "of tiles, default: 2**20)",
    )  # fmt: skip
    options.add(
        parser, "resume", "with --device: for matrix products, only the tiles that this device has not confirmed yet"
    )
    for name, default, help_text in (
        ("--everything", "2**32", "forms with at most so many inputs run on all of them"),
        ("--emulated", "2**20", "the number of these inputs that also run through the whole emulator"),
    ):
        help_text = f"with --device: {help_text} (default: {default})"
        parser.add_argument(name, type=_count, default=_count(default), metavar="N", help=help_text)
    jobs = options.add(parser, "jobs", "with --device: processes (default: one per core)", type=int)
    options.formerly(parser, "--workers", jobs)


def _count(text: str) -> int:
    """A number such as 1048576, 2**20 or 2^20."""
    base, power, exponent = text.replace("^", "**").partition("**")
    try:
        value = int(base) ** int(exponent) if power else int(ast.literal_eval(base))
    except (ValueError, SyntaxError):
        raise argparse.ArgumentTypeError(f"{text!r} is no number; write 1048576 or 2**20") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give at least 1")
    return value


def main(args: argparse.Namespace) -> int:
    """Print the ledger, or what a measurement changed. Returns 1 if it found a new mismatch, else 0."""
    from ptxdiff.conformance import ledger

    path = args.ledger or ledger.PATH
    if args.write and not (args.device or args.errors or args.teach):
        raise UsageError("--write writes what --device, --errors or --teach found: add one of these")
    if args.teach == "programs":
        return _teach_moves(args)
    if args.teach:
        return _teach(args)
    if args.fit:
        return _fit(args.fit)
    try:
        book = ledger.read(path)
    except ledger.LedgerError as e:
        raise UsageError(str(e)) from None
    unknown = [s for s in args.status if s not in ledger.STATUSES]
    if unknown:
        raise UsageError(f"no status is called {unknown[0]!r}; give one of {', '.join(ledger.STATUSES)}")
    entries = _chosen(ledger.current(book), args)
    if args.device:
        return _measure(args, book, entries, path)
    if args.errors:
        entries = _computed(args, book, entries, path)
    if args.plot:
        write(args.plot, {form: e.errors for form, e in entries.items() if e.errors.get("profile")})
    _print(args, book, entries)
    return 0


def _computed(args: argparse.Namespace, book: Ledger, entries: Mapping[str, Entry], path: Path) -> dict[str, Entry]:
    """The entries with newly computed largest errors. Writes the ledger after each form, because each takes minutes."""
    from rich.console import Console

    from ptxdiff.conformance import bounds, errors, ledger

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    errors_by_form: dict[str, Mapping[str, Any]] = {}
    known: dict[tuple[str, str], Mapping[str, Any]] = {}
    for form in filter(errors.measurable, entries):
        # Forms with one definition, such as sin.approx and sin.approx.ftz, are computed once.
        same = (ledger.digest(form), bounds.bound(form))
        if same not in known:
            known[same] = errors.errors_of(form).json()
        errors_by_form[form] = known[same]
        console.print(f"{form}: {'; '.join(errors.described(form, errors_by_form[form]))}", markup=False)
        if args.write:
            after = ledger.with_errors(book, errors_by_form)
            path.write_text(after.text(), encoding="utf-8")
            if form not in after.entries or after.entries[form].errors != errors_by_form[form]:
                message = f"{form}: not written, because this definition was not measured; measure it with --device"
                console.print(message, markup=False)
    return {form: replace(e, errors=errors_by_form.get(form, e.errors)) for form, e in entries.items()}


def _teach_moves(args: argparse.Namespace) -> int:
    """Teach the machine instructions that have no row in the table. Returns 1 if one now differs."""
    from ptxdiff.conformance import taught
    from ptxdiff.fuzz import lessons

    if args.device:
        raise UsageError("--teach programs runs on the CPU alone: leave out --device")
    text = taught.MOVES.read_text(encoding="utf-8") if taught.MOVES.exists() else ""
    for target in _taught_here(args, text):
        text = lessons.taught_again(target, text, print)
    entries = [json.loads(line) for line in text.splitlines()]
    differing = [f"{e['target']} {e['form']}" for e in entries if e["differed"]]
    print(f"{len(entries)} moves, {len(differing)} of them differ", *differing)
    if args.write:
        taught.MOVES.write_text(text, encoding="utf-8")
    return bool(differing)


def _teach(args: argparse.Namespace) -> int:
    """Teach the machine instructions of targets; print what did not agree. Returns 1 if a form now differs."""
    from ptxdiff.conformance import forms, sequences, taught, teaching

    text = taught.PATH.read_text(encoding="utf-8")
    device = _device() if args.device else None
    targets = _taught_here(args, text)
    if device is not None:
        targets = [t for t in targets if t == device.target]
        if not targets:
            raise UsageError(f"--device: the GPU here is {device.name}, which runs {device.target}; name that target")
    every = list(sequences.SEQUENCES) if args.teach == "sequences" else list(forms.bounds_of())
    names = [n for n in every if any(_matches(n, wanted) for wanted in args.forms)]
    if args.forms and not names:
        raise UsageError(f"nothing that teaches matches {args.forms[0]!r}; give an opcode (cvt) or a pattern")
    for target in targets:
        some = names or None
        if args.contexts and args.teach == "forms":
            some = teaching.few(names or every, target, args.contexts)
        text = teaching.taught_again(args.teach, target, text, print, device, some)
    entries = [json.loads(line) for line in text.splitlines()]
    differing = sorted({f"{e['target']} {e['form']}" for e in entries if e["differed"] or e.get("refuted")})
    confirmed = {e["form"] for e in entries if e.get("confirmed") and e["target"] in targets}
    confirmation = f"; {device.name} gave the interpreter's words for {len(confirmed)}" if device is not None else ""
    print(
        f"{len({(e['target'], e['form']) for e in entries})} forms, {len(differing)} of them differ{confirmation}",
        *differing,
    )
    if args.write:
        taught.PATH.write_text(text, encoding="utf-8")
    return bool(differing)


def _taught_here(args: argparse.Namespace, ledger: str) -> list[str]:
    """The targets to teach: those that the user names, else those of a ledger whose machine code can be read here.

    Raises UsageError for a named one that cannot be read.
    """
    from ptxdiff.model.targets import normal
    from ptxdiff.triton.unread import unread

    chosen = [normal(t) for t in args.target]
    kept = []
    for target in chosen or list(dict.fromkeys(json.loads(line)["target"] for line in ledger.splitlines())):
        if reason := unread(target):
            if chosen:
                raise UsageError(reason)
            print(f"{target} is left out: {reason}")
        else:
            kept.append(target)
    return kept


def _device() -> CudaContext:
    """The GPU here. Raises UsageError without one."""
    from ptxdiff.conformance.fetch import CudaContext, NoDevice

    try:
        return CudaContext()
    except NoDevice as e:
        raise UsageError(str(e)) from None


def _fit(name: str) -> int:
    """Print the coefficients of a function of the GPU's special function unit. Returns 1 if the design differs."""
    from ptxdiff.conformance import fit
    from ptxdiff.conformance.fetch import Hardware, NoDevice
    from ptxdiff.triton.builds import NoTriton

    if name not in fit.DESIGNS:
        raise UsageError(
            f"--fit: {name!r} is no function that can be fitted; give one of {', '.join(fit.DESIGNS)} (cos has sin's "
            "table)"
        )
    try:
        device = Hardware()
        table = fit.on_device(name, device)
    except (NoDevice, NoTriton) as e:
        raise UsageError(str(e)) from None
    except fit.Misfit as e:
        print(f"{name} of this GPU has another design: {e}")
        return 1
    print(table.text(name))
    alone = "and no other coefficients of these widths do" if table.unique else "and so do others of these widths"
    print(
        f"# {device.identity.device}: {len(table.constant)} segments give {table.results:,} results, {alone}; "
        f"{table.rounding} is added to every sum."
    )
    print(
        f"# {'The same as' if table.same_as(name) else 'Differs from'} the table in harness/emulator/numeric/hopper.py."
    )
    return 0


def _chosen(entries: Mapping[str, Entry], args: argparse.Namespace) -> dict[str, Entry]:
    for wanted in args.forms:
        if not any(_matches(form, wanted) for form in entries):
            raise UsageError(f"no instruction form matches {wanted!r}; give an opcode (cvt) or a pattern ('cvt.rn.*')")
    return {
        form: entry
        for form, entry in entries.items()
        if (not args.forms or any(_matches(form, wanted) for wanted in args.forms))
        and (not args.status or entry.status in args.status)
    }


def _matches(form: str, wanted: str) -> bool:
    return form.split(".")[0] == wanted or fnmatchcase(form, wanted)


def _measure(args: argparse.Namespace, book: Ledger, entries: Mapping[str, Entry], path: Path) -> int:
    from rich.console import Console

    from ptxdiff.conformance import campaign, forms, ledger, product_campaign, product_forms
    from ptxdiff.conformance.fetch import NoDevice
    from ptxdiff.triton.builds import NoTriton

    console = Console(stderr=True, highlight=False)
    tiles, ends = args.inputs or TILES, time.monotonic() + args.seconds
    of_matrices = [form for form in entries if form in product_forms.bounds_of()]
    snippets = [form for form in entries if form in forms.bounds_of()]
    seconds = args.seconds / 2 if snippets and of_matrices else args.seconds
    plan = campaign.Plan(seconds, args.inputs or INPUTS, args.everything, args.emulated)
    if args.resume:
        of_matrices = product_campaign.left_to_do(of_matrices, tiles, entries)
    written = time.monotonic()

    def keep(tally: Tally) -> None:
        """Keep a tally, and write the ledger every 30 s, so that an interrupted run loses little."""
        nonlocal written
        outcome.tallies[tally.form] = [tally]
        if args.write and time.monotonic() > written + 30:
            path.write_text(ledger.updated(book, outcome, date.today()).text(), encoding="utf-8")
            written = time.monotonic()

    try:
        outcome = campaign.run(snippets, plan, workers=args.jobs, progress=console.print)
        if of_matrices:
            product_campaign.campaign(
                of_matrices, tiles, outcome.identity.target, seconds=ends - time.monotonic(), workers=args.jobs,
                progress=console.print, found=keep,
                before=product_campaign.before_of(of_matrices, outcome.identity, book) if args.resume else {},
            )  # fmt: skip
    except (NoDevice, NoTriton) as e:
        raise UsageError(str(e)) from None
    after = ledger.updated(book, outcome, date.today())
    measured = {form: after.entries[form] for form in outcome.tallies}
    changed = ledger.changes(entries, measured)
    new = [form for form, (had, now) in changed.items() if now.status == ledger.MISMATCH]
    if args.format == "json":
        print(json.dumps({"changed": [now.json() for _, now in changed.values()], "measured": len(measured)}))
    else:
        _print_changes(changed, measured)
    if args.write:
        path.write_text(after.text(), encoding="utf-8")
        console.print(f"{path} written: {len(after.entries)} forms", markup=False)
    return 1 if new else 0


def _print_changes(changed: Mapping[str, tuple[Entry | None, Entry]], measured: Mapping[str, Entry]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.print(f"{len(changed)} of {len(measured)} measured forms changed")
    for form, (had, now) in sorted(changed.items(), key=lambda c: (c[1][1].status != "mismatch", c[0])):
        console.print(f"{form}  {_status(now)}, before {_status(had) if had else 'not in the ledger'}", markup=False)
        for line in _details(now, console.width):
            console.print(line, markup=False, soft_wrap=True)
    console.print(_counts(measured))


def _print(args: argparse.Namespace, book: Ledger, entries: Mapping[str, Entry]) -> None:
    from rich.console import Console

    if args.format == "json":
        counts = Counter(e.status for e in entries.values())
        facts = {"runs": {n: vars(r) for n, r in book.runs.items()}, "counts": counts}
        print(json.dumps(facts | {"forms": [e.json() for e in entries.values()]}))
        return
    console = Console(highlight=False)
    if args.summary:
        console.print(_by_opcode(entries))
    else:
        for line in _lines(entries.values(), console.width):
            console.print(line, markup=False, soft_wrap=True)
    for name, run in book.runs.items():
        if any(e.run == name for e in entries.values()):
            heading = f"run {name}: {run.device}, {run.target}, driver {run.driver}, ptxas {run.ptxas}, {run.date}"
            console.print(heading, markup=False)
    console.print(_counts(entries))


def _lines(entries: Iterable[Entry], width: int) -> Iterator[str]:
    """Each form with its status, and below it the evidence, wrapped to the width of the terminal."""
    for e in entries:
        yield f"{e.form}  {_status(e)}"
        yield from _details(e, width)


def _details(e: Entry, width: int) -> Iterator[str]:
    tried = f"{'all ' * e.exhaustive}{e.inputs:,} inputs, {e.mismatches:,} mismatches (run {e.run})" if e.inputs else ""
    bounds = (f"ISA bound {e.bound}" * bool(e.bound), f"measured so {e.envelope}" * bool(e.envelope))
    scope = (
        "for sm_90 targets; for other targets a model with these bits"
        if _approximate(e) and e.status == "confirmed"
        else ""
    )
    text = "; ".join(filter(None, (tried, scope, *bounds, _remark(e))))
    yield from textwrap.wrap(text, max(width, 40), initial_indent="    ", subsequent_indent="    ")
    if e.errors:
        from ptxdiff.conformance import errors

        for line in errors.described(e.form, e.errors):
            sentence = f"largest error {line}"
            yield from textwrap.wrap(sentence, max(width, 40), initial_indent="    ", subsequent_indent="    ")
        yield from (f"    {line}" for line in lines(e.errors))


def _approximate(e: Entry) -> bool:
    from ptxdiff.conformance.ledger import known

    return e.form in known() and known()[e.form].form.approximate


def _by_opcode(entries: Mapping[str, Entry]) -> Any:
    from rich.table import Table

    from ptxdiff.conformance.ledger import STATUSES

    table = Table("opcode", *STATUSES)
    opcodes = sorted({form.split(".")[0] for form in entries})
    for opcode in opcodes:
        counts = Counter(e.status for f, e in entries.items() if f.split(".")[0] == opcode)
        table.add_row(opcode, *(str(counts[s] or "") for s in STATUSES))
    return table


def _counts(entries: Mapping[str, Entry]) -> str:
    counts = Counter(e.status for e in entries.values())
    return f"{len(entries)} forms: " + ", ".join(f"{n} {status}" for status, n in counts.most_common())


def _status(entry: Entry) -> str:
    return entry.status if entry.ulp is None else f"{entry.status}, {entry.ulp:,} ulp"


def _remark(entry: Entry) -> str:
    """The first mismatch or the worst input; else the reason why nothing was measured, and agreeing definitions."""
    shown = entry.offenders[0] if entry.offenders else entry.worst
    if shown is None:
        agree = ", ".join(f"{name} on {count:,}" for name, count in entry.opinions.items())
        return f"{entry.why}; agrees with {agree}" if agree else entry.why
    mismatch = f"({', '.join(shown['inputs'])}) gives {', '.join(shown['got'])}, not {', '.join(shown['expected'])}"
    return f"{mismatch} [{shown['variant']}]" if shown.get("variant") else mismatch


# Plots of approximate instructions' errors over the range of their argument ----------------------------------------
#
# Text bars, or a chart in a file.

_LEVELS = " ▁▂▃▄▅▆▇█"
_COLUMNS = 32
_FACTOR = 8


def lines(errors: Mapping[str, Any]) -> Iterator[str]:
    """Text bars of the largest error by the argument's exponent: one for positive, one for negative arguments."""
    profile = errors["profile"]
    top = max(profile, default=0.0)
    if not top:
        return
    half = len(profile) // 2
    step = max(half // _COLUMNS, 1)
    bias = half // 2 - 1
    yield f"by exponent of the argument, each step a factor of {_FACTOR}:"
    for sign, side in (("+", profile[:half]), ("-", profile[half:])):
        if any(side):
            tops = [max(side[i : i + step]) for i in range(0, half, step)]
            bar = "".join(_LEVELS[_level(t / top)] for t in tops)
            yield f"{sign}2^{1 - bias} to 2^{half - 2 - bias}: |{bar}|"


def _level(share: float) -> int:
    """The height of a bar, 0 to 8: 8 for the greatest error, one less for each factor, 1 for any smaller error."""
    return max(8 - math.floor(math.log(1 / share, _FACTOR)), 1) if share else 0


def write(path: Path, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Write a chart of the forms' errors. Raises UsageError without errors, and for another suffix of the file."""
    if not found:
        raise UsageError("--plot: these forms have no error profile; ptxdiff conformance FORM --errors computes one")
    if path.suffix not in (".svg", ".png", ".html"):
        raise UsageError(f"--plot {path}: name a .svg, .png or .html file")
    import altair

    rows = [row for form, errors in found.items() for row in _rows(form, errors)]
    chart = (
        altair.Chart(altair.Data(values=rows))
        .mark_line(interpolate="step")
        .encode(
            x=altair.X("exponent:Q", title="exponent of the argument"),
            y=altair.Y("error:Q", title="largest error").scale(type="log"),
            color=altair.Color("sign:N", title="argument"),
            row=altair.Row("form:N", title=None),
        )
        .properties(width=640, height=120)
        .resolve_scale(y="independent")
    )
    chart.save(str(path))


def _rows(form: str, errors: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    profile: Sequence[float] = errors["profile"]
    half = len(profile) // 2
    title = f"{form} ({errors['largest'][0]['measure'].split(' ')[0]})"
    for number, error in enumerate(profile):
        if error:
            exponent = number % half - (half // 2 - 1)
            yield {"form": title, "exponent": exponent, "error": error, "sign": "+" if number < half else "-"}
