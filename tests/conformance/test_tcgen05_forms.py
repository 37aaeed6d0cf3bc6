"""tcgen05 in the ledger: each form has a line, no form is confirmed, and a campaign measures none."""

from __future__ import annotations

from datetime import date

import pytest

from ptxdiff.cli import main
from ptxdiff.conformance import campaign, ledger
from ptxdiff.conformance.fetch import Identity
from ptxdiff.emulator.targets import Target

PLAIN = "tcgen05.mma.cta_group::1.kind::f16"
SHIFTED = "tcgen05.mma.cta_group::1.kind::f16.ashift"
H200, B200 = (Identity("A GPU", target, "1.0", "13.4") for target in ("sm_90a", "sm_100a"))


def test_every_form_has_a_line_and_none_is_confirmed() -> None:
    entries = ledger.read().entries
    assert len(ledger.bounds_of()) > 1000
    for name, bound in ledger.bounds_of().items():
        refused = bound.form.operation in ledger.REFUSED
        assert entries[name].status == (ledger.UNCONFIRMED if refused else ledger.SPECIFICATION), name
        assert entries[name].why, name
        assert not entries[name].inputs
    assert {PLAIN, SHIFTED} <= set(ledger.bounds_of())


def test_a_line_without_the_present_definition_confirms_nothing() -> None:
    claimed = ledger.Entry(PLAIN, ledger.CONFIRMED, "1", inputs=5)
    book = ledger.Ledger({"1": ledger.Campaign("A GPU", "sm_90a", "1", "1", "2026-01-01")}, {PLAIN: claimed})
    assert not ledger.confirmed([PLAIN], book)
    assert ledger.current(book)[PLAIN].status == ledger.UNCONFIRMED


@pytest.mark.sample(2)
@pytest.mark.parametrize(("device", "status"), [(H200, ledger.SPECIFICATION), (B200, ledger.UNCONFIRMED)])
def test_a_campaign_adds_lines_and_measures_none(device: Identity, status: str) -> None:
    found = ledger.updated(ledger.Ledger(), campaign.Measured(device, {}), date(2026, 1, 2)).entries
    assert found[PLAIN].status == status
    assert found[SHIFTED].why == "the emulator refuses it"


def test_only_blackwell_has_them() -> None:
    for target, has in (("sm_90a", False), ("sm_120a", False), ("sm_100a", True)):
        unmet = ledger.bounds_of()[PLAIN].requirement_unmet(Target.parse(target))
        assert (unmet is None) is has


def test_the_command_shows_them(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["conformance", "tcgen05"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"{PLAIN}  specification only" in lines
    assert f"{SHIFTED}  unconfirmed" in lines
    assert not [line for line in lines if line.startswith("tcgen05") and "confirmed" in line.replace("unconfirmed", "")]


def test_a_measurement_runs_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def run(names: list[str], *given: object, **more: object) -> campaign.Measured:
        calls.append(names)
        return campaign.Measured(H200, {})

    monkeypatch.setattr(campaign, "run", run)
    assert main(["conformance", "tcgen05", "brev", "--device"]) == 0
    assert calls == [["brev.b32", "brev.b64"]]
