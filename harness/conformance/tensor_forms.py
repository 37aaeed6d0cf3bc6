"""The forms of tcgen05. No device at hand has them: their evidence is the specification, as the ledger states.

Their definitions are those of `ptxdiff.emulator.kernel.warp.mma*`; tests compare them with separate references.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from ptxdiff.emulator import isa
from ptxdiff.emulator.isa.forms import FORMS, Bound

OPCODE = "tcgen05"
REFUSED = ("tcgen05_ashift",)
"""Operations that are only declared, so that a kernel with them gets an error that names the operation."""


@cache
def bounds_of() -> Mapping[str, Bound]:
    """Every form by name, sorted."""
    isa.load()
    found = {b.name: b for form in FORMS[OPCODE] for b in form.spellings()}
    return MappingProxyType({name: found[name] for name in sorted(found)})
