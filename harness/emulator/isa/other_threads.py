"""Instructions without a meaning for a single element, declared so that asm blocks refuse them with a clear message.

These patterns only name instructions; other modules declare those that the kernel machine runs.
"""

from __future__ import annotations

from dataclasses import replace

from ptxdiff.emulator.isa.facts import ARITHMETIC, Facts
from ptxdiff.emulator.isa.registry import refuse

_MEMORY = "a memory access"
_BARRIER = "a barrier or a memory fence"
_THREADS = "an exchange between the threads of a warp"
_TENSOR = "a tensor core instruction"
_COPY = "an asynchronous copy"
_TEXTURE = "a texture or surface access"
_CALL = "a call"

_READS = Facts(effects=False, memory="reads")
for _name in ("ld", "ldu", "st", "atom", "red", "prefetch", "prefetchu", "isspacep", "mapa", "getctarank"):
    refuse(_name, _MEMORY)
refuse("multimem", _MEMORY, Facts(memory="updates"), ld_reduce=_READS)
for _name in ("ldmatrix", "stmatrix", "movmatrix"):
    refuse(_name, _MEMORY)
for _name in ("discard", "applypriority", "stackrestore"):
    refuse(_name, _MEMORY, Facts(destinations=int(_name == "applypriority")))
for _name in ("stacksave", "alloca"):
    refuse(_name, _MEMORY, ARITHMETIC)
for _name in ("spcompress", "spdecompress"):
    refuse(_name, "the packing of a sparse matrix for tensor cores", ARITHMETIC)
refuse("cvta", "a conversion of an address")
refuse("fabric", "a transfer to or from another GPU's memory", ARITHMETIC)
refuse("mbarrier", "a barrier for asynchronous copies (TMA) and tensor cores")
for _name in ("bar", "barrier", "membar", "fence", "griddepcontrol", "setmaxnreg"):
    refuse(_name, _BARRIER)
refuse("clusterlaunchcontrol", "a cancellation of another cluster's launch")
for _name in ("shfl", "vote", "match", "activemask", "redux", "elect"):
    refuse(_name, _THREADS)
for _name in ("mma", "wgmma", "tcgen05"):
    refuse(_name, _TENSOR)
_WMMA = Facts(effects=False, exchanges="operands")
refuse(
    "wmma", _TENSOR, _WMMA, load=replace(_WMMA, memory="reads"),
    store=Facts(exchanges="together", memory="writes"),
)  # fmt: skip
refuse("createpolicy", "a cache policy for memory accesses")
refuse("cp", _COPY)
refuse("tensormap", "a change of a tensor map (TMA)")
for _name in ("tex", "tld4"):
    refuse(_name, _TEXTURE, _READS)
for _name in ("suld", "sust", "sured"):
    refuse(_name, _TEXTURE)
for _name in ("txq", "suq", "istypep"):
    refuse(_name, _TEXTURE, ARITHMETIC)
refuse("call", _CALL)
for _name in ("trap", "brkpt"):
    refuse(_name, "an instruction that stops the kernel")
