"""Write the pages of the reference from the code, so that they cannot become untrue.

    python docs/generate.py FOLDER

One function a page; each returns Markdown. The catalogue has plots too. Nothing here needs torch, triton or a GPU.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib
import inspect
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # Sphinx runs this file from `docs`

from docs import distances  # noqa: E402


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown. Cells are one line each."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(c) for c in row) + " |" for row in lines)


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


# The command line -------------------------------------------------------------------------------------------------


def command_line() -> str:
    """One section a verb, from its parser."""
    from ptxdiff.cli import VERBS

    parts = ["# Command line", "Exit codes: [their page](exit-codes.md). Names of cases and variants may be given in"
             " every spelling that pytest, `ptxdiff list` and the report print."]  # fmt: skip
    for verb, line in VERBS.items():
        parser = argparse.ArgumentParser(f"ptxdiff {verb}", add_help=False)
        importlib.import_module(f"ptxdiff.cli.{verb}").configure(parser)
        parts += [
            f"## ptxdiff {verb}",
            line[0].upper() + line[1:] + ".",
            f"```text\n{parser.format_usage().strip()}\n```",
        ]
        rows = [
            (_option(a), a.help % _facts(a) if a.help else "")
            for a in parser._actions
            if a.help is not argparse.SUPPRESS
        ]
        parts += [table(("option", "meaning"), rows)] if rows else []
        if parser.epilog:
            parts.append(f"```text\n{parser.epilog.strip()}\n```")
    return "\n\n".join(parts)


def _option(action: argparse.Action) -> str:
    names = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{action.metavar or action.dest}`"
    if not action.option_strings or action.nargs == 0:
        return names
    value = action.metavar if isinstance(action.metavar, str) else ("" if action.choices else action.dest.upper())
    value = value or "|".join(map(str, action.choices or ()))
    return f"{names} `{value}`"


def _facts(action: argparse.Action) -> dict[str, Any]:
    return {**vars(action), "prog": "ptxdiff", "type": getattr(action.type, "__name__", "")}


class PluginOptions:
    """Stands in for pytest's parser, and keeps the options that a plugin adds."""

    def __init__(self) -> None:
        self.options: list[tuple[tuple[str, ...], dict[str, Any]]] = []
        self.settings: list[tuple[str, str]] = []

    def getgroup(self, *_: Any) -> PluginOptions:
        """The group of options: this object."""
        return self

    def addoption(self, *names: str, **facts: Any) -> None:
        """Keep an option."""
        self.options.append((names, facts))

    def addini(self, name: str, help: str, **_: Any) -> None:
        """Keep a setting."""
        self.settings.append((name, help))


def pytest_options() -> str:
    """The plugin's options and settings."""
    from ptxdiff.plugin import pytest_addoption

    parser = PluginOptions()
    pytest_addoption(parser)  # type: ignore[arg-type]
    rows = []
    for names, facts in parser.options:
        value = facts.get("metavar") or "|".join(map(str, facts.get("choices", ())))
        rows.append((f"`{names[0]}{f'={value}' if value else ''}`", facts.get("help", "")))
    settings = table(("setting", "meaning"), [(f"`{name}`", meaning) for name, meaning in parser.settings])
    return "\n\n".join(
        ["# pytest options", "The plugin comes with ptxdiff.", table(("option", "meaning"), rows),
         "## Settings in `pyproject.toml` or `pytest.ini`", settings]
    )  # fmt: skip


# What case files import ---------------------------------------------------------------------------------------------


def formats() -> str:
    """Every number format, and the functions on codes."""
    from ptxdiff.cli.list import formats as lines
    from ptxdiff.references import codes
    from ptxdiff.references import formats as module

    rows = []
    for line in lines():
        name, rest = line.split(None, 1)
        bits, _, storage = rest.partition(" bits in ")
        kind, _, fields = storage.partition("  ")
        rows.append((f"`{name}`", bits, f"`{kind.strip()}`", fields.strip()))
    head = "Constants of `ptxdiff.references.formats`. A packed format is one storage unit with several codes."
    public = [getattr(module, name) for name in module.__all__]
    functions = [f for f in public if inspect.isfunction(f) and f.__module__ == codes.__name__]
    meanings = []
    for function in functions:
        parameters = ", ".join(inspect.signature(function).parameters)
        sentence = (inspect.getdoc(function) or "").partition("\n\n")[0]
        meanings.append((f"`{function.__name__}({parameters})`", sentence))
    about = (
        "A reference of your own gets and returns codes. These functions of the same module say what a code is, on"
        " Python integers, numpy arrays and torch tensors; the format comes first. How a reference uses them:"
        " [Write a reference](../how-to/references.md)."
    )
    return "\n\n".join([
        "# Number formats", head, table(("name", "bits", "stored in", "fields"), rows),
        "## Codes and numbers", about, table(("function", "meaning"), meanings),
    ])  # fmt: skip


