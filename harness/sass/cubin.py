"""What a cubin says about a kernel: its code, its parameters and the constant banks that its code reads."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from ptxdiff.emulator.kernel.memory.space import VARIABLES_BASE
from ptxdiff.sass.text import MachineFunction, Unsupported, functions
from ptxdiff.triton.assemble import listing, read_by, with_words
from ptxdiff.triton.cubin import loaded_sections, module_variables, section_sizes
from ptxdiff.triton.diagnostics import Refusal

_VALUE_IN_PLACE, _HALF, _SIZED = (1, 2), 3, 4  # how an attribute of .nv.info stores its value
_PARAMETERS, _PARAMETER, _FRAME = 0x0A, 0x17, 0x11  # EIATTR_PARAM_CBANK, _KPARAM_INFO, _FRAME_SIZE
_CLUSTER = 0x3D  # EIATTR_CTA_PER_CLUSTER


@dataclass(frozen=True)
class Parameter:
    """A parameter: its place in the parameter area and its size, in bytes."""

    offset: int
    size: int


@dataclass(frozen=True)
class MachineCode:
    """The code of a kernel with what it needs to run.

    target: of nvdisasm's text ("sm_90"). base: where its parameters begin in constant bank 0. banks: the contents of
    other constant banks. local, shared: bytes for each thread, and static ones for each block. variables: the initial
    bytes of the module's variables in global memory. cluster: the blocks of a cluster along x, y and z, if the kernel
    states them.
    """

    name: str
    target: str
    function: MachineFunction
    parameters: tuple[Parameter, ...]
    base: int
    banks: Mapping[int, bytes]
    local: int
    shared: int
    variables: bytes = b""
    cluster: tuple[int, int, int] | None = None


TARGET = re.compile(r"EF_CUDA_SM(\d+)|\.target\s+sm_(\d+)")
"""The target in nvdisasm's text."""


def digest_of(code: MachineCode) -> str:
    """A digest of all that decides what a kernel does: of its text and its words, with control codes, and of the rest.

    Two cubins can hold the same kernel, made from other PTX.
    """
    function = code.function
    words = [(i.address, i.low, i.high, i.text) for i in function.instructions]
    rest = [getattr(code, f.name) for f in fields(code) if f.name not in ("function", "banks")]
    parts = rest, sorted(code.banks.items()), function.name, sorted(function.labels.items()), words
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def machine_code(cubin: bytes, text: str, name: str | None = None) -> MachineCode:
    """Read a kernel of a cubin with nvdisasm's text for it. name: where there are several. Raises Unsupported."""
    found = machine_codes(cubin, text)
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name is None or name not in found:
        raise Unsupported(f"the kernels of this cubin are {', '.join(found) or 'none'}: name one")
    return found[name]


def machine_codes(cubin: bytes, text: str) -> dict[str, MachineCode]:
    """All kernels of a cubin by name, with nvdisasm's text for it. Raises Unsupported."""
    try:
        sections = loaded_sections(cubin)
        target = TARGET.search(text)
        return with_facts(cubin, sections, functions(text), f"sm_{target[1] or target[2]}" if target else "")
    except (struct.error, ValueError, IndexError) as error:
        raise Unsupported(f"a cubin of unknown form: {error}") from None


def with_facts(
    cubin: bytes, sections: Mapping[str, bytes], found: Mapping[str, MachineFunction], target: str
) -> dict[str, MachineCode]:
    """The kernels among a cubin's functions, with what the cubin says of them. Raises what reading bytes raises."""
    sizes = section_sizes(cubin)
    # Which function of the file has which frame is a matter of symbol numbers; the largest frame holds each of them.
    frames = [struct.unpack_from("<I", v, 4)[0] for k, v in _attributes(sections.get(".nv.info", b"")) if k == _FRAME]
    local = max(frames, default=0)
    variables, places = module_variables(cubin)
    banks = {
        (bank[2] or "", int(bank[1])): _with_addresses(data, places.get(section, {}))
        for section, data in sections.items()
        if (bank := _BANK.fullmatch(section)) and bank[1] != "0"
    }
    variables = _with_addresses(variables, places.get(_INITIAL, {}))
    return {
        n: _kernel(f, sections[f".nv.info.{n}"], banks, sizes, local, target, variables)
        for n, f in found.items()
        if f".nv.info.{n}" in sections
    }


_INITIAL = ".nv.global.init"
"""The section of the variables with initial values, which are the first."""


def _with_addresses(data: bytes, places: Mapping[int, int]) -> bytes:
    """Constants, or initial values, with the addresses at which the module's variables lie here."""
    filled = bytearray(data)
    for at, offset in places.items():
        struct.pack_into("<Q", filled, at, VARIABLES_BASE + offset)
    return bytes(filled)


_BANK = re.compile(r"\.nv\.constant(\d+)(?:\.(.+))?")


def _kernel(
    function: MachineFunction, info: bytes, banks: Mapping[tuple[str, int], bytes], sizes: Mapping[str, int],
    local: int, target: str, variables: bytes,
) -> MachineCode:  # fmt: skip
    name = function.name
    own = list(_attributes(info))
    parameters = sorted(
        (struct.unpack_from("<H", v, 4)[0], struct.unpack_from("<H", v, 6)[0], struct.unpack_from("<I", v, 8)[0])
        for kind, v in own
        if kind == _PARAMETER
    )
    area = [v for kind, v in own if kind == _PARAMETERS]
    clusters = [struct.unpack_from("<III", v) for kind, v in own if kind == _CLUSTER]
    if parameters and not area:
        raise Unsupported("a cubin that does not say where its parameters are")
    return MachineCode(
        name,
        target,
        function,
        tuple(Parameter(offset, flags >> 18) for _, offset, flags in parameters),
        struct.unpack_from("<H", area[0], 4)[0] if area else _base(target),
        {number: data for (of, number), data in banks.items() if of in ("", name)},
        local,
        sizes.get(f".nv.shared.{name}", 0),
        variables,
        clusters[0] if clusters else None,
    )


def _base(target: str) -> int:
    """Where parameters of a target begin, for a kernel that has none: the driver's words lie before that place."""
    capability = int(re.sub(r"\D", "", target) or 0)
    return next(base for least, base in _BASES if capability >= least)


_BASES = ((100, 0x380), (90, 0x210), (0, 0x160))
"""Least compute capabilities, and where the parameters of their kernels begin in constant bank 0."""


def _attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    """The attributes of a section .nv.info: their kinds and values."""
    at = 0
    while at < len(info):
        form, kind, size = info[at], info[at + 1], struct.unpack_from("<H", info, at + 2)[0]
        at += 4
        if form == _SIZED:
            yield kind, info[at : at + size]
            at += size
        elif form in _VALUE_IN_PLACE or form == _HALF:
            yield kind, struct.pack("<H", size)
        else:
            raise ValueError(f"attribute {kind} has the unknown form {form}")


# Text of nvdisasm with encodings -------------------------------------------------------------------------------------

_OPTIONS = ("-c", "-ndf", "-hex")  # code alone, without the data flow analysis, with encodings


def disassembled(cubin: bytes, nvdisasm: str | Path, *, keep: bool = True) -> str:
    """The text of a cubin's code with encodings, kept for later runs. Raises Unsupported if nvdisasm cannot read it."""
    try:
        text = listing(cubin, str(nvdisasm)) if keep else read_by(str(nvdisasm), _OPTIONS, cubin)
    except OSError as error:
        raise Unsupported(f"nvdisasm is needed: {error}") from None
    if isinstance(text, Refusal):
        raise Unsupported(text.words)
    return with_words(text)
