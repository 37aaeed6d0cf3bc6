"""Cubins: the sections that a GPU loads, and several cubins in one file, so that one call of nvdisasm is enough."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_ALLOCATED = 2
"""SHF_ALLOC of the ELF format: the section is in memory while the program runs."""


def section_sizes(cubin: bytes) -> Mapping[str, int]:
    """The bytes that each section takes in memory, also where the file has none of them, as for shared memory."""
    return {section.name: section.header[5] for section in _sections(cubin)}


def loaded_sections(cubin: bytes) -> Mapping[str, bytes]:
    """The sections that a GPU loads, code and constants, and those that the driver reads for them, by name.

    Line tables are left out: they name the file that the code was made from. Raises ValueError if the bytes are not a
    64-bit ELF file with code.
    """
    if cubin[:5] != b"\x7fELF\x02":
        raise ValueError("no cubin: not a 64-bit ELF file")
    sections = {
        s.name: s.data or bytes(s.header[5])  # of a section that the file does not hold: as many zeros
        for s in _sections(cubin)
        if s.header[2] & _ALLOCATED or s.name.startswith(".nv.info")
    }
    if not any(name.startswith(".text") for name in sections):
        raise ValueError("no code in this cubin")
    return sections


_INITIAL, _ZEROS = ".nv.global.init", ".nv.global"  # variables in global memory, with initial values and without
_HOLDS_ADDRESSES = re.compile(r"(\.rela?)(\.nv\.(?:global\.init|constant\d+.*))")
_ADDRESS_BANK = ".nv.constant4"  # the constant bank of addresses, which the driver fills when it loads the module
_ADDRESSES = (2, 4)  # R_CUDA_64 and R_CUDA_G64: an address of 64 bits, which in global memory is the generic one
_ALIGNMENT = 256


def module_variables(cubin: bytes) -> tuple[bytes, Mapping[str, Mapping[int, int]]]:
    """The initial bytes of a module's variables in global memory, and where an address of one must stand.

    Variables with initial values come first. Addresses: by section and by byte in it, the byte of the variables. Raises
    ValueError for an initial value that is another address; in the bank of addresses such a one stays zero.
    """
    sections = _sections(cubin)
    by_name = {s.name: s for s in sections}
    first: dict[int, int] = {}
    contents = b""
    for name in (_INITIAL, _ZEROS):
        if name in by_name:
            section = by_name[name]
            contents = contents.ljust(-(-len(contents) // _ALIGNMENT) * _ALIGNMENT, b"\0")
            first[sections.index(section)] = len(contents)
            contents += section.data.ljust(section.header[5], b"\0")
    symbols = list(_SYMBOL.iter_unpack(by_name[".symtab"].data)) if ".symtab" in by_name else []
    places: dict[str, dict[int, int]] = {}
    for section in sections:
        if not section.data or not (found := _HOLDS_ADDRESSES.fullmatch(section.name)):
            continue
        for at, information, *addend in _RELOCATIONS[found[1]][1].iter_unpack(section.data):
            symbol = symbols[information >> 32]
            if information & 0xFFFFFFFF in _ADDRESSES and symbol[3] in first:
                added = addend or struct.unpack_from("<q", by_name[found[2]].data, at)
                places.setdefault(found[2], {})[at] = first[symbol[3]] + symbol[4] + added[0]
            elif found[2] != _ADDRESS_BANK:
                name = _word(by_name[".strtab"].data, symbol[0])
                of = name or "a section"
                raise ValueError(f"byte {at} of {found[2]} is an address that is not known here: of {of}")
    return contents, places


def relocated_code(cubin: bytes) -> bool:
    """Whether relocations complete some of the code when it is loaded."""
    return any(s.data for s in _sections(cubin) if s.name.startswith((".rel.text.", ".rela.text.")))


_HEADER = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr: name, type, flags, address, offset, size, link, info, align, entry
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym: name, info, other, section, value, size
_RELOCATIONS = {".rela": (4, struct.Struct("<QQq")), ".rel": (9, struct.Struct("<QQ"))}  # sh_type, and one entry
_PROGBITS, _SYMTAB, _STRTAB, _NOBITS = 1, 2, 3, 8
_SECTION, _TYPE, _LOCAL, _WEAK = 3, 15, 0, 2  # STT_SECTION, the mask of a symbol's type, STB_LOCAL, STB_WEAK
_LINES = ".nv_debug_line_sass"
_ABOUT = (".note.nv.cuinfo", ".nv.compat")  # nvdisasm reads these before any code
_INNER = "$__internal_"  # ptxas's prefix for functions that it adds to a kernel, such as a division's slow path

MOST = 256  # kernels of one file: their numbers must fit into their names
_SHORTEST = 4  # letters of a kernel's name, which is replaced by one of the same length


@dataclass(frozen=True)
class Section:
    """A section of an ELF file: its name, the fields of its header, its bytes."""

    name: str
    header: tuple[int, ...]
    data: bytes


@dataclass(frozen=True)
class MachineKernel:
    """The parts of a cubin with one kernel that nvdisasm reads.

    alike: what all kernels of one file must share: ELF header, target, symbols that are defined elsewhere. symbol: the
    function's. inner: symbols of functions within it. lines, places: its table of PTX lines, and the relocations of
    that table to the function.
    """

    name: str
    text: Section
    symbol: tuple[int, ...]
    inner: tuple[tuple[Any, ...], ...]
    lines: bytes
    places: tuple[tuple[int, ...], ...]
    alike: tuple[Any, ...]


def kernel_of(cubin: bytes) -> MachineKernel | None:
    """The kernel of a cubin; None if it has several functions, or contains something unknown."""
    try:
        return _kernel(_sections(cubin), cubin)
    except (struct.error, ValueError, IndexError, KeyError):
        return None


def _sections(file: bytes) -> list[Section]:
    start, (count, names) = struct.unpack_from("<Q", file, 40)[0], struct.unpack_from("<HH", file, 60)
    headers = [_HEADER.unpack_from(file, start + _HEADER.size * i) for i in range(count)]
    texts = headers[names][4]
    held = [b"" if h[1] == _NOBITS else file[h[4] : h[4] + h[5]] for h in headers]
    return [Section(_word(file, texts + h[0]), h, data) for h, data in zip(headers, held, strict=True)]


def _word(file: bytes, at: int) -> str:
    return file[at : file.index(b"\0", at)].decode()


def _kernel(sections: list[Section], cubin: bytes) -> MachineKernel | None:
    by_name = {s.name: s for s in sections}
    code = [i for i, s in enumerate(sections) if s.name.startswith(".text.")]
    if len(code) != 1 or relocated_code(cubin):
        return None
    symbols = list(_SYMBOL.iter_unpack(by_name[".symtab"].data))
    strings = by_name[".strtab"].data
    text = sections[code[0]]
    name = text.name.removeprefix(".text.")
    inside = [(i, s) for i, s in enumerate(symbols) if s[3] == code[0] and s[1] & _TYPE != _SECTION]
    main = [(i, s) for i, s in inside if _word(strings, s[0]) == name]
    inner = tuple((_word(strings, s[0]), *s[1:]) for i, s in inside if (i, s) not in main)
    kinds = [kind for kind in _RELOCATIONS if kind + _LINES in by_name]
    if (
        len(main) != 1
        or len(kinds) != 1
        or any(s[1] >> 4 not in (_LOCAL, _WEAK) or not s[0].startswith(_INNER) for s in inner)
        or len(name) < _SHORTEST
    ):
        return None
    number, symbol = main[0]
    places = tuple(_RELOCATIONS[kinds[0]][1].iter_unpack(by_name[kinds[0] + _LINES].data))
    if any(p[1] >> 32 != number for p in places):
        return None
    elsewhere = tuple((_word(strings, s[0]), *s[1:]) for s in symbols[1:] if s[3] == 0 and s[0])
    about = tuple((s.name, s.header[1], s.header[2], s.data) for n in _ABOUT if (s := by_name.get(n)))
    alike = (cubin[:24], cubin[48:54], kinds[0], elsewhere, about)
    return MachineKernel(name, text, symbol, inner, by_name[_LINES].data, places, alike)


def _named(number: int, kernel: MachineKernel) -> str:
    """A kernel's name in a merged file, as long as its own name, so that nvdisasm's columns and rules stay the same."""
    return f"K{number:02x}".ljust(len(kernel.name), "_")


def _inner(number: int) -> str:
    """The prefix that replaces `_INNER` in the names of a kernel's inner functions in a merged file."""
    return f"$__I{number:02x}".ljust(len(_INNER), "_")