def references() -> str:
    """Every function of the references, with its docstring."""
    from ptxdiff.cli.list import references as lines

    head = "Correct results, bit for bit, by the specifications. Functions take and return int64 tensors of codes."
    parts = ["# References", head]
    for line in lines():
        if not line.startswith(" "):
            name, _, sentence = line.partition("  ")
            parts += [f"## {name}", sentence]
        elif line.startswith("        "):
            parts[-1] += f"\n: {line.strip()}"
        else:
            parts.append(f"`{line.strip()}`")
    return "\n\n".join(parts)


def interface() -> str:
    """What `from ptxdiff import ...` gives: signatures and docstrings, read without importing torch or triton."""
    import ptxdiff

    parts = ["# Python interface", "`from ptxdiff import ...`"]
    for name in sorted(ptxdiff.__all__, key=str.lower):
        value = getattr(ptxdiff, name)
        if inspect.isfunction(value) or inspect.isclass(value):
            signature = str(inspect.signature(value)).replace("ptxdiff.", "")
            parts += [f"## {name}", f"```python\n{name}{_wrapped(signature)}\n```", _docstring(value)]
    return "\n\n".join(parts)


def _wrapped(signature: str) -> str:
    return signature if len(signature) < 90 else signature.replace(", ", ",\n    ").replace("(", "(\n    ", 1)


def _docstring(value: Any) -> str:
    """A docstring as text; indented lines, such as examples, as code."""
    blocks = (inspect.getdoc(value) or "").split("\n\n")
    return "\n\n".join(f"```text\n{inspect.cleandoc(b)}\n```" if b.startswith("    ") else b for b in blocks)


def records() -> str:
    """The files of records and the types in them, from their docstrings and fields."""
    from ptxdiff.records import seal, texts, types

    head = f"JSON lines, schema {types.SCHEMA}. Each line has `record`, the name of its type, and ends in a checksum."
    parts = ["# Records", f"{head} Unknown fields are refused. [Keep records](../how-to/records.md) has the commands."]
    for title, module in (("Files and texts", texts), ("Checksums", seal)):
        parts += [f"## {title}", inspect.cleandoc(module.__doc__ or "").partition("\n\n")[2]]
    for name, value in vars(types).items():
        if dataclasses.is_dataclass(value) and value.__module__ == types.__name__:
            rows = [(f"`{f.name}`", f"`{f.type}`") for f in dataclasses.fields(value)]
            parts += [f"## {name}", _docstring(value), table(("field", "type"), rows)]
    return "\n\n".join(parts)


# Instructions and rules -----------------------------------------------------------------------------------------------


def instructions() -> str:
    """The coverage of PTX instructions with the evidence of the ledger."""
    from ptxdiff.conformance import ledger

    book = ledger.read()
    by_opcode: dict[str, Counter[str]] = defaultdict(Counter)
    inputs: Counter[str] = Counter()
    for form, entry in book.entries.items():
        opcode = form.split(".")[0]
        by_opcode[opcode][entry.status] += 1
        inputs[opcode] = max(inputs[opcode], entry.inputs)
    statuses = [s for s in ledger.STATUSES if any(s in c for c in by_opcode.values())]
    rows = [
        (f"`{opcode}`", str(sum(counts.values())), *(str(counts[s] or "") for s in statuses), _power(inputs[opcode]))
        for opcode, counts in sorted(by_opcode.items())
    ]
    total = Counter(e.status for e in book.entries.values())
    parts = ["# Instructions and their evidence",
             f"{len(book.entries)} forms of {len(by_opcode)} opcodes are in the ledger: "
             + ", ".join(f"{total[s]} {s}" for s in statuses) + ". `ptxdiff conformance OPCODE` prints each form.",
             table(("status", "meaning"), [(f"`{s}`", ledger.STATUSES[s]) for s in statuses]),
             table(("opcode", "forms", *statuses, "most inputs of a form"), rows),
             "## Runs",
             table(("run", "device", "driver", "ptxas", "date"),
                   [(n, c.device, c.driver, c.ptxas, c.date) for n, c in sorted(book.runs.items())])]  # fmt: skip
    return "\n\n".join(parts)


