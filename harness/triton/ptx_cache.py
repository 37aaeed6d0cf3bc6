"""PTX stored between runs, by the identity of its compilation.

The key holds everything that decides the text: the kernel's code with all it calls, constants with their types and
bits, options and target (`compile.identity_of`), each file of the installed Triton, the assemblers that environment
variables name, and the text of this package. PTX also has line numbers of the user's files: an entry holds a digest of
each file that its PTX names, and is not used if one of them has changed.

Refusals of a compiler are not stored. An entry is stored only if the worker that compiled it runs the same harness.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import zlib
from pathlib import Path

from ptxdiff.diskcache import DiskCache
from ptxdiff.model.dialect import AsmCall
from ptxdiff.model.identity.experiment import harness
from ptxdiff.triton.builds import installation_of
from ptxdiff.triton.installation import installation
from ptxdiff.triton.spec import DescriptorLayout, Lowered

_kept = DiskCache("ptx", 40_000, 1 << 30)
_FILE = re.compile(r'^\s*\.file\s+\d+\s+"((?:[^"\\]|\\.)*)"', re.M)


def find(identity: str, compiler: str = "") -> tuple[Lowered, tuple[str, ...]] | None:
    """The compiled kernel of that identity, with the warnings of its compilation; None if none is stored.

    compiler: the name of the Triton build that compiles it.
    """
    stored = _kept.get(*_key(identity, compiler))
    if stored is None:
        return None
    try:
        entry = json.loads(zlib.decompress(stored))
        fields = entry["lowered"]
        asm = tuple(
            AsmCall(**{**c, "inputs": tuple(c["inputs"]), "outputs": tuple(c["outputs"])}) for c in fields.pop("asm")
        )
        path, version = fields.pop("ptxas")
        descriptors = tuple(
            DescriptorLayout(d["swizzle"], d["element"], tuple(d["box"])) for d in fields.pop("descriptors")
        )
        called = tuple(fields.pop("called"))
        lowered = Lowered(**fields, ptxas=(path, version), asm=asm, descriptors=descriptors, called=called)
        files, notes = entry["files"], tuple(entry["notes"])
    except (ValueError, KeyError, TypeError, zlib.error):
        return None
    return (lowered, notes) if files == files_named(lowered.ptx) else None


def keep(identity: str, lowered: Lowered, notes: tuple[str, ...], compiler: str = "") -> None:
    """Store the kernel that a worker of that Triton build compiled for that identity. notes: warnings."""
    if lowered.harness != harness():
        return
    entry = {"lowered": dataclasses.asdict(lowered), "notes": notes, "files": files_named(lowered.ptx)}
    _kept.put(zlib.compress(json.dumps(entry).encode(), 1), *_key(identity, compiler))


def _key(identity: str, compiler: str = "") -> tuple[bytes, ...]:
    made_by = installation_of(compiler) if compiler else installation()
    return identity.encode(), made_by.encode(), harness().encode()


def files_named(ptx: str) -> dict[str, str]:
    """The source files that PTX names, with digests of their present contents."""
    return {name: _digest(name) for name in _FILE.findall(ptx)}


def _digest(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""
