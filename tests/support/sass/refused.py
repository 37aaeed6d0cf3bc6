"""What keeps the catalogue from running as machine code: `python -m tests.support.sass.refused --target sm_100a`.

The first launch of each variant of the case files is compiled and assembled, not run. Printed are the opcodes of
machine instructions that have no row, with the number of launches that hold one, then the forms that are not taught.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from pathlib import Path

from ptxdiff.backends.assembler import assembled
from ptxdiff.backends.sass import SassBackend
from ptxdiff.conformance.taught import unsettled
from ptxdiff.jobs import Outcome
from ptxdiff.model.load import load
from ptxdiff.running.item import Item
from ptxdiff.running.run import jobs
from ptxdiff.sass.cubin import disassembled, machine_code
from ptxdiff.sass.machine import Computed, RefusedStep, prepared
from ptxdiff.sass.text import Unsupported
from ptxdiff.triton.targets import tool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, default=sorted(Path("cases").glob("*.py")))
    parser.add_argument("--target", default="sm_100a")
    args = parser.parse_args()
    backend, counts = SassBackend(), Counter()
    refused: dict[str, dict[str, str]] = defaultdict(dict)  # by opcode: a text by launch
    untaught: dict[str, set[str]] = defaultdict(set)
    for path in args.files:
        for loaded in load(path):
            for variant in loaded.case.variants:
                name = f"{loaded.name}::{variant}"
                try:
                    launches = jobs(Item(loaded, variant, args.target, "sass"), backend, "quick")
                    job = next((job for _, job in launches if job), None)
                    made = assembled(job) if job is not None else None
                except Exception as error:
                    counts[f"no launch: {type(error).__name__}"] += 1
                    continue
                if made is None or isinstance(made, Outcome):
                    counts[made.status if made else "no launch"] += 1
                    continue
                built = made[1]
                try:
                    text = disassembled(built.assembly.cubin, tool("nvdisasm"))
                    steps = prepared(machine_code(built.assembly.cubin, text, built.compilation.entry))
                except Unsupported as error:
                    refused[error.message][name] = ""
                    counts["unreadable"] += 1
                    continue
                for step in steps.values():
                    if isinstance(step, RefusedStep):
                        opcode = step.instruction.opcode or step.instruction.text.split(" ")[0]
                        refused[opcode].setdefault(name, step.words)
                left = unsettled({s.form for s in steps.values() if isinstance(s, Computed)}, args.target)
                for form in left:
                    untaught[form].add(name)
                if built.compilation.scratch:
                    refused["scratch memory"][name] = ""
                whole = not any(isinstance(s, RefusedStep) for s in steps.values()) and not built.compilation.scratch
                counts["known and taught" if whole and not left else "known" if whole else "refused"] += 1
    print(args.target, dict(counts))
    for opcode, launches in sorted(refused.items(), key=lambda p: -len(p[1])):
        print(f"{len(launches):4} {opcode}: {'; '.join(dict.fromkeys(launches.values()))[:600]}")
        print(f"       {', '.join(list(launches)[:6])}")
    for form, names in sorted(untaught.items(), key=lambda p: -len(p[1])):
        print(f"{len(names):4} not taught: {form} ({', '.join(sorted(names)[:3])})")


if __name__ == "__main__":
    main()
