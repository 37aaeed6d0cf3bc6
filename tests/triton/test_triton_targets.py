"""The probed table of targets."""

import pytest

from ptxdiff.model.targets import KNOWN, capability
from ptxdiff.triton import builds, targets


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """An empty cache folder, and a module that has not probed any target."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("PTXDIFF_CACHE_DIR", raising=False)
    targets.probe.cache_clear()
    yield tmp_path
    targets.probe.cache_clear()


def test_common_targets_are_served():
    assert {"sm_80", "sm_86", "sm_90a", "sm_100a", "sm_120a"} <= set(targets.available())


def test_available_targets_are_known_and_in_order():
    names = targets.available()
    assert set(names) <= set(KNOWN)
    assert list(names) == sorted(names, key=capability)


def test_every_known_target_has_an_entry_and_every_gap_a_reason():
    table = targets.probe()
    assert set(KNOWN) <= set(table)
    for info in table.values():
        assert info.available != bool(info.words)
        assert info.available <= bool(info.ptxas)


def test_the_result_is_kept_and_read_back(fresh, monkeypatch):
    first = targets.probe()
    targets.probe.cache_clear()
    monkeypatch.setattr(targets, "_probe", lambda: pytest.fail("probed again"))
    assert targets.probe() == first


def test_a_damaged_file_is_replaced(fresh, monkeypatch):
    calls = []
    monkeypatch.setattr(targets, "_probe", lambda: calls.append(1) or {"sm_80": targets.TargetInfo("sm_80", True)})
    targets.probe()
    (path,) = (fresh / "ptxdiff" / "targets").glob("*.bin")
    path.write_bytes(path.read_bytes()[:-1])
    for _ in range(2):
        targets.probe.cache_clear()
        assert list(targets.probe()) == ["sm_80"]
    assert calls == [1, 1]


def test_an_interrupted_probe_is_not_stored(fresh, monkeypatch):
    killed = targets.TargetInfo("sm_80", False, "the compiler was killed (SIGKILL)")
    monkeypatch.setattr(targets, "_probe", lambda: {"sm_80": killed})
    targets.probe()
    assert not list(fresh.rglob("*.bin"))


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.delenv("PTXDIFF_CACHE_DIR", raising=False)
    targets.probe.cache_clear()
    monkeypatch.setattr(targets, "_probe", lambda: {"sm_80": targets.TargetInfo("sm_80", True)})
    try:
        assert list(targets.probe()) == ["sm_80"]
    finally:
        targets.probe.cache_clear()


def test_without_triton_the_reason_is_given(monkeypatch):
    builds.triton_folder.cache_clear()
    monkeypatch.setattr(builds.importlib.util, "find_spec", lambda name: None)
    try:
        with pytest.raises(builds.NoTriton, match="pip install 'ptxdiff"):
            builds.triton_folder()
    finally:
        builds.triton_folder.cache_clear()


@pytest.mark.parametrize("name", ["ptxas", "nvdisasm"])
def test_a_tool_can_be_named_by_the_variable_that_triton_reads(name, tmp_path, monkeypatch):
    other = tmp_path / name
    other.write_text("")
    monkeypatch.setenv(f"TRITON_{name.upper()}_PATH", str(other))
    assert targets.tool(name) == other
