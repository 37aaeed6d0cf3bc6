"""Whether the results of an item may be carried over to another run: one key for all ways in which that happens.

Reuse, resumed runs, replays and the gate compare the same parts: the definition of the variant
(`model/identity/definition`), what stands around it (`model/identity/dependencies`), and the files that its code opened
(`model/identity/opened`). Reuse takes them byte for byte, with all that is installed; records hold them without
comments and layout. A part without an encoding equals no part of another process: such results are carried over
nowhere, and the run says so.

Values may also change while a process runs: one case's function sets a global that another case reads. So the state of
a case is digested before any code of a case runs after their collection, and again around each of its runs. A case
whose state has changed is not the case that a later process would load.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ptxdiff.model.case import Case
from ptxdiff.model.identity import digest_with_code
from ptxdiff.model.identity.code import is_users
from ptxdiff.model.identity.definition import INCOMPARABLE, changed_parts, definition, what_changed
from ptxdiff.model.identity.dependencies import (
    PytestSession,
    changed_files,
    dependencies,
    opened,
    portable,
    set_from_outside,
    set_session,
)
from ptxdiff.model.identity.encoding import without_encoding
from ptxdiff.records import UNPROVED, Result
from ptxdiff.running.item import Item, ItemResults, fingerprint_of

if TYPE_CHECKING:
    import pytest

_NONCE = os.urandom(4).hex()

OUTSIDE, STATE = "what its code opens", "its values"
"""The names of parts that only a run shows."""


def with_dependencies(item: Item, found: ItemResults) -> None:
    """Write into an item's first result what its results depend on, besides the definition."""
    if not found.results or all(r.verdict == "not run" for r in found.results):
        return
    path = item.loaded.path
    parts, files = dependencies(path), opened(path)
    if files.unknown:
        parts[OUTSIDE] = _incomparable(files.unknown[0])
    if alteration := _altered.get(id(item.loaded.case)):
        parts[STATE] = _incomparable(alteration)
    opened_files = portable(path, files.files)
    found.results[0] = replace(found.results[0], dependencies=parts, opened=opened_files)


def _incomparable(words: str) -> str:
    return f"{INCOMPARABLE}{words} {_NONCE}"


def changed_since(item: Item, results: Sequence[Result]) -> str:
    """What has changed since an item's results were recorded, in words; "" if nothing has.

    Results of items that were not run have no definition that could change.
    """
    ran = [r for r in results if r.verdict != "not run"]
    if not ran:
        return ""
    before = next((dict(r.fingerprint) for r in ran if r.fingerprint), {})
    around = next((dict(r.dependencies) for r in ran if r.dependencies), None)
    if around is None:
        return "the records do not say what the results depend on"
    path = item.loaded.path
    if changes := what_changed({**before, **around}, {**fingerprint_of(item), **dependencies(path)}):
        return changes
    files = changed_files(path, next((r.opened for r in ran if r.opened), {}))
    return f"{files[0]}, which its code opens, changed" if files else ""


def carried_nowhere(result: Result) -> str:
    """Why an item's results are carried over to no other run, in words; "" if they can be."""
    parts = {**result.fingerprint, **result.dependencies}
    strange = {n: d for n, d in parts.items() if d.startswith(INCOMPARABLE)}
    return what_changed({}, strange) if strange else ""


# ---- the state of a case while a process runs ----------------------------------------------------------------

_states: dict[int, tuple[Case, str, bool]] = {}
"""By the ids of cases, which are kept alive: the digest before anything ran, and whether it is comparable."""

_altered: dict[int, str] = {}
"""By the ids of cases: how their values have changed since then."""

_last_run: int | None = None  # the id of the case that ran last, whose state was looked at after its run


_unnoted: list[Any] = []
"""The items of pytest whose states are noted when the first of them runs."""

_BEFORE_ITEMS = frozenset(
    {"pytest_addhooks", "pytest_addoption", "pytest_cmdline_main", "pytest_collect_directory", "pytest_collect_file",
     "pytest_collection_modifyitems", "pytest_configure", "pytest_ignore_collect", "pytest_load_initial_conftests",
     "pytest_plugins", "pytest_plugin_registered", "pytest_report_header", "pytest_sessionfinish",
     "pytest_sessionstart", "pytest_terminal_summary", "pytest_unconfigure"}
)  # fmt: skip
"""Hooks that pytest calls before it has collected all items, or after all of them ran."""


def note_states_in_time(session: pytest.Session) -> None:
    """Note the states of the cases of a session's items, at the latest when the first of them runs.

    Digests of a catalogue take longer than the results of an earlier run, and looking those up runs no code of a case.
    If other code of the user may run before the first item, such as a test or a hook, they are noted now.
    """
    _unnoted[:] = session.items
    alone = all(isinstance(getattr(item, "item", None), Item) for item in session.items)
    if not alone or _runs_between(session.config.pluginmanager):
        note_states()


