"""Launches that the interpreter of machine code ran, kept in a file, so that a GPU runs the same cubins later.

`LaunchRecorder.run` runs a kernel's machine code on the CPU and keeps its cubin, its arguments, and the bytes that it
left in memory. `on_device` launches the same cubins on the GPU here and says where its bytes are others. The file is
one stream, because cubins resemble each other; reading it needs neither Triton nor an assembler.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ptxdiff.emulator import Buffer, BufferPointer
from ptxdiff.processes.child import Device, DeviceFault
from ptxdiff.sass.cubin import MachineCode, Parameter
from ptxdiff.sass.run import Ran, parameter_area, run_machine_code
from ptxdiff.sass.text import Unsupported

FILL = 0xA5
"""What the GPU's memory holds before a launch where the interpreter has undefined bits."""
LIMIT = 60.0
"""Seconds for the launches of one cubin."""
_GAP = 256  # bytes behind each buffer, in which a launch must change nothing


@dataclass(frozen=True)
class RecordedBuffer:
    """A buffer of a launch. before, after: digests of its bytes; no `before` for undefined contents.

    unwritten: the digest of a mask of bytes that hold undefined bits after the launch; "" if none does.
    """

    size: int
    residue: int
    before: str
    after: str
    unwritten: str


@dataclass(frozen=True)
class RecordedLaunch:
    """A launch. cubin: its digest. parameters: bytes in hexadecimal, or a place in `buffers` with an offset.

    group, forms: what it is evidence for, such as "forms", and the forms of machine instructions that ran, with the
    digests of their definitions.
    """

    name: str
    group: str
    target: str
    cubin: str
    entry: str
    grid: tuple[int, ...]
    block: tuple[int, int, int]
    shared: int
    parameters: tuple[Any, ...]
    buffers: tuple[RecordedBuffer, ...]
    forms: dict[str, str] = field(default_factory=dict)