def merged(kernels: Sequence[MachineKernel]) -> bytes:
    """One ELF file with all these kernels, at most `MOST`, whose `alike` is equal. Only nvdisasm can use it."""
    header, flags, kind, elsewhere, about = kernels[0].alike
    if len(kernels) > MOST or any(k.alike != kernels[0].alike for k in kernels):
        raise ValueError("these kernels cannot be in one file: they differ in target or symbols, or are too many")
    strings, lines, places = bytearray(b"\0"), bytearray(), bytearray()

    def word(text: str) -> int:
        strings.extend(text.encode() + b"\0")
        return len(strings) - len(text) - 1

    first, count = 4, len(kernels)  # code sections follow the null section and three of names and symbols
    type_, entry = _RELOCATIONS[kind]
    symbols = [_SYMBOL.pack(0, 0, 0, 0, 0, 0)]
    symbols += [
        _SYMBOL.pack(word(f".text.{_named(i, k)}"), _SECTION, 0, first + i, 0, 0) for i, k in enumerate(kernels)
    ]
    inner = [
        (info >> 4, _SYMBOL.pack(word(n.replace(_INNER, _inner(i), 1)), info, other, first + i, *rest))
        for i, k in enumerate(kernels)
        for n, info, other, _, *rest in k.inner
    ]
    symbols += [symbol for binding, symbol in inner if binding == _LOCAL]
    local = len(symbols)  # ELF: local symbols come before all others
    for i, k in enumerate(kernels):
        symbols.append(_SYMBOL.pack(word(_named(i, k)), *k.symbol[1:3], first + i, *k.symbol[4:]))
        for at, info, *added in k.places:
            places += entry.pack(at + len(lines), (local + i) << 32 | info & 0xFFFFFFFF, *added)
        lines += k.lines
    symbols += [symbol for binding, symbol in inner if binding != _LOCAL]
    symbols += [_SYMBOL.pack(word(name), *rest) for name, *rest in elsewhere]

    def section(
        name: str, type_: int, data: bytes, flags: int = 0, link: int = 0, info: int = 0, align: int = 1
    ) -> Section:
        size = {_SYMTAB: _SYMBOL.size, 4: 24, 9: 16}.get(type_, 0)
        return Section(name, (0, type_, flags, 0, 0, 0, link, info, align, size), data)

    made = [section(".strtab", _STRTAB, bytes(strings)), section(".symtab", _SYMTAB, b"".join(symbols), 0, 2, local, 8)]
    for i, k in enumerate(kernels):
        h = k.text.header
        # The upper byte of a code section's info is the number of its registers, the rest its symbol.
        info = h[7] & 0xFF000000 | (local + i)
        made.append(section(f".text.{_named(i, k)}", h[1], k.text.data, h[2], 3, info, h[8]))
    made.append(section(_LINES, _PROGBITS, bytes(lines)))
    made.append(section(kind + _LINES, type_, bytes(places), 0x40, 3, first + count, 8))
    made += [section(name, type_, data, flags, align=4) for name, type_, flags, data in about]
    return _file(header, flags, made)