def _runs_between(manager: pytest.PytestPluginManager) -> bool:
    """Whether the user has hooks that pytest calls between collection and the first item's run.

    A hook has the name by which pytest calls it, whatever its function is called and whichever object holds it.
    """
    callers = [caller for name, caller in vars(manager.hook).items() if name.startswith("pytest_")]
    found = [impl for caller in callers if caller.name not in _BEFORE_ITEMS for impl in caller.get_hookimpls()]
    modules = {_module_of(plugin) for impl in found for plugin in (impl.plugin, impl.function)}
    return any(module is not None and is_users(module) for module in modules)


def _module_of(plugin: object) -> ModuleType | None:
    """The module of a plugin, or of a function: itself, or what defines it."""
    if isinstance(plugin, ModuleType):
        return plugin
    return sys.modules.get(getattr(plugin, "__module__", None) or type(plugin).__module__)


def note_states() -> None:
    """Note the states of all cases now: code of a case is about to run."""
    items = [*_unnoted]
    _unnoted.clear()
    for item in items:
        ours = getattr(item, "item", None)
        if isinstance(ours, Item):
            state_of(ours.loaded.case)
            fingerprint_of(ours)  # kept, and so the parts that change later have names


def state_of(case: Case) -> tuple[str, bool]:
    """The digest of a case with all code and values that it uses, as it was first asked for.

    Also whether another process can have the same: a value without an encoding has no equal there.
    """
    if id(case) not in _states:
        _states[id(case)] = (case, *_digest(case))
    return _states[id(case)][1:]


def _digest(case: Case) -> tuple[str, bool]:
    met = len(without_encoding())
    encoded = digest_with_code(case, exact=True)
    return encoded, len(without_encoding()) == met


def before_run(item: Item) -> str:
    """A note for an item's results if the values of its case have changed since it was collected; "" if not.

    `note_states` was called before.
    """
    case = item.loaded.case
    if id(case) != _last_run and id(case) not in _altered:
        if parts := _changed(item):
            _altered[id(case)] = f"another case or a plugin changed the values that {parts} uses before it ran"
        elif alteration := set_from_outside(item.loaded.path):
            _altered[id(case)] = f"another file changed what it imports: {alteration}"
    alteration = _altered.get(id(case), "")
    return f"{UNPROVED}{alteration}; alone it may get another verdict" if alteration.startswith("another") else ""


def after_run(item: Item) -> None:
    """Look at the values of an item's case after its run."""
    global _last_run
    case = item.loaded.case
    if id(case) not in _altered and (parts := _changed(item)):
        _altered[id(case)] = f"its own run changed the values that {parts} uses"
    _last_run = id(case)


def is_altered(case: Case) -> bool:
    """Whether the values of a case have changed since its items were collected."""
    return id(case) in _altered


def _changed(item: Item) -> str:
    """The parts of an item's definition whose values have changed, in words; "" if none has."""
    case, variant = item.loaded.case, item.variant
    before, comparable = state_of(case)
    now, _ = _digest(case)
    if not comparable or now == before:
        return ""
    parts = changed_parts(definition(case, variant), definition(case, variant, anew=True))
    return " and ".join(parts) or "another variant of the case"


# ---- the session of pytest -----------------------------------------------------------------------------------


def of_session(config: pytest.Config) -> None:
    """From now on, cases are those of this session of pytest, with its plugins, settings and options."""
    global _last_run
    manager = config.pluginmanager
    modules = [p if isinstance(p, ModuleType) else sys.modules.get(type(p).__module__) for p in manager.get_plugins()]
    files = {str(m.__file__) for m in modules if m is not None and getattr(m, "__file__", None) and is_users(m)}
    installed = {f"{d.project_name} {d.version}" for _, d in manager.list_plugin_distinfo()}
    plugins = sorted(f for f in files if os.path.basename(f) != "conftest.py")
    set_session(PytestSession(str(config.rootpath), tuple(plugins), tuple(sorted(installed)), _settings_of(config)))
    _altered.clear()
    _last_run = None


def _settings_of(config: pytest.Config) -> Callable[[str], str | None]:
    """The values of options and ini settings by name, as texts that are the same in every process."""

    def setting(name: str) -> str | None:
        option = vars(config.option).get(name.lstrip("-").replace("-", "_"))
        try:
            ini = config.getini(name)
        except (ValueError, KeyError):  # no ini setting has that name
            ini = None
        values = [v for v in (option, ini) if isinstance(v, str | int | float | bool | list | tuple)]
        return repr(values) if values else None

    return setting
