"""The environment of a run: versions, devices, git revision. It is written once, at the head of the records."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ptxdiff.locations import PACKAGE
from ptxdiff.model.identity.definition import harness

_PACKAGES = ("ptxdiff", "triton", "torch", "numpy", "numba", "ml_dtypes")
_DECIDING = ("python", *_PACKAGES, "harness", "ledgers", "approximate", "ptxas", "cuda", "driver")


def environment(
    folder: Path, *, gpu: bool, approximate: str = "hopper", assemblers: Sequence[str] = ()
) -> dict[str, Any]:
    """The facts, by name, without those that cannot be found out.

    folder: the checkout whose revision is recorded. gpu: whether to list GPUs, which loads torch. approximate: the
    generation whose bits approximate instructions have on the emulator. assemblers: labels of those that were chosen.
    """
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "host_cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }
    facts |= {name: v for name in _PACKAGES if (v := _version(name))}
    facts |= {"harness": harness(), "ledgers": ledgers(), "approximate": approximate}
    facts |= {"git": git} if (git := revision(folder)) else {}
    facts |= {"ptxas": carried} if (carried := _assemblers()) else {}
    facts |= {"assemblers": list(assemblers)} if assemblers else {}
    facts |= {"compilers": others} if (others := _compilers()) else {}
    if gpu:
        facts |= devices()
    return facts


def other_environment(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first fact that decides bits or verdicts and is different now, in words; "" if none is."""
    if (was := before.get("compilers", {})) != (current := now.get("compilers", {})):
        return f"the compilers {_named(was)}; here are {_named(current)}"
    if (was := before.get("assemblers", [])) != (current := now.get("assemblers", [])):
        return f"the assemblers {', '.join(was) or _TRITONS}; here are {', '.join(current) or _TRITONS}"
    for name in _DECIDING:
        if name in before and name in now and before[name] != now[name]:
            own = _OWN.get(name, "")
            return f"{own or f'{name} {before[name]}'}; here {_OTHER.get(name) or f'is {now[name]}'}"
    return ""


_OWN = {"harness": "the harness's own code", "ledgers": "the harness's own ledgers of evidence"}
_OTHER = {"harness": "is another", "ledgers": "are others"}
_TRITONS = "that Triton uses alone"


def ledgers() -> str:
    """A digest of the ledgers on which evidence rests: of forms of PTX, and of what is taught of machine code."""
    files = [PACKAGE / "conformance" / name for name in ("ledger.jsonl", "taught.jsonl", "moves.jsonl")]
    return _digest_of(tuple((file, file.stat().st_mtime_ns, file.stat().st_size) for file in files))


@functools.lru_cache(maxsize=4)
def _digest_of(files: tuple[tuple[Path, int, int], ...]) -> str:
    """A digest of the contents of files with the times and sizes that they have now."""
    return hashlib.sha256(b"\0".join(file.read_bytes() for file, _, _ in files)).hexdigest()[:32]


def _named(compilers: Mapping[str, Any]) -> str:
    listed = ", ".join(f"{name} {c['triton']} ({c['files'][:8]})" for name, c in compilers.items())
    return listed or "of this environment alone"


def _compilers() -> dict[str, dict[str, str]]:
    """The other Triton builds that are installed here, by name: their versions, and a digest of their files."""
    from ptxdiff.triton.builds import NoBuild, build_called, installation_of, known

    builds = {}
    for name in known():
        with contextlib.suppress(NoBuild):  # an item that is compiled with it reports the fault
            build = build_called(name)
            files = installation_of(name)[:16]
            builds[name] = {"triton": build.version, "python": build.python_version, "files": files}
    return builds


@functools.cache
def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def revision(folder: Path) -> Mapping[str, Any]:
    """The git revision of a folder and facts on it; empty outside a checkout.

    subject: the first line of the commit's message. dirty: whether tracked files have changes. web: the address of the
    repository's page.
    """

    def ask(*words: str) -> str | None:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    try:
        commit = ask("rev-parse", "HEAD")
        if commit is None:
            return {}
        return {
            "revision": commit,
            "subject": ask("log", "-1", "--format=%s") or "",
            "branch": ask("rev-parse", "--abbrev-ref", "HEAD") or "",
            "web": web_address(ask("remote", "get-url", "origin") or ""),
            "dirty": bool(ask("status", "--porcelain", "--untracked-files=no")),
        }
    except OSError:  # no git here
        return {}


def web_address(remote: str) -> str:
    """The page of a remote repository, `https://host/owner/name`, without user and password; "" if it has none."""
    if "://" in remote:
        try:
            parts = urlsplit(remote)
            port = f":{parts.port}" if parts.port and parts.scheme in ("http", "https") else ""
        except ValueError:
            return ""
        host, path = f"{parts.hostname or ''}{port}", parts.path
        known = parts.scheme in ("http", "https", "ssh", "git")
    else:  # `user@host:owner/name`; a folder has no page
        host, colon, path = remote.rpartition("@")[2].partition(":")
        known = bool(colon)
    path = path.strip("/").removesuffix(".git")
    known = known and re.fullmatch(r"[\w-]+(\.[\w-]+)+(:\d+)?", host) is not None
    return f"https://{host}/{path}" if known and re.fullmatch(r"[\w~-][\w.~-]*(/[\w~-][\w.~-]*)+", path) else ""


def _assemblers() -> list[dict[str, Any]]:
    """The ptxas releases that the installed Triton carries, each with its targets and its program's digest."""
    try:
        from ptxdiff.triton.targets import probe

        table = probe()
    except Exception:  # no Triton, or one that cannot be probed: backends that need it report why
        return []
    served: dict[tuple[str, str], list[str]] = {}
    for name, info in table.items():
        if info.available:
            served.setdefault((str(info.ptxas), _program(info.path)), []).append(name)
    return [{"version": v, "targets": names, "program": program} for (v, program), names in served.items()]


def _program(path: str) -> str:
    """The digest of an assembler's program; "" if it does not run."""
    from ptxdiff.triton.ptxas import NoAssembler, assembler_at

    try:
        return assembler_at(path, 0).digest
    except NoAssembler:
        return ""


def devices() -> dict[str, Any]:
    """The GPUs here, and the versions of torch's CUDA and of the driver. Loads torch, but makes no CUDA context."""
    from ptxdiff.processes.gpus import gpus

    if not gpus():
        return {"gpus": []}
    import torch

    gpu_facts = [{"name": g.name, "target": g.target, "memory_gb": g.memory >> 30, "uuid": g.uuid} for g in gpus()]
    return {"gpus": gpu_facts, "cuda": torch.version.cuda, "driver": _driver()}


def _driver() -> str:
    """The driver's version, from the kernel module."""
    try:
        version_words = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").split()
    except OSError:
        return ""
    return next((w for w in version_words if w[0].isdigit() and "." in w), "")
