"""The pytest plugin: options, collection of case files, and records. Loaded in every pytest run: keep it light.

Nothing of torch, triton or numba is imported before a case file is collected. A run without case files loads this
module only.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ptxdiff.backends import BACKENDS
from ptxdiff.options import add_to_pytest

GROUP = "ptxdiff: differential tests of inline PTX"

_FILES = "ptxdiff_files"
"""The key in a pytest-xdist worker's input for the files that hold its items: see `ptxdiff.running.xdist`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ptxdiff's options, which all begin with --ptx-."""
    group = parser.getgroup("ptxdiff", GROUP)
    add_to_pytest(group.addoption)
    group.addoption(
        "--ptx-cases",
        action="append",
        metavar="PATH",
        help="a case file, or a folder of them that is not named 'cases'",
    )
    parser.addini("ptx_limit", "seconds after which work on a GPU is stopped", default="")
    parser.addini("ptx_cases", "glob patterns of case files outside folders named 'cases'", type="args", default=[])


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(parser: pytest.Parser, args: list[str]) -> Iterator[None]:
    """Refuse a misspelt option of ours with the nearest names, before pytest refuses it without.

    A conftest.py may have added options that begin like ours.
    """
    loaded = yield
    options_given = {word.partition("=")[0] for word in args if word.startswith("--ptx-")}
    if options_given:
        groups = [parser._anonymous, *parser._groups]
        known = {name for group in groups for option in group.options for name in option.names()}
        for word in sorted(options_given - known):
            from ptxdiff.suggestions import did_you_mean

            ours = [name for name in known if name.startswith("--ptx-")]
            raise pytest.UsageError(f"no option {word}{did_you_mean(word, ours)}")
    return loaded


def pytest_cmdline_main(config: pytest.Config) -> None:
    """Before pytest-xdist starts workers, settle the items whose results earlier runs have, in this process."""
    if not hasattr(config, "workerinput") and getattr(config.option, "tx", None) and _has_cases_alone(config):
        from ptxdiff.running import xdist

        if xdist.settles(config):
            xdist.take_over(config)


def _has_cases_alone(config: pytest.Config) -> bool:
    """Whether the run has case files only. Test modules should be imported by workers alone."""
    from ptxdiff.model.files import below

    for argument in config.args:
        path = Path(os.path.abspath(config.invocation_params.dir / argument.partition("::")[0]))
        files = [path] if path.is_file() else below(path)
        if not any(is_case_file(p, config) for p in files) or any(_is_test_file(p, config) for p in files):
            return False
    return True


def pytest_configure(config: pytest.Config) -> None:
    """Register markers, and the recorder if records are asked for."""
    for name, kind in BACKENDS.items():
        config.addinivalue_line("markers", f"{name}: {kind.does}")
    if not config.pluginmanager.has_plugin("xdist"):  # items have its marker, which --strict-markers refuses
        config.addinivalue_line("markers", "xdist_group(name): as of pytest-xdist, which this run does without")
    _check_options(config)
    if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
        from ptxdiff.processes.footprint import share_cores

        share_cores(int(workers))
    if _FILES in getattr(config, "workerinput", {}):
        config.args = list(config.workerinput[_FILES])  # type: ignore[attr-defined]
    if config.option.ptx_fresh or "ptxdiff.diskcache" in sys.modules:  # else nothing is ignored anyway
        from ptxdiff import diskcache

        diskcache.find_nothing(*(("items", "pairs", "ptx", "cubin") if config.option.ptx_fresh else ()))
    if config.option.ptx_cluster and not hasattr(config, "workerinput"):
        from ptxdiff.running.cluster.driver import join

        join(config)
    if config.option.ptx_records or getattr(config.option, "tx", None) or config.option.ptx_cluster:
        _add_recorder(config)  # else with the first case file
    if os.environ.get("TRITON_INTERPRET") == "1":  # Triton will be loaded anyway, for its interpreter
        with contextlib.suppress(ImportError):
            from ptxdiff.triton.interpreter import install

            install()


_RECORDER = "ptxdiff-recorder"


def _add_recorder(config: pytest.Config) -> None:
    """Register the plugin that collects results; only in the controller of pytest-xdist, which writes the records."""
    if hasattr(config, "workerinput") or config.pluginmanager.has_plugin(_RECORDER):
        return
    from ptxdiff.records import RecordError
    from ptxdiff.running.recorder import Recorder

    try:
        recorder = Recorder(config)
    except RecordError as e:
        raise pytest.UsageError(f"--ptx-records: {e}") from None
    config.pluginmanager.register(recorder, _RECORDER)
    config.pluginmanager.register(recorder.blocks, "ptxdiff-failure-blocks")


def _check_options(config: pytest.Config) -> None:
    """Refuse options that contradict each other or name unknown things, before anything is collected."""
    option = config.option
    if option.ptx_resume and not (option.ptx_records or "").endswith((".jsonl", ".jsonl.zst")):
        raise pytest.UsageError("--ptx-resume continues one records file: name it with --ptx-records=FILE.jsonl")
    if option.ptx_require_gpu and option.ptx_backend and not {"auto", "gpu"} & set(option.ptx_backend):
        raise pytest.UsageError(
            f"--ptx-require-gpu needs a GPU, but --ptx-backend={option.ptx_backend[0]} leaves it out"
        )
    if option.ptx_approximate != "hopper" and option.ptx_backend and not {"auto", "emulator"} & set(option.ptx_backend):
        raise pytest.UsageError(
            f"--ptx-approximate is for the emulator, but --ptx-backend={option.ptx_backend[0]} leaves it out"
        )
    _check_compilers(config)
    _check_assemblers(config)
    _check_limit(option.ptx_limit if option.ptx_limit is not None else config.getini("ptx_limit"))
    if option.ptx_dump is not None:
        _check_dump(config)
    if option.ptx_sanitize and not option.ptx_cluster:  # else each node checks for itself
        _check_sanitizer(option.ptx_backend)
    if option.ptx_timing and option.ptx_backend and not {"auto", "gpu"} & set(option.ptx_backend):
        raise pytest.UsageError(f"--ptx-timing needs a GPU, but --ptx-backend={option.ptx_backend[0]} leaves it out")
    for name in option.ptx_target or []:
        from ptxdiff.model.targets import normal

        if name == "all":
            continue

        try:
            normal(name)
        except ValueError as e:
            raise pytest.UsageError(f"--ptx-target: {e}") from None


def _check_compilers(config: pytest.Config) -> None:
    """Get each build's version now, and write its full path into the option, which pytest-xdist's workers inherit."""
    also = config.option.ptx_also or []
    if not (config.option.ptx_compiler or also or "ptxdiff.triton.builds" in sys.modules):
        return
    from ptxdiff.model.compilers import also_with
    from ptxdiff.triton import builds

    also_with(also)
    try:
        given = [builds.parse(build, config.invocation_params.dir) for build in config.option.ptx_compiler or []]
        if len(dict(given)) < len(given):
            raise ValueError("two builds have one name; give each a name of its own")
        builds.give(given)
        for name in dict.fromkeys([*dict(given), *also]):
            builds.build_called(name)
    except (ValueError, builds.NoBuild) as e:
        raise pytest.UsageError(f"--ptx-compiler: {e}") from None
    config.option.ptx_compiler = [f"{name}={python}" for name, python in given] or None


def _check_assemblers(config: pytest.Config) -> None:
    """Get each ptxas's version now, and write its full path into the option, which pytest-xdist's workers inherit."""
    option = config.option
    if not (option.ptx_assembler or option.ptx_opt):
        return
    name = "--ptx-assembler" if option.ptx_assembler else "--ptx-opt"
    users = [n for n, kind in BACKENDS.items() if kind.chosen_ptxas]
    if option.ptx_backend and not {"auto", *users} & set(option.ptx_backend):
        raise pytest.UsageError(
            f"{name} is for the backends {', '.join(users)}, but --ptx-backend={option.ptx_backend[0]} leaves them out"
        )
    from ptxdiff.running.assemblers import parsed
    from ptxdiff.triton.ptxas import NoAssembler

    try:
        places = [parsed(path, config.invocation_params.dir) for path in option.ptx_assembler or []]
    except NoAssembler as e:
        raise pytest.UsageError(f"--ptx-assembler: {e}; give the path of a ptxas, or the word bundled") from None
    option.ptx_assembler = places or None


def _check_dump(config: pytest.Config) -> None:
    """Make the folder now, and write its full path into the option, which pytest-xdist's workers inherit."""
    import errno

    path = config.invocation_params.dir / config.option.ptx_dump
    try:
        if not config.option.ptx_dump:
            raise OSError(errno.EINVAL, "it has no name")
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise pytest.UsageError(
            f"--ptx-dump: {path} cannot be a folder ({e.strerror}); give a folder, new or existing"
        ) from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise pytest.UsageError(f"--ptx-dump: {path} is not writable; give a folder that is")
    config.option.ptx_dump = str(path)