def _power(count: int) -> str:
    return (
        f"2^{count.bit_length() - 1}"
        if count and count & (count - 1) == 0 and count >= 1024
        else f"{count:,}"
        if count
        else ""
    )


def lint_rules() -> str:
    """Every rule of the linter with its page."""
    from ptxdiff.lint.rules import page, rules

    found = rules()
    rows = [
        (f"[`{r.name}`](#{r.name})", r.severity, r.summary, "" if r.default else "if selected") for r in found.values()
    ]
    parts = ["# Lint rules", "`ptxdiff lint` runs these. Each wrong and right example is a test.",
             table(("rule", "severity", "finding", "runs"), rows)]  # fmt: skip
    for name in found:
        text = re.sub(r"(?m)^(#+) ", lambda m: f"#{m[1]} ", page(name))
        parts.append(f"({name})=\n{text.strip()}".replace("```cuda", "```cpp"))
    return "\n\n".join(parts)


def exit_codes() -> str:
    """The exit codes of the commands."""
    rows = [
        ("`pytest`, `ptxdiff run`", "pytest's own: 0 passed, 1 a failure or an error, 2 interrupted, 3 an internal"
         " error, 4 wrong usage, 5 nothing collected"),
        ("`ptxdiff gate`", "0 accepted, 1 correctness, 2 wrong usage or no baseline, 3 speed or resources"),
        ("`ptxdiff lint`", "0 no errors or warnings, 1 errors or warnings, 2 wrong usage"),
        ("`ptxdiff compare`", "0 equal, 1 different, 2 wrong usage"),
        ("all others", "0 done, 1 something failed, 2 wrong usage or a missing package, 130 stopped by Ctrl-C"),
    ]  # fmt: skip
    return "# Exit codes\n\n" + table(("command", "codes"), rows)


# The catalogue --------------------------------------------------------------------------------------------------------


def catalogue() -> str:
    """Every case file with its variants' names, parsed and not imported, and the errors of its approximate forms."""
    families: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    measured = distances.read()
    run = measured["run"]
    for path in _case_files():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "Case"]
        family = next((_constant(k.value) for c in calls for k in c.keywords if k.arg == "family"), "") or "other"
        variants = [k.value for c in calls for k in c.keywords if k.arg == "variants"]
        names = [_constant(key) for v in variants if isinstance(v, ast.Dict) for key in v.keys]
        names = list(dict.fromkeys(names))
        if not any(names):  # the file makes them in a loop
            names = list(dict.fromkeys(r["variant"] for r in measured["files"].get(path.stem, {}).get("rows", ())))
        title = (ast.get_docstring(tree) or "").partition("\n\n")[0]
        families[family].append((path.stem, title, ", ".join(f"`{n}`" for n in names if n)))
    plots = approximate_forms()
    head = "Cases that come with ptxdiff; `ptxdiff new mine --from NAME` copies one."
    about = (
        "Below each family is a plot a case: how far the results of its variants lie from the exact ones, over all"
        f" inputs of a run of the emulator at {run['effort']} effort on {run['date']}. A row is a variant: the height"
        " of a bar is the number of codes at that distance (logarithmic), the band is the promised bound, and red is"
        " what is wrong. Right codes without a distance, such as those of integers, are at 0.\n\n"
        "Where a case writes an approximate instruction out, a table below its family has the instruction's largest"
        " error against the exact result, of the emulator's definition, which an H200 confirmed, and a plot shows the"
        " error by the exponent of the argument (instructions of two arguments have none). A case without them has"
        " exact or correctly rounded instructions, or leaves the choice to Triton. What a variant does on each target"
        " is in the report of a run, with its error over the inputs of that run."
    )
    parts = ["# The catalogue", head, about]
    for family, rows in sorted(families.items(), key=lambda item: (item[0] == "other", item[0])):
        cells = [(f"[`{c}`](#distances-of-{_slug(c)})", *rest) for c, *rest in rows]
        parts += [f"## {family[0].upper()}{family[1:]}", table(("case", "what it tests", "variants"), cells)]
        for case, *_ in rows:
            parts += [f"(distances-of-{_slug(case)})=\n**Distances of {case}**", *distances_of(case, measured)]
            if case not in plots:
                continue
            forms = plots[case]
            alternative = "; ".join(f"{form}: {_largest_errors(errors)}" for form, errors in forms.items())
            worst = table(("form", "largest error"), [(f"`{f}`", _largest_errors(e)) for f, e in forms.items()])
            parts += [f"(errors-of-{_slug(case)})=\n### Errors of {case}", worst]
            if any(errors["profile"] for errors in forms.values()):
                parts.append(f"![Largest error by exponent. {alternative}](errors/{case}.svg)")
    return "\n\n".join(parts)


