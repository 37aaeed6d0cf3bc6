"""Tests that cannot fail: delete what a test file is named for, run it, and list the tests that pass all the same.

    python -m tests.deletion [tests/ptx/test_binding.py ...] [--jobs 2] [--limit 300]

For each test file the module of its name is sought (`tests/ptx/test_binding.py`: `harness/ptx/binding/constraints.py`);
where there is none, the functions that the test imports stand for it. In a copy of the tree every such function loses
its body, which then gives None in one run and raises in another. A test that passes in both does not notice that what
it is about is gone. In a third run the functions keep their bodies and lose every call that is made for its effect
alone, such as that of a lock; where no test fails then, the file is told too. Some tests pass rightly, as they test
something beside it; each one listed wants a look. The tree itself is never changed.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("harness", "references", "reports")
COPIED = (*PACKAGES, "cases", "tests", "pyproject.toml", "Makefile", "README.md", "CHANGELOG.md")
BODIES = ("return None", "raise RuntimeError('deleted')")
EFFECTS = ""
"""In the place of a body: calls made for their effect are deleted."""


def subjects(test: Path) -> list[Path]:
    """The modules that a test file is named for, relative to the tree."""
    inside = test.resolve().relative_to(ROOT / "tests")
    name = inside.stem.removeprefix("test_")
    places = [Path(p, inside.parent) for p in PACKAGES] + [inside.parent]
    found = [place / f"{name}.py" for place in places]
    found += [place / name for place in places if (ROOT / place / name / "__init__.py").exists()]
    return [f for f in found if (ROOT / f).exists() and f.parts[0] in PACKAGES]


def imported(test: Path) -> dict[Path, set[str]]:
    """The functions and classes that a test file imports by name, by the module that defines them."""
    found: dict[Path, set[str]] = {}
    for node in ast.walk(ast.parse(test.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in PACKAGES:
            for alias in node.names:
                value = getattr(importlib.import_module(node.module), alias.name, None)
                if inspect.isfunction(value) or inspect.isclass(value):
                    file = Path(inspect.getsourcefile(value) or "").resolve().relative_to(ROOT)
                    found.setdefault(file, set()).add(value.__name__)
    return found


def deleted(text: str, body: str, names: set[str] | None) -> str:
    """A module's text with the body of every function replaced, or for `EFFECTS` without calls that give nothing.

    names: of these functions and classes only.
    """
    tree = ast.parse(text)
    if body == EFFECTS:
        return ast.unparse(ast.fix_missing_locations(_NoEffects().visit(tree)))
    chosen = [n for n in tree.body if names is None or getattr(n, "name", "") in names]
    for node in (inner for top in chosen for inner in ast.walk(top)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
            node.body = ast.parse(f"def f():\n    {body}").body[0].body  # type: ignore[attr-defined]
    return ast.unparse(ast.fix_missing_locations(tree))


class _NoEffects(ast.NodeTransformer):
    """Replaces statements that only call something, inside functions."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        for inner in ast.walk(node):
            for field in ("body", "orelse", "finalbody"):
                statements = getattr(inner, field, None)
                if isinstance(statements, list):
                    setattr(inner, field, [ast.Pass() if _is_effect(s) else s for s in statements])
        return node


def _is_effect(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)


def _has_effects(module: Path) -> bool:
    files = [ROOT / module] if module.suffix else list((ROOT / module).rglob("*.py"))
    return any(_is_effect(node) for file in files for node in ast.walk(ast.parse(file.read_text())))


def outcomes(test: Path, modules: dict[Path, set[str] | None], body: str, limit: float) -> dict[str, bool] | None:
    """The tests with whether they pass without the modules' functions; None where the file cannot be collected."""
    with tempfile.TemporaryDirectory(prefix="ptxdiff-deletion-") as folder:
        tree = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, tree / name)
        for module, names in modules.items():  # none: the tree as it is
            for file in [module] if module.suffix else sorted((tree / module).rglob("*.py")):
                path = tree / file
                path.write_text(deleted(path.read_text(), body, names))
        report = tree / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        command.append(str(test.resolve().relative_to(ROOT)))
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        try:
            subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            return {"(timed out)": False}
        if not report.exists():
            return None
        cases = list(ElementTree.parse(report).iter("testcase"))
        if cases and all(case.find("error") is not None for case in cases):
            return None
        return {case.get("name", ""): not list(case) for case in cases if case.find("skipped") is None}


def examine(test: Path, limit: float) -> str:
    """One line for a test file."""
    name = test.resolve().relative_to(ROOT)
    modules: dict[Path, set[str] | None] = dict.fromkeys(subjects(test)) or dict(imported(test))
    if not modules:
        return f"{name}: neither a module of that name nor an imported function"
    what = ", ".join(map(str, modules))
    found = [outcomes(test, modules, body, limit) for body in BODIES]
    ran = [{name for name, passed in f.items() if passed} for f in found if f is not None]
    if not ran:
        return f"{name}: cannot be collected without {what}"
    kept = sorted(set.intersection(*ran))
    text = f"{name}: {len(kept)} pass without {what}" + "".join(f"\n    {k}" for k in kept)
    without = outcomes(test, modules, EFFECTS, limit) if any(map(_has_effects, modules)) else None
    return text + ("\n    no test fails without its calls for effect" if without and all(without.values()) else "")


def main() -> int:
    """Examine the files named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one run of one file")
    arguments = parser.parse_args()
    files = arguments.files or sorted(p for p in (ROOT / "tests").rglob("test_*.py") if "gpu" not in p.parts)
    with ThreadPoolExecutor(arguments.jobs) as threads:
        for line in threads.map(lambda f: examine(f, arguments.limit), files):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
