"""Barriers, fences, and exchanges within a warp, for whole kernels (ISA 9.7.9.6, 9.7.13)."""

from __future__ import annotations

from ptxdiff.emulator.isa.facts import Facts
from ptxdiff.emulator.isa.registry import operation

_BARRIER = Facts(destinations=0, exchanges="together", waits="barrier", computes=False)
_ARRIVAL = Facts(destinations=0, exchanges="together", waits="arrival", orders_parts=True)
_REDUCTION = Facts(exchanges="together", waits="barrier")
_OF_A_WARP = Facts(destinations=0, exchanges="together", waits="warp", computes=False)
_FENCE = Facts(destinations=0, orders_blocks=True, orders_parts=True, computes=False)
_PROXY_FENCE = Facts(destinations=0, computes=False)
_EXCHANGE = Facts(effects=False, exchanges="operands")
operation("bar{.cta}.sync", "barrier", section="9.7.13.1", facts=_BARRIER)
operation("barrier{.cta}.sync{.aligned}", "barrier", section="9.7.13.1", facts=_BARRIER)
operation("bar{.cta}.arrive", "barrier_arrive", section="9.7.13.1", facts=_ARRIVAL)
operation("barrier{.cta}.arrive{.aligned}", "barrier_arrive", section="9.7.13.1", facts=_ARRIVAL)
for _name, _aligned in (("bar", ""), ("barrier", "{.aligned}")):
    operation(f"{_name}{{.cta}}.red.popc{_aligned}.u32", "barrier_red", section="9.7.13.1", facts=_REDUCTION)
    operation(
        f"{_name}{{.cta}}.red.op{_aligned}.pred", "barrier_red", section="9.7.13.1", op=".and .or", facts=_REDUCTION
    )
operation("bar.warp.sync", "warp_barrier", section="9.7.13.2", facts=_OF_A_WARP)
operation("membar.level", "fence", section="9.7.13.4", level=".cta .gl .sys", facts=_FENCE)
operation(
    "fence{.sem}.scope",
    "fence",
    section="9.7.13.4",
    sem=".sc .acq_rel .acquire .release",
    scope=".cta .cluster .gpu .sys",
    facts=_FENCE,
)
operation("fence.proxy.alias", "fence", section="9.7.13.4", facts=_FENCE)
operation(
    "fence.proxy.async{.space}",
    "proxy_fence",
    section="9.7.13.4",
    requires=90,
    space=".global .shared::cta .shared::cluster",
    facts=_PROXY_FENCE,
)
operation(
    "griddepcontrol.action",
    "fence",
    section="9.7.12.13",
    action=".launch_dependents .wait",
    requires=90,
    facts=_PROXY_FENCE,
)
operation(
    "setmaxnreg.action.sync.aligned.u32",
    "fence",
    section="9.7.19.5",
    action=".inc .dec",
    requires="90a 100a 100f 103a 110a 120a",
    facts=_PROXY_FENCE,
)
operation("shfl.sync.mode.b32", "shfl", section="9.7.9.6", mode=".up .down .bfly .idx", facts=_EXCHANGE)
operation("vote.sync.mode.pred", "vote", section="9.7.13.9", mode=".all .any .uni", facts=_EXCHANGE)
operation("vote.sync.ballot.b32", "ballot", section="9.7.13.9", facts=_EXCHANGE)
operation("match.any.sync.type", "match", section="9.7.13.10", type=".b32 .b64", facts=_EXCHANGE)
operation("match.all.sync.type", "match", section="9.7.13.10", type=".b32 .b64", facts=_EXCHANGE)
operation("activemask.b32", "activemask", section="9.7.13.11", facts=Facts(effects=False, exchanges="together"))
operation(
    "redux.sync.op.type",
    "redux",
    section="9.7.13.12",
    op=".add .min .max",
    type=".u32 .s32",
    requires=80,
    facts=_EXCHANGE,
)
operation(
    "redux.sync.op.type", "redux", section="9.7.13.12", op=".and .or .xor", type=".b32", requires=80, facts=_EXCHANGE
)
operation(
    "redux.sync.op{.abs}{.NaN}.f32",
    "redux",
    section="9.7.13.12",
    op=".min .max",
    requires="100a 100f 103a 110a",
    facts=_EXCHANGE,
)
operation("elect.sync", "elect", section="9.7.13.14", requires=90, facts=Facts(effects=False, exchanges="together"))
operation("trap", "trap", section="9.7.19.6", facts=Facts(destinations=0, control="end"))
operation("brkpt", "trap", section="9.7.19.1", facts=Facts(destinations=0))
