"""A solver in a process of its own, whose memory and processor time the system bounds.

Reads one JSON object from standard input (solver, seconds, text, variables) and writes one (answer, model, seconds).
It is run by its path, so that it imports the solver and nothing of ptxdiff.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import time
from functools import partial
from typing import Any

MEMORY = 6 << 30


def by_bitwuzla(text: str, variables: dict[str, int]) -> tuple[str, dict[str, int]]:
    """The answer of bitwuzla, and a model."""
    import bitwuzla

    options = bitwuzla.Options()
    options.set(bitwuzla.Option.PRODUCE_MODELS, True)
    parser = bitwuzla.Parser(bitwuzla.TermManager(), options)
    parser.parse(text, True, False)
    solver = parser.bitwuzla()
    answer = {bitwuzla.Result.SAT: "sat", bitwuzla.Result.UNSAT: "unsat"}.get(solver.check_sat(), "unknown")
    model = {}
    if answer == "sat":
        for term in parser.get_declared_funs():
            if str(term) in variables:
                value = solver.get_value(term)
                model[str(term)] = int(value.value(10)) if variables[str(term)] else int(bool(value.value()))
    return answer, model


def by_z3(text: str, variables: dict[str, int], integers: bool = False) -> tuple[str, dict[str, int]]:
    """The answer of z3, and a model. integers: bit-vectors as integers, with linear arithmetic."""
    import z3

    solver = z3.SimpleSolver() if integers else z3.Solver()
    if integers:
        solver.set("bv.solver", 2)
    solver.from_string(text)
    answer = str(solver.check())
    model = {}
    if answer == "sat":
        found = solver.model()
        for name, width in variables.items():
            sort = z3.BitVecSort(width) if width else z3.BoolSort()
            value = found.eval(z3.Const(name, sort), model_completion=True)
            model[name] = value.as_long() if width else int(z3.is_true(value))
    return answer, model


def main() -> None:
    """SolverAnswer the query on standard input."""
    asked: dict[str, Any] = json.load(sys.stdin)
    most = math.ceil(asked["seconds"])
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    solvers: dict[str, Any] = {"bitwuzla": by_bitwuzla, "z3": by_z3, "z3-integers": partial(by_z3, integers=True)}
    answer, model = solvers[asked["solver"]](asked["text"], asked["variables"])
    json.dump({"answer": answer, "model": model, "seconds": time.process_time()}, sys.stdout)


if __name__ == "__main__":
    main()
