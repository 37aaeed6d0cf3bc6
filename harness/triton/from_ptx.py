"""Kernels given as PTX: makes a compilation of their text.

The text is not parsed, so that a kernel with instructions unknown to the emulator can still be assembled and launched.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from typing import Any

from ptxdiff.model.targets import INTRODUCED, capability, version_number
from ptxdiff.triton.diagnostics import Refusal
from ptxdiff.triton.ptx_text import without_comments
from ptxdiff.triton.spec import UNASKED, Compilation, Compiled, FunctionRef, GivenPtx, KernelSpec

WARP = 32
_TARGET = re.compile(r"^\s*\.target\s+sm_(\d+)([af]?)", re.M)
_HEADER = re.compile(r"\s*\.version\s+(\d+\.\d+)\s+\.target\s+(\w+)")
_ENTRY = re.compile(r"\.entry\s+([\w$%]+)\s*(?:\(([^)]*)\))?([^{;]*)")
_REQUIRED = re.compile(r"\.reqntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")


def given_spec(given: GivenPtx, parameters: Sequence[str], target: str, *, enable_fp_fusion: bool) -> KernelSpec:
    """The spec of a kernel given as PTX. parameters: a name for each parameter of the kernel, in order."""
    signature = tuple((name, "given") for name in parameters)
    return KernelSpec(FunctionRef("", "", given.entry), signature, (), (), target, enable_fp_fusion, given=given)


def taken_as_given(spec: KernelSpec) -> Compiled:
    """The kernel's compilation, or why it cannot be launched with these parameters, this block or on this target."""
    given = spec.given
    assert given is not None
    code = without_comments(given.text)
    found = _ENTRY.findall(code)
    names = [name for name, *_ in found]
    if given.entry not in names if given.entry else len(names) != 1:
        listed = ", ".join(names)
        if not names:
            return _refused("has no kernel: there is no .entry in it")
        if given.entry:
            return _refused(f"has no kernel {given.entry!r}; it has {listed}")
        return _refused(f"has {len(names)} kernels, {listed}; say which in entry=")
    entry, parameters, directives = found[names.index(given.entry) if given.entry else 0]
    declared = _parameters(parameters)
    if len(declared) != len(spec.signature):
        return _refused(f"kernel {entry} has {len(declared)} parameters, but parameters= gives {len(spec.signature)}")
    required = _REQUIRED.search(directives)
    if required and tuple(int(size or 1) for size in required.groups()) != given.block:
        return _refused(f"kernel {entry} demands {required[0].strip()}, but block= is {given.block}")
    if reason := other_target(code, spec.target):
        return Refusal("unsupported", reason)
    if reason := header_fault(code):
        return _refused(reason)
    return Compilation(spec, given.text, entry, given.shared, math.prod(given.block) // WARP, UNASKED)


def entries(text: str) -> list[str]:
    """The names of the kernels in a module, in order."""
    return [name for name, *_ in _ENTRY.findall(without_comments(text))]


def packed(ptx: str, entry: str, values: Sequence[Any]) -> tuple[bytes, ...]:
    """The bytes of each parameter of a kernel, as the driver API takes them. values: addresses, numbers, or bytes.

    Raises ValueError for a value that does not fit its parameter.
    """
    parameters = next(declared for name, declared, _ in _ENTRY.findall(without_comments(ptx)) if name == entry)
    return tuple(_bytes(value, *p) for value, p in zip(values, _parameters(parameters), strict=True))


def parameter_count(ptx: str, entry: str) -> int:
    """The number of parameters that a kernel declares."""
    return len(
        next(_parameters(declared) for name, declared, _ in _ENTRY.findall(without_comments(ptx)) if name == entry)
    )


_PARAMETER = re.compile(r"\.([bsuf])(\d+)\s(?:[^,]*?)([\w$%]+)\s*(?:\[\s*(\d+)\s*\])?\s*$")


def _parameters(declared: str) -> list[tuple[str, int]]:
    """The name and the size in bytes of each parameter in a kernel's parentheses."""
    sizes = []
    for text in filter(str.strip, declared.split(",")):
        match = _PARAMETER.search(text.strip())
        assert match is not None, text
        sizes.append((match[3], int(match[2]) // 8 * int(match[4] or 1)))
    return sizes


_FLOATS = {2: "e", 4: "f", 8: "d"}


def _bytes(value: Any, name: str, size: int) -> bytes:
    if isinstance(value, bytes):
        if len(value) != size:
            raise ValueError(f"parameter {name} has {size} bytes, but {len(value)} were given")
        return value
    try:
        if isinstance(value, float):
            return struct.pack(f"<{_FLOATS[size]}", value)
        return int(value).to_bytes(size, "little", signed=value < 0)
    except (KeyError, OverflowError, struct.error):
        raise ValueError(f"parameter {name} has {size} bytes; {value!r} does not fit in them") from None


def _refused(words: str) -> Refusal:
    return Refusal("error", f"the PTX {words}")


def header_fault(code: str) -> str:
    """The fault in a module's first two directives; "" if there is none.

    ISA 11.1.2: "Each PTX module must begin with a .version directive, immediately followed by a .target directive"; its
    notes give the version in which each target was introduced. code: without comments.
    """
    match = _HEADER.match(code)
    if match is None:
        return "does not begin with .version and .target, as each PTX module must (ISA 11.1.2)"
    needed = INTRODUCED.get(match[2])
    if needed and version_number(match[1]) < version_number(needed):
        return f"states .version {match[1]}, but .target {match[2]} was introduced in PTX ISA {needed} (ISA 11.1.2)"
    return ""


def other_target(code: str, target: str) -> str:
    """Why PTX for its own target does not run on another; "" if it does: on the same target and on later ones.

    PTX for an architecture (`sm_90a`) runs on that one only; PTX for a family (`sm_100f`) runs on that family.
    """
    written = _TARGET.search(code)
    if written is None:
        return ""
    own, word, asked = int(written[1]), written[2], capability(target)
    runs = {"a": asked == own, "f": asked >= own and asked // 10 == own // 10}.get(word, asked >= own)
    return "" if runs else f"the PTX is for sm_{own}{word}, which {target} does not run"
