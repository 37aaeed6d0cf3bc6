"""The targets that the installed Triton serves, probed once for each installation.

Triton's choice of ptxas, its LLVM and the ptxas releases each support another range of architectures, and an
unsupported one aborts the process. So every candidate is tried: an empty kernel is compiled in a worker and assembled.
The result is stored in the user's cache folder, under a key that changes with the installation.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ptxdiff.diskcache import DiskCache
from ptxdiff.model.targets import KNOWN, capability
from ptxdiff.triton.builds import installation_of, triton_folder
from ptxdiff.triton.tools import Tool

if TYPE_CHECKING:
    from ptxdiff.triton.spec import Compilation, Compiled, KernelSpec

SCHEMA = 4
_TOOLS = ("ptxas", "ptxas-blackwell")
_OVERRIDES = {
    "ptxas": "TRITON_PTXAS_PATH",
    "ptxas-blackwell": "TRITON_PTXAS_BLACKWELL_PATH",
    "nvdisasm": "TRITON_NVDISASM_PATH",
}
_OLDEST = 75  # the oldest one whose instructions the ISA documents and both ptxas releases support
# A probe that ended so may succeed the next time: the installation is not to blame.
_TRANSIENT = ("was killed", "was stopped", "gave no answer", "did not finish")


@dataclass(frozen=True)
class TargetInfo:
    """The result of probing one target.

    available: Triton compiles for it and its ptxas accepts the result. words: the reason if not. ptxas, ptx_version:
    the version of its assembler ("13.4"), and the PTX ISA version that Triton writes ("9.4"). path: of that assembler.
    options: those with which Triton calls it, beyond those of every call.
    """

    name: str
    available: bool
    words: str = ""
    ptxas: str = ""
    ptx_version: str = ""
    path: str = ""
    options: tuple[str, ...] = ()


def tool(name: str) -> Path:
    """The path of a tool that Triton carries ("nvdisasm"), or that the tool's environment variable names."""
    override = os.environ.get(_OVERRIDES.get(name, ""), "")
    return Path(override) if override and Path(override).exists() else _bundled(name)


def _bundled(name: str) -> Path:
    return triton_folder() / "backends" / "nvidia" / "bin" / name


@functools.cache
def probe() -> Mapping[str, TargetInfo]:
    """Every candidate target by name, in order of capability. Cached on disk; safe for several processes."""
    return _table("", *_installation())


def probe_with(compiler: str) -> Mapping[str, TargetInfo]:
    """Every candidate target for a Triton build, given by name; "" is this environment's. Raises NoTriton."""
    return _table_of(compiler, installation_of(compiler)) if compiler else probe()


@functools.cache
def _table_of(compiler: str, installed: str) -> Mapping[str, TargetInfo]:
    return _table(compiler, str(SCHEMA).encode(), installed.encode())


def _table(compiler: str, *installed: bytes) -> Mapping[str, TargetInfo]:
    if known := _found(installed):
        return known
    with _kept.making(*installed):
        if known := _found(installed):
            return known
        table = _probe(compiler) if compiler else _probe()
        if not any(word in info.words for info in table.values() for word in _TRANSIENT):
            _kept.put(json.dumps([dataclasses.asdict(info) for info in table.values()]).encode(), *installed)
        return table


def _found(installed: Sequence[bytes]) -> dict[str, TargetInfo]:
    stored = _kept.get(*installed)
    entries = [{**e, "options": tuple(e["options"])} for e in json.loads(stored)] if stored else []
    return {entry["name"]: TargetInfo(**entry) for entry in entries}


def available(compiler: str = "") -> tuple[str, ...]:
    """The targets of the case model that a Triton compiles and assembles for, in order of capability."""
    return tuple(name for name, info in probe_with(compiler).items() if info.available and name in KNOWN)


def assembler(target: str) -> Tool:
    """The assembler that Triton would use for a target; if it does not serve that one, for its newest target."""
    served = [info for info in probe().values() if info.path]
    info = probe().get(target)
    return _tool_of(info if info and info.path else served[-1])


def _tool_of(info: TargetInfo) -> Tool:
    return Tool(info.path, info.ptxas, options=info.options)


def assembler_of(target: str, compiler: str = "") -> Tool:
    """The assembler that a Triton build, given by name, would use for a target. Raises NoTriton."""
    if not compiler:
        return assembler(target)
    info = probe_with(compiler).get(target)
    return _tool_of(info) if info and info.path else assembler(target)


def _probe(compiler: str = "") -> dict[str, TargetInfo]:
    from concurrent.futures import ThreadPoolExecutor

    from ptxdiff.processes.pool import default_size
    from ptxdiff.triton.compile import submit  # most processes find the table stored

    names = candidates()
    pending = [submit(replace(_empty_kernel(name), compiler=compiler)) for name in names]
    with ThreadPoolExecutor(default_size()) as threads:
        infos = threads.map(lambda name, future: _inspect(name, future.result()), names, pending)
        return dict(zip(names, infos, strict=True))


def candidates() -> tuple[str, ...]:
    """The targets to probe: those of the case model, and those that either ptxas lists."""
    capabilities = {capability(name) for name in KNOWN}
    for name in ("ptxas", "ptxas-blackwell"):
        try:
            help_text = subprocess.run([str(tool(name)), "--help"], capture_output=True, text=True, timeout=60).stdout
        except (OSError, subprocess.TimeoutExpired):
            continue
        capabilities |= {int(number) for number in re.findall(r"'sm_(\d+)a?'", help_text)}
    # From 9.0 on, Triton writes the architecture-specific target.
    return tuple(f"sm_{n}a" if n >= 90 else f"sm_{n}" for n in sorted(capabilities) if n >= _OLDEST)


def _empty_kernel(target: str) -> KernelSpec:
    from ptxdiff.triton.spec import FunctionRef, KernelSpec

    templates = str(Path(__file__).resolve().with_name("templates.py"))
    function = FunctionRef("ptxdiff.triton.templates", templates, "empty")
    return KernelSpec(function, (), (), (), target, enable_fp_fusion=False)


def _inspect(name: str, compiled: Compiled) -> TargetInfo:
    from ptxdiff.triton.assemble import Assembly, assemble
    from ptxdiff.triton.diagnostics import Refusal

    if isinstance(compiled, Refusal):
        return TargetInfo(name, False, compiled.words)
    by = compiled.ptxas
    info = TargetInfo(name, False, "", by.version, _header(compiled, "version"), by.path, by.options)
    written = _header(compiled, "target").split(",")[0]
    if written != name:
        return replace(info, words=f"Triton writes .target {written} for it")
    assembly = assemble(compiled)
    if not isinstance(assembly, Assembly):
        return replace(info, words=assembly.words)
    return replace(info, available=True)


def _header(compiled: Compilation, directive: str) -> str:
    match = re.search(rf"^\.{directive}\s+(\S+)", compiled.ptx, re.M)
    return match[1] if match else ""


def _installation() -> list[bytes]:
    """What the table depends on: Triton's version and folder, and the size and time of each tool."""
    parts = [str(SCHEMA), importlib.metadata.version("triton"), str(triton_folder())]
    for name in _TOOLS:
        path = tool(name)
        status = path.stat() if path.exists() else None
        parts += [str(path), f"{status.st_size} {status.st_mtime_ns}" if status else "absent"]
    return [part.encode() for part in parts]


_kept = DiskCache("targets")