def _check_sanitizer(chosen: list[str] | None) -> None:
    from ptxdiff.backends.sanitizer import missing

    if chosen and not {"auto", "gpu"} & set(chosen):
        raise pytest.UsageError(f"--ptx-sanitize needs a GPU, but --ptx-backend={chosen[0]} leaves it out")
    if reason := missing():
        raise pytest.UsageError(f"--ptx-sanitize: {reason}")


def _check_limit(limit: Any) -> None:
    try:
        if limit != "" and not float(limit) > 0:
            raise ValueError
    except ValueError:
        raise pytest.UsageError(f"--ptx-limit: {limit!r} is no number of seconds") from None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a case file, unless pytest's own Python collector takes it: then the hook below does."""
    if parent.session.isinitpath(file_path) or _is_test_file(file_path, parent.config):
        return None
    return _case_file(file_path, parent) if is_case_file(file_path, parent.config) else None


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> Any:
    """Collect a case file that pytest would otherwise collect as a test module only."""
    config = parent.config
    if is_case_file(module_path, config):
        return (_test_module if _is_test_file(module_path, config) else _case_file)(module_path, parent)
    if parent.session.isinitpath(module_path) and not _is_test_file(module_path, config):
        from ptxdiff.model.files import uses_harness

        if uses_harness(module_path, [config.rootpath]) and _binds_cases(module_path):
            return _case_file(module_path, parent)
    return None


