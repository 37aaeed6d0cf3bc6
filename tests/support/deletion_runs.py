"""Run a test file in a copy of the tree from which functions were deleted. See `tests.support.deletion`."""

from __future__ import annotations

import ast
import gc
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FunctionType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("harness", "references", "reports")
COPIED = (*PACKAGES, "ptxdiff", "cases", "tests", "pyproject.toml", "Makefile", "README.md", "CHANGELOG.md")
EFFECTS = ""
"""In place of a body: calls whose result is not used are deleted."""
EACH = 15.0  # seconds for one test; a test that takes longer without the functions counts as failed

Subjects = dict[Path, set[str] | None]
"""The modules whose functions are deleted, with the names of those functions; None: all of them."""


def deleted(text: str, body: str, names: set[str] | None) -> str:
    """A module's text with the body of each function replaced; for `EFFECTS`, without calls whose result is not used.

    names: only of these functions and classes.
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
    """Deletes statements inside functions that are only a call."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        for inner in ast.walk(node):
            for name in ("body", "orelse", "finalbody"):
                statements = getattr(inner, name, None)
                if isinstance(statements, list):
                    setattr(inner, name, [ast.Pass() if _is_effect(s) else s for s in statements])
        return node


def _is_effect(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)


def has_effects(module: Path) -> bool:
    files = [ROOT / module] if module.suffix else list((ROOT / module).rglob("*.py"))
    return any(_is_effect(node) for file in files for node in ast.walk(ast.parse(file.read_text())))


@dataclass
class Run:
    """The results of the tests of one file: whether each passed, and its seconds."""

    passed: dict[str, bool] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    collected: int = 0

    @property
    def left(self) -> int:
        """The number of tests without a result, because the limit or the process ended the run."""
        return self.collected - len(self.passed)


class _Reporter:
    """Writes a line for each test.

    chosen: which tests to run. each: seconds after which a test counts as failed; 0: no limit. late: called once, after
    collection.
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
    """Delete the functions of modules in this process, in all objects that hold them."""
    files = {str(tree / file): names for file, names in files_of(modules).items()}
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


def files_of(modules: Subjects) -> dict[Path, set[str] | None]:
    """The files of modules and packages, relative to the tree, with the names that are deleted in them."""
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
    """Run a test file in this process, which was forked for it."""
    import hypothesis

    os.setsid()
    os.chdir(tree)
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(quiet, stream)
    os.environ["PYTHONPATH"] = str(tree)
    for name in [n for n in sys.modules if n.partition(".")[0] in ("ptxdiff", "tests", "cases")]:
        del sys.modules[name]
    sys.path[:] = [str(tree)] + [p for p in sys.path if Path(p or ".").resolve() not in (ROOT, tree)]
    hypothesis.settings.register_profile("deletion", deadline=None, database=None, phases=list(hypothesis.Phase)[:3])
    hypothesis.settings.load_profile("deletion")  # without shrinking
    signal.signal(signal.SIGALRM, _late)
    # Without the project's hooks around each test: once their functions are deleted, they would end the whole run.
    words = ["-q", "-p", "no:ptxdiff", "-p", "no:cacheprovider", "--hypothesis-profile=deletion"]
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning", str(test), *(["-x"] if first else [])]
    pytest.main(words, plugins=[reporter])


def forked(work: Callable[[], None], limit: float) -> None:
    """Call `work` in a fork, for at most `limit` seconds; then kill all processes that it started."""
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
    """A copy of the tree, in which functions can be deleted for a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._changes = 0
        for name in COPIED:
            if (ROOT / name).is_dir() and not (ROOT / name).is_symlink():
                shutil.copytree(ROOT / name, folder / name, symlinks=True)
            else:
                shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)

    @contextmanager
    def without(self, modules: Subjects, body: str) -> Iterator[None]:
        """Delete the functions of the modules until the context ends; nothing if `modules` is empty."""
        paths = {self.folder / file: names for file, names in files_of(modules).items()}
        for path, names in paths.items():
            path.write_text(deleted(path.read_text(), body, names))
            self._changes += 1
            os.utime(path, (self._changes, self._changes))  # Python compares bytecode by second and size
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
        """The results of a test file in this tree. first: stop at the first failure. late: delete after collection.

        Files that one run keeps must not reach another run: each has its own copy of the user's cache, or none if
        `late`.
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

            forked(work, limit)
            found = Run()
            for line in map(json.loads, report.read_text().splitlines()):
                if "test" in line:
                    found.passed[line["test"]] = line["passed"]
                    found.seconds[line["test"]] = line["seconds"]
                found.collected = line.get("collected", found.collected)
            return found
