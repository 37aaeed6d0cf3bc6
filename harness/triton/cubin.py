"""The sections of a cubin that a GPU loads, without those for debuggers."""

from __future__ import annotations

import struct
from collections.abc import Mapping

_ALLOCATED = 2
"""SHF_ALLOC of the ELF format: the section is in memory while the program runs."""


def loaded_sections(cubin: bytes) -> Mapping[str, bytes]:
    """The sections that a GPU loads, code and constants, and those that the driver reads for them, by name.

    Line tables are left out: they name the file that the code was made from. Raises ValueError if the bytes are not a
    64-bit ELF file with code.
    """
    if cubin[:5] != b"\x7fELF\x02":
        raise ValueError("no cubin: not a 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    heads = [struct.unpack_from("<IIQQQQ", cubin, table + k * size) for k in range(count)]
    first = heads[names][4]
    found = {}
    for name, _, flags, _, offset, length in heads:
        word = cubin[first + name : cubin.index(b"\0", first + name)].decode()
        if flags & _ALLOCATED or word.startswith(".nv.info"):
            found[word] = cubin[offset : offset + length]
    if not any(name.startswith(".text") for name in found):
        raise ValueError("no code in this cubin")
    return found
