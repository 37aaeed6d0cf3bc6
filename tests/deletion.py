"""Tests that cannot fail: delete what a test file is named for, run it, and list the tests that pass all the same.

    python -m tests.deletion [tests/ptx/test_binding.py ...] [--jobs 2] [--limit 300] [--baseline]

For each test file the module of its name is sought (`tests/ptx/test_binding.py`: `harness/ptx/binding.py`); where there
is none, the functions that the test imports, or takes from the modules that it imports, stand for it. In a copy of the
tree every such function loses its body, which then raises in one run and gives None in another. A test that passes in
both does not notice that what it is about is gone. In a third run the functions keep their bodies and lose every call
that is made for its effect alone, such as that of a lock; where no test fails then, the file is told too. Some tests
pass rightly, as they test something beside it; each one listed wants a look. The tree itself is never changed.
A file that cannot be collected so is collected with its functions, which lose their code before the first test.

Runs are forks of a process that has imported the libraries, and all use one copy of the tree. With `--baseline` nothing
is deleted, and each test is listed with its seconds.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import inspect
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("harness", "references", "reports")
COPIED = (*PACKAGES, "cases", "tests", "pyproject.toml", "Makefile", "README.md", "CHANGELOG.md")
HEAVY = ("torch", "triton", "numba", "ml_dtypes", "hypothesis", "altair", "pygments", "jinja2", "rich")
INSTRUCTIONS = Path("harness", "ptx", "isa")
NOT_INSTRUCTIONS = ("__init__", "registry", "modifiers", "selectors")
BODIES = ("raise RuntimeError('deleted')", "return None")
EFFECTS = ""
"""In the place of a body: calls made for their effect are deleted."""
EACH = 15.0  # seconds for one test; one that takes longer without its functions has noticed

Subjects = dict[Path, set[str] | None]
"""Modules without whose functions a test file is run, with the names of those functions; None: all of them."""


def subjects(test: Path) -> list[Path]:
    """The modules that a test file is named for, relative to the tree."""
    inside = test.resolve().relative_to(ROOT / "tests")
    if inside.parent == Path("ptx/isa"):  # these are named for groups of families
        return sorted(f.relative_to(ROOT) for f in (ROOT / INSTRUCTIONS).glob("*.py") if f.stem not in NOT_INSTRUCTIONS)
    name = inside.stem.removeprefix("test_")
    places = [Path(p, inside.parent) for p in PACKAGES] + [inside.parent]
    found = [place / f"{name}.py" for place in places]
    found += [place / name for place in places if (ROOT / place / name / "__init__.py").exists()]
    return [f for f in found if (ROOT / f).exists() and f.parts[0] in PACKAGES]


def imported(test: Path) -> dict[Path, set[str]]:
    """The functions and classes that a test file imports, by the module that defines them.

    Those taken from an imported module (`gate.main`) count like those imported by name.
    """
    tree = ast.parse(test.read_text())
    found: dict[Path, set[str]] = {}

    def add(value: object) -> None:
        with suppress(TypeError, ValueError):  # what Python or another package defines
            value = inspect.unwrap(value) if callable(value) else value
            if inspect.isfunction(value) or inspect.isclass(value):
                file = Path(inspect.getsourcefile(value) or "").resolve().relative_to(ROOT)
                if file.parts[0] in PACKAGES:
                    found.setdefault(file, set()).add(value.__qualname__.partition(".")[0])

    modules: dict[str, ModuleType] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in PACKAGES:
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
            for name in ("body", "orelse", "finalbody"):
                statements = getattr(inner, name, None)
                if isinstance(statements, list):
                    setattr(inner, name, [ast.Pass() if _is_effect(s) else s for s in statements])
        return node


def _is_effect(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)


def _has_effects(module: Path) -> bool:
    files = [ROOT / module] if module.suffix else list((ROOT / module).rglob("*.py"))
    return any(_is_effect(node) for file in files for node in ast.walk(ast.parse(file.read_text())))


@dataclass
class Run:
    """What became of the tests of one file: whether each passed, and its seconds."""

    passed: dict[str, bool] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    collected: int = 0

    @property
    def left(self) -> int:
        """Tests that the limit or the end of the process left without a result."""
        return self.collected - len(self.passed)


class _Reporter:
    """Writes a line for every test.

    chosen: which tests to run. each: seconds until a test counts as failed; 0: no limit. late: called once.
    """

    def __init__(
        self, report: Path, chosen: Callable[[str], bool], each: float, late: Callable[[], None] | None
    ) -> None:
        self.file = report.open("a", buffering=1)
        self.chosen = chosen
        self.each = each
        self.late = late
        self.reports: list[pytest.TestReport] = []

    def write(self, **line: object) -> None:
        self.file.write(json.dumps(line) + "\n")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [i for i in items if self.chosen(_name(i.nodeid))]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.write(collected=len(session.items))
        if self.late is not None:
            self.late()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.reports = []
        signal.setitimer(signal.ITIMER_REAL, self.each)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            passed = len(self.reports) == 3 and all(r.passed for r in self.reports)  # setup, call, teardown
            self.write(test=_name(item.nodeid), passed=passed, seconds=sum(r.duration for r in self.reports))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)


def _delete_here(tree: Path, modules: Subjects, body: str) -> None:
    """Delete the functions of modules in this process, wherever they are held."""
    files = {str(tree / file): names for file, names in _files(modules).items()}
    for value in gc.get_objects():
        if type(value) is FunctionType and value.__code__.co_filename in files:
            names, free = files[value.__code__.co_filename], value.__code__.co_freevars
            chosen = names is None or value.__qualname__.partition(".")[0] in names
            if chosen and not value.__name__.startswith("__"):
                lines = [
                    "def outer():",
                    *(f" {name} = 0" for name in free),
                    " def f(*_, **__):",
                    *map("  {}".format, free),
                ]
                space: dict[str, FunctionType] = {}
                exec("\n".join([*lines, f"  {body}", " return f"]), space)
                value.__code__ = space["outer"]().__code__


def _files(modules: Subjects) -> dict[Path, set[str] | None]:
    """The files of modules and packages, relative to the tree, with the names that are deleted there."""
    return {
        file: names
        for module, names in modules.items()
        for file in ([module] if module.suffix else sorted(p.relative_to(ROOT) for p in (ROOT / module).rglob("*.py")))
    }


def _name(node: str) -> str:
    return node.partition("::")[2]


def _late(*_: object) -> None:
    pytest.fail("the test takes too long")


def _run_here(tree: Path, test: Path, reporter: _Reporter, *, first: bool) -> None:
    """Run a test file in this process, which has been forked for it."""
    import hypothesis

    os.setsid()
    os.chdir(tree)
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(quiet, stream)
    os.environ["PYTHONPATH"] = str(tree)
    for name in [n for n in sys.modules if n.partition(".")[0] in (*PACKAGES, "tests", "cases")]:
        del sys.modules[name]
    sys.path[:] = [str(tree)] + [p for p in sys.path if Path(p or ".").resolve() not in (ROOT, tree)]
    hypothesis.settings.register_profile("deletion", deadline=None, database=None, phases=list(hypothesis.Phase)[:3])
    hypothesis.settings.load_profile("deletion")  # without shrinking
    signal.signal(signal.SIGALRM, _late)
    # No hooks of the project around every test: without functions they end the whole run.
    words = ["-q", "-p", "no:ptxdiff", "-p", "no:cacheprovider", "--hypothesis-profile=deletion"]
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning", str(test), *(["-x"] if first else [])]
    pytest.main(words, plugins=[reporter])


def _forked(work: Callable[[], None], limit: float) -> None:
    """Call `work` in a fork, for `limit` seconds at most; all processes that it started end with it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    end = time.monotonic() + limit
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


