"""`ptxdiff show`: print a variant's asm, and the PTX, SASS and resources that Triton and ptxas make for a target."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ptxdiff import options
from ptxdiff.cli import NAMES, UsageError, named, say

if TYPE_CHECKING:
    from ptxdiff.model.load import LoadedCase


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("what", nargs="+", metavar="NAME", help=f"{NAMES} (default: all variants)")
    options.add(parser, "target", "default: the target in the name, or sm_90a", action=None)
    options.add(parser, "pack", "elements per invocation (default: the variant's smallest)")
    options.add(parser, "compiler", "the folder of another Triton build", default=[])
    options.add(parser, "fusion", "compile with multiplications and additions fused")
    options.add(
        parser, "only", "parts to show (repeatable)", choices=("asm", "ptx", "sass", "resources"), action="append"
    )

    options.add(
        parser, "trace", "follow a thread (default: 0) of the first launch, in PTX and machine code side by side",
        type=int, nargs="?", const=0, metavar="THREAD",
    )  # fmt: skip
    options.add(parser, "assembler", "with --trace: the ptxas that assembles (default: bundled)")
    options.add(parser, "opt", "with --trace: its level (default: 3)")


def main(args: argparse.Namespace) -> int:
    """Print the parts. Returns 1 if the compiler or assembler refuses a variant, else 0."""
    from ptxdiff.model.naming import agreed
    from ptxdiff.model.targets import normal
    from ptxdiff.model.variants import CaseError
    from ptxdiff.triton import builds

    try:
        builds.give(builds.parse(build, Path.cwd()) for build in args.compiler)
    except ValueError as e:
        raise UsageError(f"--compiler: {e}") from None
    shown = []
    for chosen in named(args.what):
        try:
            asked = normal(args.target) if args.target else None
            target = agreed("--target", asked, chosen.target) or "sm_90a"
        except (CaseError, ValueError) as e:
            raise UsageError(str(e)) from None
        shown += [(chosen.loaded, name, target) for name in chosen.variants]
    return max(_show(loaded, name, target, args) for loaded, name, target in shown)


def _show(loaded: LoadedCase, name: str, target: str, args: argparse.Namespace) -> int:
    from dataclasses import replace

    from ptxdiff.backends import unavailable
    from ptxdiff.backends.assembler import AssemblerBackend
    from ptxdiff.jobs import Job, Setup
    from ptxdiff.model.compilers import compiler_of
    from ptxdiff.model.derive import asm_form, compiled_form, packs_of
    from ptxdiff.model.variants import AsmVariant, CaseError

    if args.trace is not None:
        return _trace(loaded, name, target, args)
    variant = loaded.case.variants[name]
    parts = args.only or ["asm", "ptx", "sass", "resources"]
    pack = args.pack or (min(packs_of(loaded.case, variant)) if isinstance(variant, AsmVariant) else 1)
    say(f"# {loaded.name}::{name}, {target}, pack {pack}")
    if "asm" in parts and isinstance(variant, AsmVariant):
        try:
            form = compiled_form(loaded.case, asm_form(loaded.case, variant, pack))
        except CaseError as e:
            raise UsageError(str(e)) from None
        say(f"## asm, constraints {form.constraints}\n{form.text.strip()}\n")
    if parts == ["asm"]:
        return 0
    setup = Setup(pack=pack, shape=(1024,), fusion=args.fusion)
    if loaded.case.sizes:
        setup = replace(setup, shape=(), sizes=dict(loaded.case.sizes[0]))
    backend = AssemblerBackend(disassemble="always" if "sass" in parts else "never")
    reason = unavailable(compiler_of(loaded.case, variant), backend.name, target) or backend.unavailable(target)
    if reason is not None:
        raise UsageError(reason)
    outcome = backend.run(Job(loaded.case, loaded.name, loaded.path, name, variant, target, setup))
    if outcome.status != "assembled":
        say(f"{outcome.status}: {outcome.words}")
        return 1
    made = outcome.artifacts
    if "ptx" in parts:
        say(f"## PTX\n{made.ptx}")
    if "sass" in parts:
        say(f"## SASS, ptxas {made.ptxas}\n{made.sass or 'nvdisasm cannot read code for this target'}")
    if "resources" in parts:
        say("## resources\n" + ", ".join(f"{k} {v}" for k, v in made.resources.items()))
    return 0


def _trace(loaded: LoadedCase, name: str, target: str, args: argparse.Namespace) -> int:
    """Print a thread's instructions in PTX and in machine code. Returns 1 if there are none."""
    from dataclasses import replace

    from ptxdiff.backends.first_difference import side_by_side
    from ptxdiff.backends.sass import SassBackend
    from ptxdiff.emulator import PtxError
    from ptxdiff.jobs import Outcome
    from ptxdiff.running.assemblers import AssemblerChoice
    from ptxdiff.running.item import Item
    from ptxdiff.running.run import jobs
    from ptxdiff.triton.builds import NoTriton
    from ptxdiff.triton.ptxas import NoAssembler

    backend = SassBackend()
    if reason := backend.unavailable(target):
        raise UsageError(reason)
    try:
        (chosen, *_) = AssemblerChoice.of(args.assembler, args.opt, "quick").resolved("sass", target)
    except (NoAssembler, NoTriton) as e:
        raise UsageError(f"--assembler: {e}") from None
    job = next((job for _, job in jobs(Item(loaded, name, target, "sass"), backend, "quick") if job is not None), None)
    if job is None:
        raise UsageError(f"{loaded.name}::{name} has no launch to follow")
    try:
        traced = backend.traces(replace(job, setup=replace(job.setup, assembler=chosen)), args.trace)
    except PtxError as e:
        say(f"not followed: {e.message}")
        return 1
    if isinstance(traced, Outcome):
        say(f"{traced.status}: {traced.words}")
        return 1
    rows = side_by_side(*traced)
    if not rows:
        raise UsageError(f"--trace={args.trace}: the launch has no such thread")
    say(f"# {loaded.name}::{name}, {target}, thread {args.trace}: PTX, and machine code beside it")
    width = min(80, max(len(left) for left, _ in rows))
    for left, right in rows:
        say(f"{left:<{width}} | {right}".rstrip())
    return 0
