"""Inputs of a sweep that the plain judge checks again: the flagged ones, and a sample of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from ptxdiff.inputs.sets import seed_of
from ptxdiff.judging.judge import Judgement
from ptxdiff.sweep.examine import Details, Examiner, whole_packs
from ptxdiff.sweep.result import OracleFault

SAMPLE = 1 << 16
"""The total number of inputs."""


class Sampler:
    """Random places in each chunk, equal at each call. host: int64[chunks, each], ascending in a chunk."""

    def __init__(self, chunk: int, chunks: int, name: str, device: str) -> None:
        rng = np.random.default_rng(seed_of(name, "sampled again"))
        each = min(chunk, -(-SAMPLE // chunks))
        apart = chunk // each
        self.host = np.arange(each) * apart + rng.integers(0, apart, (chunks, each))
        self._places = torch.from_numpy(self.host).to(device)

    def places(self, chunk: int) -> Tensor:
        """The places of one chunk, ascending."""
        return self._places[chunk]


REJUDGED = 1 << 16
"""The most flagged inputs that the plain judge judges, besides the doubtful ones."""


class Windows:
    """Failing, doubtful and some other flagged inputs with their packs, judged again by the plain judge.

    plain, device: the findings of the two judges. first: the number of the first failing input, None if none fails.
    """

    def __init__(self, examiner: Examiner, judge_numbers: Callable[..., Judgement], pack: int) -> None:
        self._examiner, self._judge_numbers, self._pack = examiner, judge_numbers, pack
        self.plain: Judgement | None = None
        self.device = Details()
        self.first: int | None = None
        self._left = REJUDGED
        self._done = -1

    def take(self, number: Tensor, details: Details, start: int, outputs: Mapping[str, Tensor]) -> None:
        """Judge findings of a piece again: at most REJUDGED inputs, plus all doubtful ones.

        number: the numbers of the piece's inputs. start: the number of the chunk's first input. outputs: the chunk's
        outputs. Raises OracleFault if the two judges differ.
        """
        assert details.failing is not None
        assert details.doubt is not None
        if details.failing.numel() and self.first is None:
            self.first = int(details.failing[0])
        chosen = torch.cat([details.failing[: self._left], details.doubt, number[: min(self._left, REJUDGED // 16)]])
        host = torch.unique(chosen).cpu().numpy()
        self._left = max(0, self._left - len(host))
        host = whole_packs(host, self._pack)
        host = host[host > self._done]  # count no pack twice
        if not len(host):
            return
        self._done = int(host[-1])
        place = torch.from_numpy(host - start).to(number.device)
        units = {n: u[place] for n, u in outputs.items()}
        seen = self._examiner.look(place + start, units)
        plain = self._judge_numbers(host, {n: u.cpu().numpy() for n, u in units.items()})
        doubt = int(seen.doubt.numel()) if seen.doubt is not None else 0
        if abs(plain.different - seen.different) > doubt:
            raise OracleFault(
                f"of {len(host)} inputs from number {host[0]} on, {seen.different} results differ by the judge on the "
                f"device and {plain.different} by the plain one"
            )
        self.device.take_up(seen)
        self.plain = plain if self.plain is None else self.plain.merged(plain)

    def notes(self, total: Details) -> list[str]:
        """Remarks if not all differences were judged again. total: the findings about all examined results."""
        if self.plain is None or total.different <= self.device.different:
            return []
        return [
            f"{self.device.different} of {total.different} differences judged again by the plain reference; "
            "the classes of the others are the device's, which tells no flush from another difference"
        ]
