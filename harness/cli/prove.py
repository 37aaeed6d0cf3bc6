"""`ptxdiff prove`: prove variants right for all inputs, or find an input on which one is wrong."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ptxdiff import options
from ptxdiff.cli import NAMES, UsageError, named, say
from ptxdiff.cli.records import written_by

if TYPE_CHECKING:
    from ptxdiff.records import Proof

_EPILOG = """\
exit codes: 0 no counterexample was found, 1 there is one (with --all: or a variant is not proved), 2 usage
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("case", nargs="+", metavar="NAME", help=NAMES)
    parser.add_argument(
        "--against",
        default="reference",
        metavar="VARIANT",
        help="prove the bits of this variant (default: reference); sass: prove the machine code of the kernels "
        "against their PTX",
    )
    options.add(parser, "target", "default: sm_90a, or the latest that the variant names", action=None)
    options.add(parser, "seconds", "processor seconds for each variant (default: 60)", default=60.0)
    parser.add_argument(
        "--solver", choices=("bitwuzla", "z3", "both"), help="default: bitwuzla, and z3 for bfloat16; both: the faster"
    )
    parser.add_argument("--all", action="store_true", help="exit with 1 also where a variant is not proved")
    options.add(parser, "records", "write records to this file", type=Path)
    options.add(
        parser, "format", "json prints one object per line, and nothing else", choices=("text", "json"), default="text"
    )


def main(args: argparse.Namespace) -> int:
    """Print the verdict on each variant. Returns 0 or 1, as the help text says."""
    from ptxdiff.model.targets import normal
    from ptxdiff.model.variants import CaseError
    from ptxdiff.proving.solving import SOLVERS
    from ptxdiff.proving.verdicts import default_target, proof_of
    from ptxdiff.records import to_json

    if not args.seconds >= 1:
        raise UsageError("--seconds is a number of seconds, at least 1")
    try:
        asked = normal(args.target) if args.target else ""
    except ValueError as e:
        raise UsageError(f"--target: {e}") from None
    solvers = {None: (), "both": SOLVERS}.get(args.solver, (args.solver,))
    chosen = named(args.case)
    several = sum(len(one.variants) for one in chosen) > 1
    proofs: list[Proof] = []
    with written_by("prove", args.records, chosen) as write:
        for one in chosen:
            case = one.loaded.case
            for name in one.variants:
                if name == args.against or (several and not case.elementwise):
                    continue
                target = asked or one.target or default_target(case, name, args.against)
                try:
                    proof = proof_of(
                        one.loaded, name, target, against=args.against, seconds=args.seconds, solvers=solvers
                    )
                except CaseError as e:
                    raise UsageError(str(e)) from None
                proofs.append(proof)
                write(proof)
                if args.format == "json":
                    print(json.dumps(to_json(proof)), flush=True)
                else:
                    say("\n".join(lines(proof)))
    if args.format != "json" and len(proofs) > 1:
        say("\n".join(table(proofs)))
    verdicts = Counter(p.verdict for p in proofs)
    wrong = verdicts["counterexample"] or (args.all and verdicts["proved"] < len(proofs))
    return 1 if wrong else 0


def lines(proof: Proof) -> Iterator[str]:
    """The lines on one variant."""
    subject = f"{proof.case}::{proof.variant} [{proof.target}]"
    against = "" if proof.against == "reference" else f" against {proof.against}"
    if proof.assembler:
        against += f" of {proof.assembler}"
    if proof.verdict == "proved":
        packs = "pack " + ", ".join(map(str, proof.packs))
        by = f" by {proof.solver}" if proof.solver else ""
        yield f"{subject}: proved{against} for all inputs, {packs}{by} ({proof.seconds:.1f} s)"
        return
    yield f"{subject}: {proof.verdict}{against} ({proof.seconds:.1f} s)"
    yield f"  {proof.words}"
    if proof.inputs:
        yield "  input: " + "; ".join(f"{name} = {', '.join(units)}" for name, units in proof.inputs.items())
    if proof.verdict == "not settled":
        for one in proof.tried[-2:]:
            yield f"  tried: {one}"


def table(found: Sequence[Proof]) -> Iterator[str]:
    """How many variants have each verdict; of those not settled, for which reason."""
    yield ""
    for verdict in ("proved", "counterexample"):
        yield f"{sum(p.verdict == verdict for p in found):5} {verdict}"
    reasons = Counter(p.words.partition(":")[0] for p in found if p.verdict == "not settled")
    for reason, count in reasons.most_common():
        yield f"{count:5} not settled: {reason}"