def _file(header: bytes, flags: bytes, sections: Sequence[Section]) -> bytes:
    """An ELF file of these sections, after the null section and the section names."""
    names = bytearray(b"\0.shstrtab\0")
    places = [1]
    for s in sections:
        places.append(len(names))
        names += s.name.encode() + b"\0"
    all_of_them = [Section(".shstrtab", (0, _STRTAB, 0, 0, 0, 0, 0, 0, 1, 0), bytes(names)), *sections]
    body, headers = bytearray(64), [bytes(_HEADER.size)]
    for s, name in zip(all_of_them, places, strict=True):
        body += bytes(-len(body) % s.header[8])
        headers.append(_HEADER.pack(name, *s.header[1:4], len(body), len(s.data), *s.header[6:]))
        body += s.data
    body += bytes(-len(body) % 8)
    body[:24], body[48:54] = header, flags
    struct.pack_into("<Q", body, 40, len(body))
    struct.pack_into("<HHH", body, 58, _HEADER.size, len(headers), 1)
    return bytes(body) + b"".join(headers)


_PART = re.compile(r"^(?=//-+ )", re.M)
_TITLE = re.compile(r"//-+ (\S+)")
_LABEL = re.compile(r"\.L_x_(\d+)")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s", re.M)
_BYTES = 16  # of an instruction, since Volta


def split_text(kernels: Sequence[MachineKernel], text: str) -> list[str] | None:
    """nvdisasm's text for each kernel alone, from its text for all; None if that does not have the expected form."""
    head, *parts = _PART.split(text)
    by_section = {m[1]: part for part in parts if (m := _TITLE.match(part))}
    tail = by_section.pop("SYMBOLS", "")
    elsewhere = kernels[0].alike[3]  # which nvdisasm lists after all code
    if len(parts) != len(kernels) + bool(tail) or len(by_section) != len(kernels) or bool(tail) != bool(elsewhere):
        return None
    end = re.search(r"\n*\Z", parts[-1])
    made = []
    for i, k in enumerate(kernels):
        part = by_section.get(f".text.{_named(i, k)}", "")
        if len(_INSTRUCTION.findall(part)) * _BYTES != len(k.text.data):
            return None
        # Labels are numbered throughout the file: first those that code jumps to, then the ends of functions.
        numbers = {n: str(index) for index, n in enumerate(sorted({int(n) for n in _LABEL.findall(part)}))}
        part = _LABEL.sub(lambda m, numbers=numbers: f".L_x_{numbers[int(m[1])]}", part)
        if not tail and end:  # the last kernel has no blank lines after it
            part = part.rstrip("\n") + end[0]
        made.append(head + part.replace(_named(i, k), k.name).replace(_inner(i), _INNER) + tail)
    return made
