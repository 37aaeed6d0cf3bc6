"""Fixtures and hooks for the tests of all rooms."""

from __future__ import annotations

import functools
import gc
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from ptxdiff.processes.footprint import share_cores
from ptxdiff.processes.gpus import gpus
from tests.support.readyprocess import workers_are_forks
from tests.support.readyworkers import ForkedIO

pytest_plugins = ["pytester"]

# Tests change the harness that their runs use, here and in processes of their own, so those runs reuse no results.
os.environ["PTXDIFF_REUSE"] = "0"


WITHOUT = "-p no:hypothesispytest -p no:benchmark"


def pytest_configure(config: pytest.Config) -> None:
    """Keep two plugins out of pytest in processes that tests start: hypothesis's imports all of itself at the end, and
    pytest-benchmark's starts git and three other programs.

    Collections of cyclic garbage run less often: at every 700 new objects they took a twelfth of the tests' time.
    Workers share the cores: the plugin sees to it, but it may not be installed where a GPU is.
    """
    if workers := getattr(config, "workerinput", {}).get("workercount"):
        share_cores(workers)
    gc.set_threshold(50_000, 20, 50)
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):  # not in the controller
        os.environ["PYTEST_ADDOPTS"] = WITHOUT


@pytest.hookimpl(tryfirst=True)  # before `-m` leaves items out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `sample(n)` leaves to the slow tests: all but one in n of the rows of a test that are not slow
    themselves. Checksums of their names choose them, so each run has the same ones, of all lists of parameters."""
    rows: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample") and not item.get_closest_marker("slow"):
            rows.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for of_test in rows.values():
        [sample] = of_test[0].get_closest_marker("sample").args
        of_test.sort(key=lambda item: zlib.crc32(item.name.encode()))
        for item in of_test[-(-len(of_test) // sample) :]:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Exclude torch and 15,000 items from garbage collection, which took a tenth of the time."""
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let the interpreter's end free what is excluded: Triton prints lists of what nothing has freed."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def _modules_stay() -> Iterator[None]:
    """Keep the modules that a run has imported. pytester would remove them; torch and numba cannot be imported
    twice.

    What installed packages say of themselves is read once, not anew by each pytest that a test runs in this process.
    """
    read = PathDistribution.read_text

    @functools.cache
    def text(place: str, name: str) -> str | None:
        return read(PathDistribution(Path(place)), name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("_pytest.pytester.SysModulesSnapshot.restore", lambda self: None)
        patch.setattr(PathDistribution, "read_text", lambda self, name: text(str(self._path), str(name)))
        yield


@pytest.fixture(scope="session", autouse=True)
def _workers_start_as_forks() -> Iterator[None]:
    """Spare each worker process of the harness its imports. Those that own a GPU, and those of processes that tests
    start, are new processes."""
    with pytest.MonkeyPatch.context() as patch:
        workers_are_forks(patch)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Forget the modules of files in the test's own folder. Runs walk over all modules that are loaded, so each test
    would take longer than those before it."""
    given = getattr(item, "funcargs", {})
    own = [given.get("tmp_path"), getattr(given.get("pytester"), "path", None)]
    folders = tuple(f"{folder}{os.sep}" for folder in own if folder is not None)
    yield
    if not folders:
        return
    gone: set[str] = set()
    for name, module in sys.modules.copy().items():  # a package stands before what it holds
        place = getattr(module, "__file__", None)
        if place is None and name.startswith("ptxdiff_folder_") and isinstance(getattr(module, "__path__", None), list):
            place = f"{module.__path__[0]}{os.sep}"
        if name.partition(".")[0] in gone or (isinstance(place, str) and place.startswith(folders)):
            gone.add(name)
            sys.modules.pop(name, None)


@pytest.fixture
def new_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start worker processes of the harness as users' runs do."""
    monkeypatch.setattr("ptxdiff.processes.pool.subprocess", subprocess)


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """pytest's own fixture, with the option that it removes from `$PYTEST_ADDOPTS`."""
    monkeypatch.setenv("PYTEST_ADDOPTS", WITHOUT)
    return pytester


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide the machine's GPUs from this process and from those that it starts."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    gpus.cache_clear()
    yield
    gpus.cache_clear()


@pytest.fixture
def run_cases(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    """Write case files (`name="source"`) to a folder, and run pytest on it in this process.

    The default is the emulator for sm_100a. It runs the asm alone, as it does without Triton, because compiling takes
    most of the time and has its own tests.
    """
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", "1")
    monkeypatch.setattr("ptxdiff.running.collection.collect_seldom", lambda: None)  # this process runs tests, too
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):  # the inner pytest is no worker
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("execnet.gateway_io.Popen2IOMaster", ForkedIO)  # with -n

    def run(*arguments: str, folder: str = "cases", **sources: str) -> pytest.RunResult:
        for name, source in sources.items():
            path = pytester.path / folder / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
            real = str(path.resolve())
            for module, loaded in sys.modules.copy().items():  # a finalizer may import while we walk
                if module.startswith("ptxdiff_folder_") and getattr(loaded, "__file__", None) == real:
                    del sys.modules[module]  # of an earlier text of the file
        words = list(arguments)
        if not any(w.startswith("--ptx-backend") for w in words):
            words.append("--ptx-backend=emulator")
        if not any(w.startswith("--ptx-target") for w in words):
            words.append("--ptx-target=sm_100a")
        if not any(not w.startswith("-") for w in words):
            words.append(folder)
        return pytester.runpytest_inprocess(*words)

    return run
