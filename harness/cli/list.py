"""`ptxdiff list`: print cases, variants, targets, references and formats."""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ptxdiff.cli import NAMES, UsageError, named, pytests_files, say
from ptxdiff.diskcache import cache_folder
from ptxdiff.locations import REFERENCES
from ptxdiff.model.files import FOLDER
from ptxdiff.model.identity import everything_read, opened
from ptxdiff.suggestions import nearest

if TYPE_CHECKING:
    from ptxdiff.model.case import Case
    from ptxdiff.model.naming import Named
    from ptxdiff.model.variants import CaseError, Variant
    from ptxdiff.references.formats import Format


def instructions(case: Case, variant: Variant) -> set[str]:
    """The names of instructions as written, such as `lop3.b32`, in the variant's asm or in its Triton functions.

    Triton functions are searched for strings that parse as PTX: in their own source, and in the functions, strings and
    constants that they name. Asm that other code computes is not found.
    """
    return {name for text in _texts(case, variant) for name in _names(text)}


def uses(name: str, word: str) -> bool:
    """Whether an instruction's name has the opcode of `word`, and its modifiers in the same order, maybe with others.

    `mul.f16x2` finds `mul.rn.f16x2`; `mul` finds every multiplication, but not `mul24`.
    """
    opcode, *modifiers = name.split(".")
    wanted, *rest = word.split(".")
    left = iter(modifiers)
    return opcode == wanted and all(part in left for part in rest)


def _texts(case: Case, variant: Variant) -> Iterator[str]:
    from ptxdiff.model.derive import asm_form, packs_of
    from ptxdiff.model.variants import AsmVariant, CaseError, PtxVariant

    if isinstance(variant, AsmVariant):
        for pack in packs_of(case, variant):
            try:
                yield asm_form(case, variant, pack).text
            except CaseError:  # a run of the case reports the error in this form
                continue
    elif isinstance(variant, PtxVariant):
        yield variant.text
    else:
        given = {**getattr(variant, "constants", {}), **getattr(variant, "meta", {})}
        yield from _strings([variant.function, *given.values()])  # type: ignore[attr-defined]


def _strings(values: list[Any]) -> Iterator[str]:
    """The strings among some values, and in the source of Triton functions among them, followed through names."""
    seen: set[int] = set()
    while values:
        value = values.pop()
        value = getattr(value, "value", value)  # unwraps a tl.constexpr
        function = getattr(value, "fn", None)
        if isinstance(value, str):
            yield value
        elif inspect.isfunction(function) and id(function) not in seen:
            seen.add(id(function))
            names = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
            for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
                if isinstance(node, ast.Constant):
                    values.append(node.value)
                elif isinstance(node, ast.Name) and node.id in names:
                    values.append(names[node.id])


def _names(text: str) -> Iterator[str]:
    from ptxdiff.emulator import PtxError
    from ptxdiff.emulator.text import CodeBlock, Instruction, parse_asm, parse_module

    try:
        whole = ".version" in text and ".entry" in text
        waiting: list[Any] = [f.body for f in parse_module(text).functions] if whole else [parse_asm(text)[0]]
    except PtxError:  # not PTX: for example a docstring, or constraints
        return
    while waiting:
        node = waiting.pop()
        if isinstance(node, CodeBlock):
            waiting += node.statements
        elif isinstance(node, Instruction):
            yield node.spelling


# Modules that references are built from; they define no references.
_PARTS = ("codes", "correct_rounding", "description", "formats", "hard_cases", "rounding", "shapes")


def formats() -> Iterator[str]:
    """One line for each format: its constant's name, bits, storage dtype of one unit, and fields."""
    from ptxdiff.references import formats as module
    from ptxdiff.references.formats import Format

    known = {n: f for n in module.__all__ if isinstance(f := getattr(module, n), Format)}
    for name, fmt in sorted(known.items(), key=_order):
        if fmt.packs is not None:
            what = f"{fmt.codes_per_unit} codes of {fmt.packs.name}, the first in the low bits"
        elif fmt.is_float:
            sign = "sign, " if fmt.signed else ""
            what = f"{sign}{fmt.exponent_bits} exponent and {fmt.mantissa_bits} mantissa bits, bias {fmt.bias}"
            what += ", infinities" if fmt.infinity else ", no infinity"
            what += ", no NaN" if fmt.nan == "none" else ""
        else:
            what = f"{fmt.kind} integer"
        yield f"{name:<8} {fmt.code_bits:>2} bits in {fmt.storage:<6}  {what}"


