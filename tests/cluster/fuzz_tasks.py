"""What nodes do with batches of random programs in tests: right work, and the work of broken nodes."""

import os
from dataclasses import replace
from pathlib import Path

from ptxdiff.fuzz.campaign import digest_of_plan
from ptxdiff.fuzz.execution import emulated, text_of
from ptxdiff.fuzz.generate import program
from ptxdiff.fuzz.judge import BatchJudge, JudgedBatch, PtxasFault, prepared


class StandIn:
    """A stand-in for a device, whose machine code is PTX."""

    def run(self, cubin, inputs):
        return [emulated(cubin.decode(), f"p{k}", x) for k, x in enumerate(inputs)]


def judged(plan, files, number, before):
    found = BatchJudge(plan, StandIn(), before).judge(prepared(plan, number))
    return replace(found, plan=digest_of_plan(plan, files))


def right(plan, files, number, before, gpu):
    yield judged(plan, files, number, before)


def dies_once(plan, files, number, before, gpu):
    marker = Path(plan.seed)
    if number == 1 and not marker.exists():
        marker.touch()
        os._exit(1)
    yield judged(plan, files, number, before)


def empty(plan, files, number, before, gpu):
    """A correct result with no programs, which takes no time."""
    runs = plan.batch * len(plan.assemblers)
    yield JudgedBatch(number, plan.batch, 0, runs, 0, (), digest_of_plan(plan, files))


def raises(plan, files, number, before, gpu):
    if number == 1:
        raise RuntimeError("what a node may raise")
    yield from empty(plan, files, number, before, gpu)


def another_batch(plan, files, number, before, gpu):
    for found in empty(plan, files, number, before, gpu):
        yield replace(found, number=0) if number == 1 else found


def another_plan(plan, files, number, before, gpu):
    for found in empty(plan, files, number, before, gpu):
        yield replace(found, plan=digest_of_plan(replace(plan, seed="b"), files)) if number == 1 else found


def other_assemblers(plan, files, number, before, gpu):
    for found in empty(plan, files, number, before, gpu):
        own = dict.fromkeys(files, "0" * 64)
        yield replace(found, plan=digest_of_plan(plan, own)) if number == 1 else found


def fewer_programs(plan, files, number, before, gpu):
    for found in empty(plan, files, number, before, gpu):
        yield replace(found, programs=1) if number == 1 else found


def nothing_ran(plan, files, number, before, gpu):
    for found in empty(plan, files, number, before, gpu):
        yield replace(found, runs=0) if number == 1 else found


def twice(plan, files, number, before, gpu):
    yield from empty(plan, files, number, before, gpu)
    if number == 1:
        yield from empty(plan, files, number, before, gpu)


def says_nothing(plan, files, number, before, gpu):
    if number != 1:
        yield from empty(plan, files, number, before, gpu)


def no_finding(plan, files, number, before, gpu):
    """A difference that the emulator does not confirm."""
    made = program("a/0", plan.capability, plan.weights)
    fault = PtxasFault("wrong", "a/0", ("ptxas 99.9 -O3",), (), made.skeleton, made.size, text_of([made], plan.target),
                       inputs=(1,) * 4, expected=(0,) * 4, given=(1,) * 4)  # fmt: skip
    for found in empty(plan, files, number, before, gpu):
        yield replace(found, findings=(fault,)) if number == 1 else found
