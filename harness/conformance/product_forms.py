"""The forms of mma (dense, sparse, block-scaled) and wgmma, and the parts of the emulator's definition of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from ptxdiff.emulator import isa
from ptxdiff.emulator.isa.forms import FORMS, Bound, Form
from ptxdiff.emulator.targets import Target


@cache
def bounds_of() -> Mapping[str, Bound]:
    """Every form by name, sorted."""
    isa.load()
    by_name = {b.name: b for form in (*FORMS["mma"], *FORMS["wgmma"]) if multiplies(form) for b in form.spellings()}
    return MappingProxyType({name: by_name[name] for name in sorted(by_name)})


def multiplies(form: Form) -> bool:
    """Whether a form multiplies matrices, with a result in registers."""
    return form.facts.product in ("warp", "warpgroup")


def target_of(bound: Bound) -> str:
    """A target that has a form: the H200's if possible."""
    tried = ("sm_90a", "sm_100a", "sm_120a", "sm_75", "sm_70")
    return next(t for t in tried if bound.requirement_unmet(Target.parse(t)) is None)


_BY_INSTRUCTIONS = {
    "quads": ("cvt.f32.f16", "fma.rn.f32", "add.rn.f32", "mul.rn.f32", "cvt.rn.f16.f32"),
    "widened": ("add.rn.f16", "add.rn.f32"),
    "double": ("fma.rn.f64", "fma.rz.f64", "fma.rm.f64", "fma.rp.f64"),
}
"""The instructions that the ways of `ptxdiff.emulator.kernel.tensor_cores` use besides their own code."""


def definition(form: str, code: Callable[[Callable[..., object]], str], digest: Callable[[str], str]) -> str:
    """A text that changes when a form's definition does.

    code: the digest of a function and all functions that it calls. digest: the digest of another form.
    """
    from ptxdiff.emulator.kernel import tensor_cores as multiply
    from ptxdiff.emulator.kernel.warp import fragments, mma
    from ptxdiff.emulator.numeric import tensorcore

    bound = bounds_of()[form]
    if bound.form.facts.product == "warpgroup":
        return _of_a_warpgroup(form, bound, code)
    if bound.form.operation != "mma":
        return _of_another(form, bound, code)
    how = mma.arithmetic_of(bound, Target.parse(target_of(bound)))
    functions: list[Any] = [
        fragments.of_a, fragments.of_b, fragments.of_c, fragments.of_quads, multiply.arithmetic,
        *multiply.functions(), tensorcore.dot, tensorcore._dot,
    ]  # fmt: skip
    parts = [code(getattr(f, "__wrapped__", f)) for f in functions]
    used = [digest(name) for name in _BY_INSTRUCTIONS.get(how.way if how else "", ())]
    return f"{form} {how} {parts} {used} {tensorcore.FLOATS} {tensorcore.BITS}"


def _of_a_warpgroup(form: str, bound: Bound, code: Callable[[Callable[..., object]], str]) -> str:
    """See `definition`: the arithmetic of a wgmma, and the layout of its elements and metadata."""
    from ptxdiff.emulator.kernel import tensor_cores as multiply
    from ptxdiff.emulator.kernel.warp import fragments
    from ptxdiff.emulator.kernel.warp import sparse_mma as sparse
    from ptxdiff.emulator.kernel.wgmma import descriptors
    from ptxdiff.emulator.kernel.wgmma import multiply as warpgroup
    from ptxdiff.emulator.numeric import tensorcore

    functions: list[Any] = [
        fragments.of_a, fragments.of_c, warpgroup.accumulators, warpgroup.arranged, warpgroup.signed,
        descriptors.decoded, descriptors.addresses, descriptors._along, *multiply.functions(), tensorcore.dot,
        tensorcore._dot,
    ]  # fmt: skip
    if bound.form.operation == "wgmma_sp":
        functions += [sparse.storage, sparse.multiplied, sparse.chunks_of, sparse.kept]
    parts = [code(getattr(f, "__wrapped__", f)) for f in functions]
    how = warpgroup.arithmetic_of(bound)
    return f"{form} {how} {parts} {descriptors.SWIZZLES} {tensorcore.FLOATS} {tensorcore.BITS}"


def _of_another(form: str, bound: Bound, code: Callable[[Callable[..., object]], str]) -> str:
    """See `definition`: a sparse or a block-scaled mma, or both."""
    from ptxdiff.emulator.kernel import tensor_cores as multiply
    from ptxdiff.emulator.kernel.warp import fragments, scaled_mma, sparse_scaled_mma
    from ptxdiff.emulator.kernel.warp import sparse_mma as sparse
    from ptxdiff.emulator.numeric import scaledproducts, tensorcore

    functions: list[Any] = [fragments.of_a, fragments.of_b, fragments.of_c]
    if bound.form.operation == "mma_sp":
        how: Any = sparse.arithmetic_of_sparse(bound, Target.parse(target_of(bound)))
        functions += [
            sparse.storage, sparse.multiplied, sparse.columns, multiply.arithmetic, *multiply.functions(),
            tensorcore.dot, tensorcore._dot,
        ]  # fmt: skip
    else:
        how = scaledproducts.BLACKWELL
        functions += [
            scaled_mma._scales,
            scaled_mma.scales_of,
            scaled_mma._run_scaled,
            scaledproducts.dot,
            scaledproducts._dot,
        ]
        if bound.form.operation == "mma_sp_scaled":
            functions += [
                sparse.storage,
                sparse.columns,
                sparse.kept,
                sparse_scaled_mma._run,
                sparse_scaled_mma.multiplied,
            ]
    parts = [code(getattr(f, "__wrapped__", f)) for f in functions]
    return f"{form} {how} {parts} {tensorcore.FLOATS} {tensorcore.BITS}"
