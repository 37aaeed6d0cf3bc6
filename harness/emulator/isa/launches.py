"""Cancellation of clusters that have not been launched yet (clusterlaunchcontrol; ISA 9.7.13.17, 9.7.13.18)."""

from __future__ import annotations

from ptxdiff.emulator.isa.facts import Facts
from ptxdiff.emulator.isa.registry import operation

_CANCEL = "clusterlaunchcontrol.try_cancel.async{.space}.mbarrier::complete_tx::bytes"
_QUERY = "clusterlaunchcontrol.query_cancel"
_SECTION = "9.7.13.17"
_CANCELS = Facts(memory="writes", orders_parts=True, reaches="grid", proxy="async")
_QUERIES = Facts(effects=False, orders_parts=True, reaches="grid")
operation(f"{_CANCEL}.b128", "launch_cancel", section=_SECTION, requires=100, space=".shared::cta", facts=_CANCELS)
operation(
    f"{_CANCEL}.multicast::cluster::all.b128", "launch_cancel", section=_SECTION, requires="100f 110f 120f",
    space=".shared::cta", facts=_CANCELS,
)  # fmt: skip
operation(f"{_QUERY}.is_canceled.pred.b128", "launch_query", section="9.7.13.18", requires=100, facts=_QUERIES)
operation(f"{_QUERY}.get_first_ctaid.v4.b32.b128", "launch_query", section="9.7.13.18", requires=100, facts=_QUERIES)
operation(
    f"{_QUERY}.first.b32.b128", "launch_query", section="9.7.13.18", requires=100,
    first=".get_first_ctaid::x .get_first_ctaid::y .get_first_ctaid::z", facts=_QUERIES,
)  # fmt: skip
