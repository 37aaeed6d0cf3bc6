"""The case model: one operation, its reference, its policies, and the variants that compute it.

A case file is a Python module that binds one or more `Case` objects to names. Nothing is registered or inherited:

    case = Case(
        inputs={"x": F32},
        outputs={"y": F32},
        reference=reciprocal.correctly_rounded,
        variants={"rcp.rn": asm("rcp.rn.f32 $0, $1;")},
    )

A reference takes one int64 tensor of codes for each input, in the order of `inputs`, and returns one for each output,
in the order of `outputs`. An input or output of a packed format has one code per element: its last dimension is
`codes_per_unit` times that of the storage. References get torch tensors, or numpy arrays if marked with
`numpy_reference`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from ptxdiff.model.check import check_case
from ptxdiff.model.declaration import CaseDeclaration
from ptxdiff.model.tuning import configured
from ptxdiff.model.variants import Variant
from ptxdiff.suggestions import known_keywords


@known_keywords()
@dataclass(frozen=True, kw_only=True)
class Case(CaseDeclaration):
    """One operation, named after its file. Raises CaseError for a declaration that contradicts itself.

    Its fields are those of `CaseDeclaration`; the module's docstring says how references are called.
    """

    def __post_init__(self) -> None:
        if isinstance(self.variants, Mapping):
            object.__setattr__(self, "variants", configured(self.variants))
        check_case(self)

    def __repr__(self) -> str:
        sides = (", ".join(f"{n}: {a}" for n, a in side.items()) for side in (self.inputs, self.outputs))
        return f"Case(({next(sides)}) -> ({next(sides)}); variants {', '.join(self.variants)})"

    def _repr_html_(self) -> str:
        """The variants as a table, for notebooks."""
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td><pre>{escape(_code(variant))}</pre></td></tr>"
            for name, variant in self.variants.items()
        )
        return f"<p>{escape(repr(self))}</p><table><tr><th>variant</th><th>code</th></tr>{rows}</table>"


def _code(variant: Variant) -> str:
    """A variant's text for one pack, or the name of its function."""
    texts = getattr(variant, "texts", None)
    if texts:
        return str(next(iter(texts.values())).text)
    return str(getattr(variant, "text", "")) or str(getattr(getattr(variant, "function", None), "__name__", ""))