def distances_of(case: str, measured: Mapping[str, Any]) -> list[str]:
    """The plot of a case with what it says in words, and a note if the case file is another by now."""
    found = measured["files"].get(case)
    if found is None:
        return ["Not measured yet: `ptxdiff run` with this case has its distances in the report."]
    changed = distances.digest(ROOT / "cases" / f"{case}.py") != found["digest"]
    note = ["The case file has changed since this plot was made."] if changed else []
    return [f"![{distances.alternative(found['rows'])}](distances/{case}.svg)", *note]


def _case_files() -> list[Path]:
    return sorted((ROOT / "cases").glob("[!_]*.py"))


def _slug(case: str) -> str:
    return case.replace("_", "-")


def _largest_errors(errors: Mapping[str, Any]) -> str:
    found = [f"{e['error']:.4g} {e['measure']} at {', '.join(e['at'])}" for e in errors["largest"]]
    inputs = errors["inputs"]
    return "; ".join(found) + f" (of {_power(inputs)} inputs)"


def approximate_forms() -> dict[str, dict[str, Mapping[str, Any]]]:
    """The approximate forms that each case writes out, with the ledger's errors over all inputs."""
    from ptxdiff.conformance import ledger

    known = {form: e.errors for form, e in ledger.read().entries.items() if e.errors}
    found = {}
    for path in _case_files():
        text = _text_of_case(path)
        named = {w for w in re.findall(r"[a-z][a-z0-9]*(?:\.[a-z0-9]+)+", text) if w in known}
        if named:
            found[path.stem] = {form: known[form] for form in sorted(named)}
    return found


def _text_of_case(path: Path) -> str:
    """The text of a case file, with the functions that it imports from the modules beside it."""
    text = path.read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.level and node.module:
            beside = path.parent.joinpath(*node.module.split(".")).with_suffix(".py")
            if beside.is_file():
                text += definitions_of(beside.read_text(encoding="utf-8"), {a.name for a in node.names})
    return text


def definitions_of(text: str, names: set[str]) -> str:
    """The parts of a module that define these names, and the names that those parts use."""
    parts: dict[str, ast.stmt] = {}
    for node in ast.parse(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node]
        for target in targets:
            name = getattr(target, "name", "") or getattr(target, "id", "")
            if name:
                parts[name] = node
    wanted, taken = sorted(names), dict[str, str]()
    while wanted:
        name = wanted.pop()
        if name in parts and name not in taken:
            taken[name] = ast.get_source_segment(text, parts[name]) or ""
            wanted += [n.id for n in ast.walk(parts[name]) if isinstance(n, ast.Name)]
    return "\n".join(taken.values())


def write_distances(folder: Path) -> None:
    """Write the plot of distances of each case."""
    for case, found in distances.read()["files"].items():
        _write(folder / f"{case}.svg", distances.plot(found["rows"]))


def write_plots(folder: Path) -> None:
    """Write the plot of each case with approximate forms. A plot that has not changed keeps its time."""
    from ptxdiff.cli.conformance import write

    folder.mkdir(parents=True, exist_ok=True)
    for case, found in approximate_forms().items():
        forms = {form: errors for form, errors in found.items() if any(errors["profile"])}
        if not forms:
            continue
        path = folder / f"{case}.svg"
        fresh = path.with_name(f"new-{path.name}")
        write(fresh, forms)
        if path.exists() and path.read_bytes() == fresh.read_bytes():
            fresh.unlink()
        else:
            fresh.replace(path)


def _constant(node: ast.AST | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


PAGES: Mapping[str, Callable[[], str]] = {
    "command-line": command_line,
    "pytest-options": pytest_options,
    "interface": interface,
    "formats": formats,
    "references": references,
    "instructions": instructions,
    "lint-rules": lint_rules,
    "catalogue": catalogue,
    "records": records,
    "exit-codes": exit_codes,
}


def write_pages(folder: Path) -> None:
    """Write every page into a folder. A page that has not changed keeps its time."""
    for name, page in PAGES.items():
        _write(folder / f"{name}.md", page())
    write_plots(folder / "errors")
    write_distances(folder / "distances")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = text.rstrip() + "\n"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