def is_case_file(path: Path, config: pytest.Config) -> bool:
    """Whether a path is a case file: by its place, by the ini setting, or named by `ptxdiff run`.

    A test module in a folder of cases is one too: it may hold both.
    """
    from ptxdiff.model import files

    if path.suffix != ".py":
        return False
    if path in _named(config):
        return True
    if files.hidden(path, path.parent):
        return False
    if any(path.match(pattern) for pattern in config.getini("ptx_cases")):
        return True
    folder = files.folder_of(path, config.rootpath)
    if folder is None or files.hidden(path, folder):
        return False
    ours = config.stash.setdefault(_OURS, {})
    if folder not in ours:
        ours[folder] = files.is_ours(folder, config.rootpath)
    return ours[folder]


_OURS = pytest.StashKey[dict[Path, bool]]()
_NAMED = pytest.StashKey[frozenset[Path]]()


def _named(config: pytest.Config) -> frozenset[Path]:
    """The case files that `--ptx-cases` names."""
    if _NAMED not in config.stash:
        from ptxdiff.model.files import case_files

        paths = [config.invocation_params.dir / p for p in config.option.ptx_cases or ()]
        files = (f for p in paths for f in (case_files(p) if p.is_dir() else [p]))
        config.stash[_NAMED] = frozenset(Path(os.path.abspath(f)) for f in files)
    return config.stash[_NAMED]


def _is_test_file(path: Path, config: pytest.Config) -> bool:
    from ptxdiff.model.files import is_test_file

    return is_test_file(path, config.getini("python_files"))


