"""The forms of tcgen05. No device at hand has any: they rest on the specification, and the ledger says so of each.

Their definitions are those of `harness.ptx.kernel.tensor*`, which tests hold to references of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from harness.ptx import isa
from harness.ptx.isa.forms import FORMS, Bound

OPCODE = "tcgen05"
REFUSED = ("tcgen05_ashift", "tcgen05_ld_red")
"""Operations that are declared, so that a kernel with them is told what is refused."""


@cache
def bounds_of() -> Mapping[str, Bound]:
    """Every form by name, sorted."""
    isa.load()
    found = {b.name: b for form in FORMS[OPCODE] for b in form.spellings()}
    return MappingProxyType({name: found[name] for name in sorted(found)})