class LaunchRecorder:
    """Collects launches; `write` makes the file."""

    def __init__(self) -> None:
        self.launches: list[RecordedLaunch] = []
        self._blobs: dict[str, bytes] = {}

    @property
    def size(self) -> int:
        """Bytes kept so far, before compression."""
        return sum(map(len, self._blobs.values()))

    def run(
        self, name: str, group: str, target: str, cubin: bytes, code: MachineCode, values: Sequence[Any],
        grid: Sequence[int], block: Sequence[int] | int, *, shared_bytes: int = 0, limit: float | None = None,
    ) -> Ran:  # fmt: skip
        """Run as `run_machine_code` does, which raises, and keep the launch. Raises Unsupported for its arguments."""
        held = [v.buffer if isinstance(v, BufferPointer) else v for v in values]
        buffers = list(dict.fromkeys(b for b in held if isinstance(b, Buffer)))
        before = [self._kept(b.array.tobytes()) if b.defined else "" for b in buffers]
        # The interpreter takes missing arguments at the end as zero; a driver would read beyond the list instead.
        every = [*values, *[0] * (len(code.parameters) - len(values))]
        parameters = tuple(_described(*pair, buffers) for pair in zip(code.parameters, every, strict=True))
        ran = run_machine_code(code, values, grid, block, shared_bytes=shared_bytes, limit=limit)
        kept = []
        for buffer, first in zip(buffers, before, strict=True):
            span = slice(buffer.residue, buffer.residue + buffer.size)
            unwritten = buffer.unwritten
            mask = "" if unwritten is None or not unwritten.any() else self._kept(np.packbits(unwritten).tobytes())
            after = self._kept(buffer.bytes[span].tobytes())
            kept.append(RecordedBuffer(buffer.size, buffer.residue, first, after, mask))
        self._add(name, group, target, cubin, code.name, grid, block, shared_bytes, parameters, kept, ran.forms)
        return ran

    def expect(
        self, name: str, group: str, target: str, cubin: bytes, entry: str, inputs: Sequence[Any],
        outputs: Sequence[Any], grid: Sequence[int], block: int,
    ) -> None:  # fmt: skip
        """Keep a launch with results of another origin than the interpreter: pointers to arrays, inputs first."""
        kept = [RecordedBuffer(a.nbytes, 0, d := self._kept(a.tobytes()), d, "") for a in inputs]
        kept += [RecordedBuffer(a.nbytes, 0, "", self._kept(a.tobytes()), "") for a in outputs]
        parameters = tuple([k, 0] for k in range(len(kept)))
        self._add(name, group, target, cubin, entry, grid, block, 0, parameters, kept, ())

    def _add(
        self, name: str, group: str, target: str, cubin: bytes, entry: str, grid: Sequence[int],
        block: Sequence[int] | int, shared: int, parameters: tuple[Any, ...], kept: Sequence[RecordedBuffer],
        forms: Iterable[str],
    ) -> None:  # fmt: skip
        from ptxdiff.conformance.taught import digest

        x, y, z = ((block, 1, 1) if isinstance(block, int) else (*block, 1, 1))[:3]
        self.launches.append(
            RecordedLaunch(name, group, target, self._kept(cubin), entry, tuple(grid), (x, y, z), shared,
                           parameters, tuple(kept), {form: digest(form) for form in forms})
        )  # fmt: skip

    def _kept(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()[:16]
        self._blobs[digest] = data
        return digest

    def blob(self, digest: str) -> bytes:
        """Bytes by their digest."""
        return self._blobs[digest]

    def write(self, path: Path) -> None:
        """Write the file."""
        index = {"blobs": [[d, len(b)] for d, b in self._blobs.items()], "launches": [asdict(r) for r in self.launches]}
        with lzma.open(path, "wb", preset=6) as file:
            file.write(json.dumps(index).encode() + b"\n")
            for data in self._blobs.values():
                file.write(data)


def _described(place: Parameter, value: Any, buffers: Sequence[Buffer]) -> Any:
    if isinstance(value, Buffer | BufferPointer):
        pointer = value if isinstance(value, BufferPointer) else BufferPointer(value)
        return [buffers.index(pointer.buffer), pointer.offset]
    if place.size > 8:
        raise Unsupported("a parameter of more than 8 bytes is not recorded yet")
    return parameter_area([Parameter(0, place.size)], [value]).hex()


def read(path: Path) -> tuple[list[RecordedLaunch], dict[str, bytes]]:
    """The launches of a file, and its bytes by digest. Raises ValueError for bytes that have another digest."""
    with lzma.open(path, "rb") as file:
        index = json.loads(file.readline())
        blobs = {digest: file.read(size) for digest, size in index["blobs"]}
    if wrong := [d for d, b in blobs.items() if hashlib.sha256(b).hexdigest()[:16] != d]:
        raise ValueError(f"{path}: {len(wrong)} parts do not have their digests: the file is damaged")
    launches = [
        RecordedLaunch(**{**launch, "buffers": tuple(RecordedBuffer(**b) for b in launch["buffers"])})
        for launch in index["launches"]
    ]
    return launches, blobs


def on_device(
    device: Device, launches: Sequence[RecordedLaunch], blobs: dict[str, bytes]
) -> Iterator[tuple[RecordedLaunch, str, list[bytes]]]:
    """For each launch where the GPU's bytes differ first, in words, and its buffers; "" and none if nowhere.

    If a cubin's launches end in a fault, they run again one by one, so that the fault is told of the right launch.
    """
    by_cubin: dict[str, list[RecordedLaunch]] = {}
    for launch in launches:
        by_cubin.setdefault(launch.cubin, []).append(launch)
    for cubin, some in by_cubin.items():
        try:
            results = _called(device, blobs[cubin], some, blobs)
        except (DeviceFault, RuntimeError):
            results = []
            for launch in some:  # one by one, to say which one has the fault
                try:
                    results += _called(device, blobs[cubin], [launch], blobs)
                except (DeviceFault, RuntimeError) as fault:
                    results.append((f"fault: {str(fault).splitlines()[0]}", []))
        for launch, (difference_text, images) in zip(some, results, strict=True):
            yield launch, difference_text, images


def _called(
    device: Device, cubin: bytes, some: Sequence[RecordedLaunch], blobs: dict[str, bytes]
) -> list[tuple[str, list[bytes]]]:
    needed = {d for r in some for b in r.buffers for d in (b.before, b.after, b.unwritten) if d}
    given = {d: blobs[d] for d in needed}
    results: list[tuple[str, list[bytes]]] = device.call(f"{__name__}:run_here", cubin, list(some), given, limit=LIMIT)
    return results


def run_here(
    cubin: bytes, launches: Sequence[RecordedLaunch], blobs: dict[str, bytes]
) -> list[tuple[str, list[bytes]]]:
    """Launch kernels of a cubin on torch's current device. Returns as `on_device`. Raises DriverError."""
    import torch

    from ptxdiff.backends.driver import DriverLaunch, launch_all

    started, memory = [], []
    for launch in launches:
        tensors = []
        for buffer in launch.buffers:
            image = np.full(_space(buffer), FILL, np.uint8)
            if buffer.before:
                image[buffer.residue : buffer.residue + buffer.size] = np.frombuffer(blobs[buffer.before], np.uint8)
            tensors.append(torch.from_numpy(image).cuda())
        addresses = [t.data_ptr() + b.residue for t, b in zip(tensors, launch.buffers, strict=True)]
        parameters = tuple(
            bytes.fromhex(p) if isinstance(p, str) else (addresses[p[0]] + p[1]).to_bytes(8, "little")
            for p in launch.parameters
        )
        x, y, z = launch.block
        started.append(DriverLaunch(launch.entry, tuple(launch.grid), (x, y, z), launch.shared, parameters))
        memory.append(tensors)
    torch.cuda.synchronize()
    launch_all(cubin, started)
    results = []
    for launch, tensors in zip(launches, memory, strict=True):
        images = [t.cpu().numpy() for t in tensors]
        difference_text = difference(launch, images, blobs)
        spans = (slice(b.residue, b.residue + b.size) for b in launch.buffers)
        results.append(
            (
                difference_text,
                [i[span].tobytes() for i, span in zip(images, spans, strict=True)] if difference_text else [],
            )
        )
    return results


def _space(buffer: RecordedBuffer) -> int:
    return buffer.residue + buffer.size + _GAP


def difference(launch: RecordedLaunch, images: Sequence[Any], blobs: dict[str, bytes]) -> str:
    """Where bytes differ from the interpreter's first, in words; "" if nowhere. images: with the bytes around."""
    if not any(b.after != b.before and _written(b, blobs) for b in launch.buffers):
        return "the interpreter wrote nothing, so that there is nothing to compare"
    for number, (buffer, image) in enumerate(zip(launch.buffers, images, strict=True)):
        expected = np.full(_space(buffer), FILL, np.uint8)
        span = slice(buffer.residue, buffer.residue + buffer.size)
        expected[span] = np.frombuffer(blobs[buffer.after], np.uint8)
        if buffer.unwritten:
            mask = np.unpackbits(np.frombuffer(blobs[buffer.unwritten], np.uint8), count=buffer.size).astype(np.bool_)
            # Of a byte with some undefined bits nothing is asked; the interpreter's file does not say which bits.
            expected[span] = np.where(mask, image[span], expected[span])
        wrong = np.flatnonzero(expected != image)
        if len(wrong):
            differing = sorted({(int(w) - buffer.residue) // 4 for w in wrong})
            at = differing[0] * 4 + buffer.residue
            got, wanted = (bytes(i[max(at, 0) : at + 4][::-1]).hex() for i in (image, expected))
            return f"buffer {number}, word {differing[0]}: 0x{got}, not 0x{wanted}; {len(differing)} words differ"
    return ""


def _written(buffer: RecordedBuffer, blobs: dict[str, bytes]) -> bool:
    mask = blobs.get(buffer.unwritten, b"")
    return int(np.unpackbits(np.frombuffer(mask, np.uint8)).sum()) < buffer.size


def confirmations(results: Sequence[dict[str, Any]], ledger: str) -> str:
    """The ledger of machine instructions with the results of `on_device` as `confirmed` and `refuted`.

    results: for each launch its target, group, forms and words. Only results of the group that taught a line count for
    it, and only of forms whose definition is still the recorded one.
    """
    lines = []
    for line in ledger.splitlines():
        entry = json.loads(line)
        about = [
            r["words"] for r in results
            if r["target"] == entry["target"] and r["group"] == entry.get("of", "forms")
            and r["forms"].get(entry["form"]) == entry["digest"]
        ]  # fmt: skip
        if about:
            entry = {k: v for k, v in entry.items() if k not in ("confirmed", "refuted")}
            counts = {"confirmed": sum(not w for w in about), "refuted": sum(bool(w) for w in about)}
            entry |= {name: count for name, count in counts.items() if count}
        lines.append(json.dumps(entry))
    return "".join(f"{line}\n" for line in lines)