def _order(entry: tuple[str, Format]) -> tuple[bool, int, int, str]:
    """A sort key: floats before integers, then by size; packed formats after the formats that they hold."""
    name, fmt = entry
    return (not fmt.is_float, fmt.code_bits, fmt.codes_per_unit, name)


def references(words: Sequence[str] = ()) -> Iterator[str]:
    """One line for each module of `references`, then two for each of its functions. words: only these modules.

    The modules are parsed, not imported, so that torch is not loaded. Raises UsageError for an unknown module.
    """
    modules = {p.stem: p for p in sorted(REFERENCES.glob("[!_]*.py")) if p.stem not in _PARTS}
    for word in words:
        if word not in modules:
            raise UsageError(f"references has no module {word!r}; it has {', '.join(modules)}")
    for name in words or modules:
        tree = ast.parse(modules[name].read_text(encoding="utf-8"))
        yield f"ptxdiff.references.{name}  {_sentence(tree)}"
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield f"    {node.name}({_parameters(node.args)})"
                yield f"        {_sentence(node)}"


def _sentence(node: ast.Module | ast.FunctionDef) -> str:
    """The first paragraph of a docstring, as one line."""
    return " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())


def _parameters(arguments: ast.arguments) -> str:
    """The parameters without their annotations."""
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    for several in (arguments.vararg, arguments.kwarg):
        if several is not None:
            several.annotation = None
    return ast.unparse(arguments)


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("what", nargs="*", metavar="NAME", help=f"{NAMES} (default: cases)")
    parser.add_argument(
        "--using",
        metavar="INSTRUCTION",
        help="only variants whose PTX contains this instruction: lop3, or with modifiers, mul.f16x2",
    )
    parser.add_argument("--targets", action="store_true", help="list the targets that the installed Triton serves")
    parser.add_argument(
        "--references", action="store_true", help="list the functions of references, or of the named modules"
    )
    parser.add_argument("--formats", action="store_true", help="list the number formats of ptxdiff.references.formats")


def main(args: argparse.Namespace) -> int:
    """Print one line for each variant, or the requested tables, and on stderr one line for each broken file.

    Returns 2 if a file is broken, else 0.
    """
    if args.references or args.formats:
        for line in (*(formats() if args.formats else ()), *(references(args.what) if args.references else ())):
            say(line)
        return 0
    if args.targets:
        return _targets()
    faults: list[CaseError] = []
    chosen = named(args.what or ["cases"], faults)
    for fault in faults:
        say(f"ptxdiff list: {' '.join(str(fault).split())}", file=sys.stderr)
    if args.using and (chosen or not faults):
        chosen = _using(args.using, chosen)
    lines = list(_by_family(chosen))
    if chosen:
        lines.append(f"\n{_totals(chosen)}")
    elif not faults:
        lines.append("no cases here: give paths of case files, or put them into ./cases; ptxdiff new NAME writes one")
    loading: Loading | None = getattr(args, "loading", None)
    if loading is not None and chosen and not faults:
        loading.keep(lines)
    for line in lines:
        say(line)
    return 2 if faults else 0


# ---- The lines of an earlier list ------------------------------------------------------------------------------------


def answered(args: argparse.Namespace, words: Sequence[str]) -> int | None:
    """Print what an earlier process listed, if everything that decided it is the same: case files need torch.

    Returns None if there is no such list; then `main` keeps its own.
    """
    if args.references or args.formats or args.targets or cache_folder() is None:
        return None
    loading = Loading(args, words)
    lines = everything_read.kept_lines(loading.question)
    if lines is None:
        args.loading = loading
        loading.begin()
        return None
    for line in lines:
        say(line)
    return 0


