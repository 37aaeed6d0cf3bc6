"""Decodes the code of many kernels with few calls of nvdisasm: each machine word is disassembled once.

What an instruction does is in the 128 bits of its word, wherever it stands, and so is how far it jumps. So words that
were not met before are disassembled together, as raw code, and the others are known. The control code in a word changes
only which operands the text calls reused, and is not compared.

Where this is not so, nvdisasm reads the whole cubin: code that relocations complete when it is loaded, instructions
that name a place in another way than `_PLACES`, and targets or words that nvdisasm does not read as raw code.
"""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ptxdiff.sass.cubin import TARGET, MachineCode, disassembled, machine_codes, with_facts
from ptxdiff.sass.text import BYTES, MachineFunction, MachineInstruction, Operand, Unsupported, functions
from ptxdiff.triton.cubin import loaded_sections, relocated_code

MOST = 1 << 17
"""Words that are kept. Once there are more, all are forgotten."""
_BASE = 1 << 24  # the raw address of the first word, so that no jump goes below 0
_SECONDS = 120.0
_WORD = struct.Struct("<QQ")
_MEANING = (1 << 64) - 1 - (0x1FFFFF << 41)  # in the upper half: all but the control code
_PLACES = re.compile(
    r"((?:@!?U?P\w+\s+)?(?:BRA(?:\.U(?:\.ANY)?)?|BSSY(?:\.\w+)*|CALL\.REL\.NOINC|RET\.REL\.NODEC|WARPSYNC\.COLLECTIVE)"
    r"\s[^;`]*?)(0x[0-9a-f]+)(\s*;)"
)
"""Instructions whose last operand is a place, encoded as the distance from their own. In raw code it is a number."""
_OTHER = frozenset({"BRX", "BRXU", "JMP", "JMX", "JMXU", "LEPC", *("BRA", "BSSY", "CALL", "RET")})
"""Opcodes that may name a place in other ways, which are not known here."""

_Known = Mapping[tuple[int, int], MachineInstruction | None]


class WordDecoder:
    """Decodes cubins of one target. nvdisasm: its path."""

    def __init__(self, target: str, nvdisasm: str | Path) -> None:
        self.target, self.nvdisasm = target, str(nvdisasm)
        self._known: dict[tuple[int, int], MachineInstruction | None] = {}  # None: it has another meaning elsewhere
        self._header = ""  # the target as nvdisasm writes it

    def codes(self, cubins: Sequence[bytes]) -> list[Mapping[str, MachineCode] | Unsupported]:
        """All kernels of each cubin, by name, or why it cannot be read."""
        if len(self._known) > MOST:
            self._known.clear()
        every = [_sections(cubin) for cubin in cubins]
        met: dict[tuple[int, int], tuple[int, int]] = {}
        for sections in every:
            for code in _code(sections).values():
                met.update((_key(*word), word) for word in _WORD.iter_unpack(code))
        self._learn([word for key, word in met.items() if key not in self._known])
        return [self._read(cubin, sections) for cubin, sections in zip(cubins, every, strict=True)]

    def _learn(self, words: Sequence[tuple[int, int]]) -> None:
        """Disassemble words. Nothing is learnt if nvdisasm refuses one."""
        text = self._raw(b"".join(_WORD.pack(*word) for word in words)) if words else ""
        header = TARGET.search(text)
        if header is None:
            return
        try:
            (read,) = functions("\t.section .text.raw\n" + _PLACES.sub(r"\1`(\2)\3", text)).values()
        except Unsupported:
            return
        if [(i.low, i.high) for i in read.instructions] == list(words):
            self._header = f"sm_{header[1] or header[2]}"
            self._known |= {_key(i.low, i.high): _placed(i) for i in read.instructions}

    def _raw(self, code: bytes) -> str:
        """The text of raw code with encodings; "" if nvdisasm cannot read it."""
        with tempfile.NamedTemporaryFile(prefix="ptxdiff-", suffix=".bin") as file:
            file.write(code)
            file.flush()
            target = self.target.replace("sm_", "SM")
            command = [self.nvdisasm, "-hex", "-b", target, "-base", str(_BASE), file.name]
            try:
                done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_SECONDS)
            except (OSError, subprocess.TimeoutExpired):
                return ""
        return "" if done.returncode else done.stdout

    def _read(self, cubin: bytes, sections: Mapping[str, bytes]) -> Mapping[str, MachineCode] | Unsupported:
        try:
            made = {name: _function(name, code, self._known) for name, code in _code(sections).items()}
            if made and None not in made.values():
                return with_facts(cubin, sections, {n: f for n, f in made.items() if f is not None}, self._header)
            return machine_codes(cubin, disassembled(cubin, self.nvdisasm, keep=False))
        except Unsupported as refusal:
            return refusal
        except (struct.error, ValueError, IndexError) as error:
            return Unsupported(f"a cubin of unknown form: {error}")


def _sections(cubin: bytes) -> Mapping[str, bytes]:
    """The sections that are loaded; none if their code is not complete, or the file is of unknown form."""
    try:
        return {} if relocated_code(cubin) else loaded_sections(cubin)
    except (struct.error, ValueError, IndexError):
        return {}


def _code(sections: Mapping[str, bytes]) -> dict[str, bytes]:
    return {n.removeprefix(".text."): code for n, code in sections.items() if n.startswith(".text.")}


def _key(low: int, high: int) -> tuple[int, int]:
    return low, high & _MEANING


def _placed(instruction: MachineInstruction) -> MachineInstruction | None:
    """The instruction with the distance to the place that it names, if it names one; None if that is not known."""
    last = instruction.operands[-1] if instruction.operands else None
    if last is not None and last.kind == "label":
        distance = int(last.name, 16) - instruction.address
        return instruction._replace(operands=(*instruction.operands[:-1], replace(last, offset=distance)))
    return None if instruction.opcode in _OTHER or not instruction.opcode else instruction


def _function(name: str, code: bytes, known: _Known) -> MachineFunction | None:
    """The function with this code; None if one of its words is not known."""
    made, labels = [], {}
    for number, (low, high) in enumerate(_WORD.iter_unpack(code)):
        word = known.get((low, high & _MEANING))
        if word is None:
            return None
        operands, text, address = word.operands, word.text, BYTES * number
        if operands and operands[-1].kind == "label":
            target = address + operands[-1].offset
            label = f"0x{target:x}"
            if not 0 <= target <= len(code):
                return None
            labels[label], text = target, text.replace(operands[-1].name, label)
            operands = (*operands[:-1], Operand("label", name=label))
        made.append(MachineInstruction(address, word.guard, word.opcode, word.modifiers, operands, low, high, text))
    return MachineFunction(name, tuple(made), labels)
