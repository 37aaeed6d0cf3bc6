"""Find tests that cannot fail: delete what a test file tests, run the file, and list the tests that still pass.

    python -m tests.support.deletion [tests/emulator/binding/test_binding.py ...] [--jobs 2] [--limit 300] [--baseline]

A test file tests the module of its name (`tests/emulator/test_limits.py`: `harness/emulator/limits.py`). If there is
none, it tests the functions that it imports, or takes from the modules that it imports. In a copy of the tree the body
of each such function is replaced: in one run it raises, in another it returns None. A test that passes in both does not
notice that its subject is gone. In a third run the functions keep their bodies, but all calls whose result is not used,
such as that of a lock, are deleted; if no test fails then, the file is reported too. Some listed tests are right to
pass, because they test something beside the module; look at each one. The tree itself is never changed. If a file
cannot be collected without the functions, it is collected with them, and they lose their code before the first test.

Runs are forks of a process that has imported the libraries, and all use one copy of the tree. With `--baseline` nothing
is deleted, and each test is listed with its seconds.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import json
import os
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType

from tests.support.deletion_runs import EFFECTS, PACKAGES, ROOT, Run, Subjects, Tree, forked, has_effects

HEAVY = ("torch", "triton", "numba", "ml_dtypes", "hypothesis", "altair", "pygments", "jinja2", "rich")
INSTRUCTIONS = Path("harness", "emulator", "isa")
NOT_INSTRUCTIONS = ("__init__", "registry", "modifiers", "selectors")
BODIES = ("raise RuntimeError('deleted')", "return None")


def subjects(test: Path) -> list[Path]:
    """The modules with the same name as a test file, relative to the tree."""
    inside = test.resolve().relative_to(ROOT / "tests")
    if inside.parent == Path("emulator/isa"):  # named for groups of families
        return sorted(f.relative_to(ROOT) for f in (ROOT / INSTRUCTIONS).glob("*.py") if f.stem not in NOT_INSTRUCTIONS)
    name = inside.stem.removeprefix("test_")
    places = [Path(p, inside.parent) for p in PACKAGES] + [inside.parent]
    found = [place / f"{name}.py" for place in places]
    found += [place / name for place in places if (ROOT / place / name / "__init__.py").exists()]
    return [f for f in found if (ROOT / f).exists() and f.parts[0] in PACKAGES]


def imported(test: Path) -> dict[Path, set[str]]:
    """The functions and classes that a test file imports, by the module that defines them.

    Attributes of an imported module (`gate.main`) count like those imported by name.
    """
    tree = ast.parse(test.read_text())
    found: dict[Path, set[str]] = {}

    def add(value: object) -> None:
        with suppress(TypeError, ValueError):  # defined by Python or another package
            value = inspect.unwrap(value) if callable(value) else value
            if inspect.isfunction(value) or inspect.isclass(value):
                file = Path(inspect.getsourcefile(value) or "").resolve().relative_to(ROOT)
                if file.parts[0] in PACKAGES:
                    found.setdefault(file, set()).add(value.__qualname__.partition(".")[0])

    modules: dict[str, ModuleType] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "ptxdiff":
            for alias in node.names:
                value = _member(node.module, alias.name)
                if isinstance(value, ModuleType):
                    modules[alias.asname or alias.name] = value
                else:
                    add(value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            add(getattr(modules[node.value.id], node.attr, None))
    return found


def _member(module: str, name: str) -> object:
    package = importlib.import_module(module)
    if not hasattr(package, name):
        with suppress(ModuleNotFoundError):
            return importlib.import_module(f"{module}.{name}")
    return getattr(package, name, None)


def named_for(test: Path) -> Subjects:
    """The functions to delete for a test file."""
    named: Subjects = dict.fromkeys(subjects(test))
    if named and not any(map(_passes_on, named)):
        return named
    with tempfile.NamedTemporaryFile("w+") as file:  # in a fork, so that this process does not import the packages

        def work() -> None:
            found = {str(path): sorted(names) for path, names in imported(test).items()}
            Path(file.name).write_text(json.dumps(found))

        forked(work, 60)
        text = Path(file.name).read_text()
    return {Path(path): set(names) for path, names in json.loads(text or "{}").items()} | named


def _passes_on(module: Path) -> bool:
    """Whether a module only passes on public names of other modules, as `ptxdiff.references.formats` does."""
    if not module.suffix:
        return False
    body = ast.parse((ROOT / module).read_text()).body
    public = any(isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__" for n in body)
    return public and all(getattr(n, "name", "_").startswith("_") for n in body)


def examine(tree: Tree, test: Path, limit: float) -> str:
    """The lines to print about a test file."""
    name = test.resolve().relative_to(ROOT)
    modules = named_for(test)
    if not modules:
        return f"{name}: neither a module of that name nor an imported function"
    what = ", ".join(map(str, modules)) if INSTRUCTIONS not in (m.parent for m in modules) else str(INSTRUCTIONS)
    notes: list[str] = []
    kept = _kept(tree, test, modules, limit, notes, late=False)
    if kept is None:
        notes.append("deleted after collection")
        kept = _kept(tree, test, modules, limit, notes, late=True)
    if kept is None:
        return f"{name}: cannot be collected"
    if subjects(test) and any(map(has_effects, modules)):
        with tree.without(modules, EFFECTS):
            run = tree.run(test, limit, each=0, first=True)
        if run.passed and not run.left and all(run.passed.values()):
            notes.append("no test fails without its calls for effect")
    alone = _untouched(tree, test, kept, limit) if kept else set()
    marked = [f"{t} (and without all functions of {', '.join(PACKAGES)})" if t in alone else t for t in sorted(kept)]
    lines = [f"{name}: {len(kept)} pass without {what}", *marked, *notes]
    return "\n    ".join(lines)


def _kept(tree: Tree, test: Path, modules: Subjects, limit: float, notes: list[str], *, late: bool) -> set[str] | None:
    """The tests that pass with both bodies; None if the file cannot be collected with one of them."""
    results: list[Run] = []
    failed: set[str] = set()

    def left(name: str) -> bool:
        return name not in failed

    for body in BODIES:
        with tree.without({} if late else modules, body):
            run = tree.run(test, limit, left, late=(modules, body) if late else None)
        if run.left:
            notes.append(f"{run.left} tests without a result ({body})")
        failed.update(test for test, passed in run.passed.items() if not passed)
        results += [run] if run.collected else []
        if results and not run.left and not any(run.passed.values()):
            break
    return {test for run in results for test in run.passed} - failed if results else None


def _untouched(tree: Tree, test: Path, kept: set[str], limit: float) -> set[str]:
    """The tests that also pass without any function of the project: they call none, or accept any result."""
    every: Subjects = dict.fromkeys(map(Path, PACKAGES))
    for body in BODIES:
        run = tree.run(test, limit, kept.__contains__, late=(every, body))
        kept = {test for test, passed in run.passed.items() if passed}
    return kept


def timed(tree: Tree, test: Path, limit: float) -> str:
    """The tests of an unchanged file, with their seconds and whether they pass."""
    run = tree.run(test, limit, each=0)
    name = test.resolve().relative_to(ROOT)
    rows = sorted(run.seconds, key=lambda t: -run.seconds[t])
    total = sum(run.seconds.values())
    lines = [f"{name}: {total:.1f} s, {len(rows)} tests" + (f", {run.left} not run" if run.left else "")]
    return "\n    ".join(lines + [f"{run.seconds[t]:.2f} {'' if run.passed[t] else '(no pass) '}{t}" for t in rows])


_tree: Tree | None = None


def _work(folder: Path, task: Callable[[Tree, Path, float], str], limit: float, test: Path) -> str:
    global _tree
    if _tree is None:  # once in each process
        _tree = Tree(Path(tempfile.mkdtemp(dir=folder)))
    return task(_tree, test, limit)


def main() -> int:
    """Examine the named files, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one run of one file")
    parser.add_argument("--baseline", action="store_true", help="delete nothing; list each test's seconds")
    arguments = parser.parse_args()
    files = arguments.files or sorted(p for p in (ROOT / "tests").rglob("test_*.py") if "gpu" not in p.parts)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    for name in HEAVY:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory(prefix="ptxdiff-deletion-") as folder:
        task = partial(_work, Path(folder), timed if arguments.baseline else examine, arguments.limit)
        with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("fork")) as processes:
            for line in processes.map(task, files):
                print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