def _binds_cases(path: Path) -> bool:
    """Whether a file binds cases. Also true if it cannot be read, so that ptxdiff reports the fault."""
    from ptxdiff.model.load import cases_of
    from ptxdiff.model.variants import CaseError

    try:
        return bool(cases_of(path))
    except CaseError:
        return True


def _case_file(path: Path, parent: pytest.Collector) -> pytest.Collector:
    _begin_with_cases(path, parent.config)
    from ptxdiff.running.collection import CaseFile

    return CaseFile.from_parent(parent, path=path)


_COMPLETE = pytest.StashKey[bool]()
"""Whether all packages that cases need are installed."""


def _begin_with_cases(path: Path, config: pytest.Config) -> None:
    """What the first case file of a run needs. Raises UsageError if torch or triton is not installed."""
    if not config.stash.get(_COMPLETE, False):  # looking for packages takes half a millisecond
        from ptxdiff.extras import MissingPackage, require

        try:
            require("torch", "triton", "numba", "llvmlite", purpose="running cases")
        except MissingPackage as e:
            raise pytest.UsageError(f"{path.name}: {e}") from None
        config.stash[_COMPLETE] = True
    from ptxdiff.processes.footprint import pause_collections

    pause_collections()
    _add_recorder(config)


def _test_module(path: Path, parent: pytest.Collector) -> pytest.Collector:
    _begin_with_cases(path, parent.config)
    from ptxdiff.running.collection import CaseModule

    made: pytest.Collector = CaseModule.from_parent(parent, path=path)
    return made


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep together what one worker should run, where pytest-xdist is to share out groups."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from ptxdiff.running.xdist_scheduling import Grouping

    return Grouping(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a worker's own items. Check targets that are named, and a replay token, against the cases."""
    if _FILES in getattr(config, "workerinput", {}):
        from ptxdiff.running.xdist import deselect

        deselect(config, items)
    if config.option.ptx_replay is not None and not hasattr(config, "workerinput"):
        from ptxdiff.running.collection import check_replay

        check_replay(config, items)
    if config.option.ptx_target and "ptxdiff.running.collection" in sys.modules:
        from ptxdiff.running import misnamed

        misnamed.targets(session, items)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Name the nearest cases and variants for an address that is not found, and end what collection alone needs."""
    try:
        return (yield)
    except pytest.UsageError:
        if session.items:  # every address was found, and something else is refused, such as a replay token
            raise
        from ptxdiff.running import misnamed

        if misnamed.addresses(session, lambda path: _is_test_file(path, session.config)):
            return None
        raise
    finally:
        if "ptxdiff.processes.footprint" in sys.modules:
            from ptxdiff.processes.footprint import resume_collections

            resume_collections()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have the state of each case noted before any runs, and spare a run of cases alone what only tests need."""
    if "ptxdiff.running.collection" in sys.modules:
        from ptxdiff.running.carry_over import note_states_in_time
        from ptxdiff.running.collection import go_on_without_broken, spare

        go_on_without_broken(session)
        if not session.config.option.collectonly:
            note_states_in_time(session)
        spare(session)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """Add the GPU, so that comparing benchmarks of another GPU gives a warning."""
    from ptxdiff.processes.gpus import gpu_visible
    from ptxdiff.running.environment import devices

    if gpu_visible():
        facts = devices()
        for gpu in facts["gpus"]:
            del gpu["uuid"]  # another GPU of the same kind is comparable
        machine_info["gpu"] = facts


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Attach an item's records to its report, which takes them to the recorder.

    From a worker of pytest-xdist, and from a node of a cluster, they are sent as one text.
    """
    outcome = yield
    records = getattr(item, "ptxdiff_records", None)
    if records is not None and call.when == "call":
        item_records = records()
        if hasattr(item.config, "workerinput"):
            from ptxdiff.records import packed

            item_records = packed(item_records)
        outcome.get_result().ptxdiff_records = item_records
