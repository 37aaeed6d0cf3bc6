"""The interface through which a campaign uses a device, and its implementation for a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ptxdiff.conformance import kernels
from ptxdiff.conformance.cuda import CudaContext
from ptxdiff.conformance.forms import FormSnippet
from ptxdiff.conformance.inputs import Columns


@dataclass(frozen=True)
class ComparedOnDevice:
    """A comparison on the device: how many inputs differ, some of their indices, and the greatest distance."""

    mismatches: int = 0
    indices: tuple[int, ...] = ()
    distance: int = 0
    at: int = 0


@dataclass(frozen=True)
class Identity:
    """The device that ran the instructions: its name and target, and the releases of its driver and assembler."""

    device: str
    target: str
    driver: str
    ptxas: str


class Executor(Protocol):
    """Runs snippets. Call `compiled` before any other method for a snippet."""

    identity: Identity

    def compiled(self, snippets: Sequence[FormSnippet], checks: bool) -> dict[int, str]:
        """Compile snippets, with `checks` also for `check`.

        Returns the assembler's errors, by the snippet's position.
        """

    def use(self) -> None:
        """Called in each further thread that uses the device."""

    def run(self, snippet: FormSnippet, columns: Columns) -> Columns:
        """The instruction's results on these inputs, as unsigned arrays of the registers' widths."""

    def checks(self, snippet: FormSnippet) -> bool:
        """Whether `check` supports a snippet."""

    def check(self, snippet: FormSnippet, start: int, count: int) -> ComparedOnDevice:
        """Compare instruction and definition on `count` inputs from number `start` on."""


@dataclass
class Hardware:
    """The GPU of this machine. Raises NoDevice, or NoTriton if there is no assembler."""

    gpu: CudaContext = field(default_factory=CudaContext)

    def __post_init__(self) -> None:
        gpu = self.gpu
        self.assembler = next(a for a in kernels.assemblers() if _serves(a, gpu.capability))
        self.identity = Identity(gpu.name, gpu.target, gpu.driver, self.assembler.release)
        self._kernels: dict[tuple[str, str], dict[str, Any]] = {}
        self._report = gpu.allocate(8 * kernels.REPORT_WORDS)

    def compiled(self, snippets: Sequence[FormSnippet], checks: bool) -> dict[int, str]:
        """See `Executor`."""
        refused: dict[int, str] = {}
        places = list(range(len(snippets)))
        while places:
            asked = [snippets[p] for p in places]
            cpu = f"sm_{min(self.gpu.capability, 90)}"
            cubin = kernels.assembled(kernels.source(asked, cpu, checks), self.gpu.target, self.assembler)
            if isinstance(cubin, bytes):
                self._load(cubin, asked, checks)
                break
            if not cubin.blamed:
                raise RuntimeError(f"ptxas: {cubin.words[:2000]}")
            refused |= {places[n]: message for n, message in cubin.blamed.items()}
            places = [p for n, p in enumerate(places) if n not in cubin.blamed]
        return refused

    def _load(self, cubin: bytes, snippets: Sequence[FormSnippet], checks: bool) -> None:
        module = self.gpu.load(cubin)
        for n, snippet in enumerate(snippets):
            loaded = {"run": self.gpu.kernel(module, f"run_{n}")}
            if checks and kernels.checkable(snippet):
                loaded["check"] = self.gpu.kernel(module, f"check_{n}")
            self._kernels[snippet.form, snippet.variant] = loaded

    def use(self) -> None:
        """See `Executor`."""
        self.gpu.use()

    def run(self, snippet: FormSnippet, columns: Columns) -> Columns:
        """See `Executor`. Result buffers start as all ones, so that an output that is never written shows."""
        count = len(columns[0])
        outputs: Columns = [np.full(count, -1, f"i{p.bits // 8}").view(f"u{p.bits // 8}") for p in snippet.outputs]
        arrays: list[NDArray[Any]] = [*columns, *outputs]
        pointers = [self.gpu.allocate(a.nbytes) for a in arrays]
        try:
            for pointer, array in zip(pointers, arrays, strict=True):
                self.gpu.upload(pointer, array)
            kernel = self._kernels[snippet.form, snippet.variant]["run"]
            self.gpu.launch(kernel, [*pointers, count], count)
            for pointer, array in zip(pointers[len(columns) :], outputs, strict=True):
                self.gpu.download(array, pointer)
        finally:
            for pointer in pointers:
                self.gpu.free(pointer)
        return outputs

    def checks(self, snippet: FormSnippet) -> bool:
        """See `Executor`."""
        return "check" in self._kernels[snippet.form, snippet.variant]

    def check(self, snippet: FormSnippet, start: int, count: int) -> ComparedOnDevice:
        """See `Executor`."""
        report = np.zeros(kernels.REPORT_WORDS, np.uint64)
        self.gpu.upload(self._report, report)
        kernel = self._kernels[snippet.form, snippet.variant]["check"]
        self.gpu.launch(kernel, [self._report, start, count], count)
        self.gpu.download(report, self._report)
        wrong, peak, *indices = (int(w) for w in report)
        return ComparedOnDevice(
            wrong, tuple(indices[: min(wrong, kernels.KEPT)]), peak >> 32, start + (peak & 0xFFFFFFFF)
        )


def _serves(assembler: kernels.CarriedAssembler, capability: int) -> bool:
    """Whether an assembler supports a capability; CUDA 13 dropped those before 7.5, and has later ones."""
    import subprocess

    help_text = subprocess.run([assembler.path, "--help"], capture_output=True, text=True, timeout=60).stdout
    return f"'sm_{capability}" in help_text