class Tree:
    """A copy of the tree, in which functions can be deleted for a while."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._changes = 0
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name)
            else:
                shutil.copy2(ROOT / name, folder)

    @contextmanager
    def without(self, modules: Subjects, body: str) -> Iterator[None]:
        """The modules without their functions, or as they are where `modules` is empty."""
        paths = {self.folder / file: names for file, names in _files(modules).items()}
        for path, names in paths.items():
            path.write_text(deleted(path.read_text(), body, names))
            self._changes += 1
            os.utime(path, (self._changes, self._changes))  # bytecode is known by second and size
        try:
            yield
        finally:
            for path in paths:
                shutil.copy2(ROOT / path.relative_to(self.folder), path)

    def run(
        self,
        test: Path,
        limit: float,
        chosen: Callable[[str], bool] = bool,
        *,
        each: float = EACH,
        first: bool = False,
        late: tuple[Subjects, str] | None = None,
    ) -> Run:
        """The results of a test file in this tree. first: end with the first failure. late: delete after collection.

        What one run keeps on disk must not reach another: each has its own copy of the user's cache, or none if `late`.
        """
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="run-") as folder:
            report, cache = Path(folder, "report"), Path(folder, "cache")
            user = Path(os.environ.get("PTXDIFF_CACHE_DIR") or Path.home() / ".cache" / "ptxdiff")
            for kind in ("compiled", "sass", "targets"):
                if (user / kind).is_dir() and late is None:
                    shutil.copytree(user / kind, cache / kind, copy_function=os.link)
            report.touch()

            def work() -> None:
                os.environ["PTXDIFF_CACHE_DIR"] = str(cache) if late is None else ""
                reporter = _Reporter(report, chosen, each, partial(_delete_here, self.folder, *late) if late else None)
                _run_here(self.folder, test.resolve().relative_to(ROOT), reporter, first=first)

            _forked(work, limit)
            found = Run()
            for line in map(json.loads, report.read_text().splitlines()):
                if "test" in line:
                    found.passed[line["test"]] = line["passed"]
                    found.seconds[line["test"]] = line["seconds"]
                found.collected = line.get("collected", found.collected)
            return found


def named_for(test: Path) -> Subjects:
    """What is deleted for a test file."""
    named: Subjects = dict.fromkeys(subjects(test))
    if named and not any(map(_passes_on, named)):
        return named
    with tempfile.NamedTemporaryFile("w+") as file:  # in a fork: this process must not import the packages

        def work() -> None:
            found = {str(path): sorted(names) for path, names in imported(test).items()}
            Path(file.name).write_text(json.dumps(found))

        _forked(work, 60)
        text = Path(file.name).read_text()
    return {Path(path): set(names) for path, names in json.loads(text or "{}").items()} | named


def _passes_on(module: Path) -> bool:
    """Whether a module defines none of its public names itself, as `references.formats`."""
    if not module.suffix:
        return False
    body = ast.parse((ROOT / module).read_text()).body
    public = any(isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__" for n in body)
    return public and all(getattr(n, "name", "_").startswith("_") for n in body)


def examine(tree: Tree, test: Path, limit: float) -> str:
    """What to print about a test file."""
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
    if subjects(test) and any(map(_has_effects, modules)):
        with tree.without(modules, EFFECTS):
            run = tree.run(test, limit, each=0, first=True)
        if run.passed and all(run.passed.values()):
            notes.append("no test fails without its calls for effect" + (f"; {run.left} not run" if run.left else ""))
    alone = _untouched(tree, test, kept, limit) if kept else set()
    marked = [f"{t} (and without all functions of {', '.join(PACKAGES)})" if t in alone else t for t in sorted(kept)]
    lines = [f"{name}: {len(kept)} pass without {what}", *marked, *notes]
    return "\n    ".join(lines)


def _kept(tree: Tree, test: Path, modules: Subjects, limit: float, notes: list[str], *, late: bool) -> set[str] | None:
    """The tests that pass with either body; None where the file cannot be collected with one."""
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
    """Which of the tests pass without any function of the project: they call none, or any result suits them."""
    every: Subjects = dict.fromkeys(map(Path, PACKAGES))
    for body in BODIES:
        run = tree.run(test, limit, kept.__contains__, late=(every, body))
        kept = {test for test, passed in run.passed.items() if passed}
    return kept


def timed(tree: Tree, test: Path, limit: float) -> str:
    """The tests of a file as it is, with seconds and whether they pass."""
    run = tree.run(test, limit, each=0)
    name = test.resolve().relative_to(ROOT)
    rows = sorted(run.seconds, key=lambda t: -run.seconds[t])
    total = sum(run.seconds.values())
    lines = [f"{name}: {total:.1f} s, {len(rows)} tests" + (f", {run.left} not run" if run.left else "")]
    return "\n    ".join(lines + [f"{run.seconds[t]:.2f} {'' if run.passed[t] else '(no pass) '}{t}" for t in rows])


_tree: Tree | None = None


def _work(folder: Path, task: Callable[[Tree, Path, float], str], limit: float, test: Path) -> str:
    global _tree
    if _tree is None:  # one a process
        _tree = Tree(Path(tempfile.mkdtemp(dir=folder)))
    return task(_tree, test, limit)


def main() -> int:
    """Examine the files named, or all."""
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