class Loading:
    """What this process reads and prints while it loads case files."""

    def __init__(self, args: argparse.Namespace, words: Sequence[str]) -> None:
        self.question = everything_read.asked(words)
        self._places = [place.partition("::")[0] for place in args.what]
        self._settings = pytests_files(words)
        self._streams: list[_Stream] = []

    def begin(self) -> None:
        """Note from now on what the user's code opens, and whether it prints anything."""
        opened.watch()
        self._streams = [_Stream(sys.stdout), _Stream(sys.stderr)]
        sys.stdout, sys.stderr = self._streams

    def end(self) -> None:
        """Print as before `begin`."""
        if self._streams and (sys.stdout, sys.stderr) == tuple(self._streams):
            sys.stdout, sys.stderr = (stream.stream for stream in self._streams)

    def keep(self, lines: Sequence[str]) -> None:
        """Keep the lines for a later process, if it is known what decided them, and nothing else was printed."""
        self.end()
        if any(stream.used for stream in self._streams):
            return
        read = everything_read.everything_read(everything_read.now(), [FOLDER, *self._places], self._settings)
        if read is not None:
            everything_read.keep_lines(self.question, lines, read)


class _Stream:
    """A stream that knows whether anything was written."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.used = stream, False

    def write(self, text: str) -> int:
        """See TextIO."""
        self.used = True
        return int(self.stream.write(text))

    def __getattr__(self, name: str) -> Any:
        self.used = self.used or name in ("buffer", "writelines", "detach")
        return getattr(self.stream, name)


def _totals(chosen: Sequence[Named]) -> str:
    """How many cases, variants and families there are."""
    families = {c.loaded.case.family for c in chosen} - {""}
    counts = {"case": len(chosen), "variant": sum(len(c.variants) for c in chosen)}
    counts |= {"family": len(families)} if families else {}
    plural = {"case": "cases", "variant": "variants", "family": "families"}
    return ", ".join(f"{n} {word if n == 1 else plural[word]}" for word, n in counts.items())


def _by_family(chosen: Sequence[Named]) -> Iterator[str]:
    families = sorted({c.loaded.case.family for c in chosen}, key=lambda family: (not family, family))
    for place, family in enumerate(families):
        if families != [""]:
            yield f"{chr(10) * (place > 0)}{family or 'no family'}:"
        for one in chosen:
            if one.loaded.case.family == family:
                yield from _one_case(one)


def _one_case(chosen: Named) -> Iterator[str]:
    from ptxdiff.model.derive import packs_of
    from ptxdiff.model.describe import variant_words
    from ptxdiff.model.variants import AsmVariant

    loaded, case = chosen.loaded, chosen.loaded.case
    ins = ", ".join(f"{n}: {a}" for n, a in case.inputs.items())
    outs = ", ".join(f"{n}: {a}" for n, a in case.outputs.items())
    yield f"{loaded.name}  ({ins}) -> ({outs})  {loaded.title}"
    for name in chosen.variants:
        variant = case.variants[name]
        info = variant_words(loaded, variant)
        packs = f"pack {', '.join(map(str, packs_of(case, variant)))}; " if isinstance(variant, AsmVariant) else ""
        expected = f"; expected failure: {info.expected_failure}" if info.expected_failure else ""
        yield f"    {name:<24} {info.kind:<7} {packs}{info.match}; ftz {info.ftz}; {info.targets}{expected}"


def _using(word: str, chosen: Sequence[Named]) -> list[Named]:
    """The variants whose PTX contains an instruction. If there is none, raises UsageError with the nearest names."""
    found: list[Named] = []
    known: set[str] = set()
    for one in chosen:
        names = {v: instructions(one.loaded.case, one.loaded.case.variants[v]) for v in one.variants}
        known.update(*names.values())
        variants = tuple(v for v in one.variants if any(uses(name, word) for name in names[v]))
        if variants:
            found.append(replace(one, variants=variants))
    if not found:
        opcode = word.partition(".")[0]
        near = sorted(n for n in known if uses(n, opcode)) or nearest(word, known, 0.3, 5)
        raise UsageError(f"no variant here uses {word}; the nearest that are used: {', '.join(near) or 'none'}")
    return found


def _targets() -> int:
    from ptxdiff.triton.builds import NoTriton
    from ptxdiff.triton.targets import probe

    try:
        table = probe()
    except NoTriton as e:
        raise UsageError(str(e)) from None
    for name, info in table.items():
        line = f"ptxas {info.ptxas}, PTX {info.ptx_version}" if info.available else f"not served: {info.words}"
        say(f"{name:<10} {line}")
    return 0
