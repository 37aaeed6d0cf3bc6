"""The sections of a cubin that a GPU loads."""

from __future__ import annotations

import struct

import pytest

from ptxdiff.triton.cubin import loaded_sections


def elf(sections: dict[str, tuple[int, bytes]], absent: tuple[str, ...] = ()) -> bytes:
    """A 64-bit ELF file with sections by name: flags and contents. absent: of these the file has the size alone."""
    names = b"\0" + b"".join(n.encode() + b"\0" for n in [*sections, ".shstrtab"])
    contents = [*sections.values(), (0, names)]
    start = 64
    heads, body, place = [], b"", 1
    for word, (flags, content) in zip([*sections, ".shstrtab"], contents, strict=True):
        kind = 8 if word in absent else 1
        heads.append(struct.pack("<IIQQQQIIQQ", place, kind, flags, 0, start + len(body), len(content), 0, 0, 1, 0))
        place += len(word) + 1
        body += b"" if word in absent else content
    head = b"\x7fELF\x02\x01" + bytes(34) + struct.pack("<Q", start + len(body)) + bytes(10)
    return head + struct.pack("<HHH", 64, len(heads), len(heads) - 1) + body + b"".join(heads)


def test_sections_for_debuggers_are_left_out():
    loaded = {".text.k": (6, b"code"), ".nv.constant0.k": (2, b"c"), ".nv.info.k": (0, b"i")}
    found = loaded_sections(elf({**loaded, ".debug_line": (0, b"x")}))
    assert found == {name: content for name, (_, content) in loaded.items()}


def test_of_shared_memory_a_file_has_the_size_alone():
    shared = {".nv.shared.k": (3, bytes(16))}
    cubin = elf({**shared, ".text.k": (6, b"code")}, absent=(".nv.shared.k",))
    assert loaded_sections(cubin) == {".nv.shared.k": bytes(16), ".text.k": b"code"}


@pytest.mark.parametrize(
    ("cubin", "words"),
    [
        (b"", "no cubin"),
        (b"no ELF file", "no cubin"),
        (b"\x7fELF\x01" + bytes(60), "no cubin"),
        (elf({".debug_line": (0, b"x")}), "no code"),
    ],
)
def test_a_file_without_code_is_refused(cubin, words):
    with pytest.raises(ValueError, match=words):
        loaded_sections(cubin)
