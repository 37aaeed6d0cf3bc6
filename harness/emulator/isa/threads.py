"""Barriers, fences, and exchanges within a warp, for whole kernels (ISA 9.7.9.6, 9.7.13)."""

from __future__ import annotations

from ptxdiff.emulator.isa.registry import operation

operation("bar{.cta}.sync", "barrier", section="9.7.13.1")
operation("barrier{.cta}.sync{.aligned}", "barrier", section="9.7.13.1")
operation("bar{.cta}.arrive", "barrier_arrive", section="9.7.13.1")
operation("barrier{.cta}.arrive{.aligned}", "barrier_arrive", section="9.7.13.1")
for _name, _aligned in (("bar", ""), ("barrier", "{.aligned}")):
    operation(f"{_name}{{.cta}}.red.popc{_aligned}.u32", "barrier_red", section="9.7.13.1")
    operation(f"{_name}{{.cta}}.red.op{_aligned}.pred", "barrier_red", section="9.7.13.1", op=".and .or")
operation("bar.warp.sync", "warp_barrier", section="9.7.13.2")
operation("membar.level", "fence", section="9.7.13.4", level=".cta .gl .sys")
operation(
    "fence{.sem}.scope",
    "fence",
    section="9.7.13.4",
    sem=".sc .acq_rel .acquire .release",
    scope=".cta .cluster .gpu .sys",
)
operation("fence.proxy.alias", "fence", section="9.7.13.4")
operation(
    "fence.proxy.async{.space}",
    "proxy_fence",
    section="9.7.13.4",
    requires=90,
    space=".global .shared::cta .shared::cluster",
)
operation("griddepcontrol.action", "fence", section="9.7.12.13", action=".launch_dependents .wait", requires=90)
operation(
    "setmaxnreg.action.sync.aligned.u32",
    "fence",
    section="9.7.19.5",
    action=".inc .dec",
    requires="90a 100a 100f 103a 110a 120a",
)
operation("shfl.sync.mode.b32", "shfl", section="9.7.9.6", mode=".up .down .bfly .idx")
operation("vote.sync.mode.pred", "vote", section="9.7.13.9", mode=".all .any .uni")
operation("vote.sync.ballot.b32", "ballot", section="9.7.13.9")
operation("match.any.sync.type", "match", section="9.7.13.10", type=".b32 .b64")
operation("match.all.sync.type", "match", section="9.7.13.10", type=".b32 .b64")
operation("activemask.b32", "activemask", section="9.7.13.11")
operation("redux.sync.op.type", "redux", section="9.7.13.12", op=".add .min .max", type=".u32 .s32", requires=80)
operation("redux.sync.op.type", "redux", section="9.7.13.12", op=".and .or .xor", type=".b32", requires=80)
operation("redux.sync.op{.abs}{.NaN}.f32", "redux", section="9.7.13.12", op=".min .max", requires="100a 100f 103a 110a")
operation("elect.sync", "elect", section="9.7.13.14", requires=90)
operation("trap", "trap", section="9.7.19.6")
operation("brkpt", "trap", section="9.7.19.1")
