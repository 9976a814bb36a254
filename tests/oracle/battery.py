"""Running the samples of an op: what was compared, what left out, what disagreed."""

import traceback
from dataclasses import dataclass, field

import numpy as np

from .agreement import disagreements
from .database import SampleInput, described, samples
from .exclusions import reason
from .trial import Trial


@dataclass
class Tally:
    """What became of an op's samples."""

    compared: int = 0
    excluded: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def run(name: str, dtype: str, device: str = "cpu", most: int | None = None) -> Tally:
    """Compare an op's samples with torch, or the first `most` of them that count."""
    tally = Tally()
    for i, sample in enumerate(samples(name, dtype)):
        why = reason(name, sample, dtype)
        if why is not None:
            tally.excluded[why] = tally.excluded.get(why, 0) + 1
            continue
        if tally.compared == most:
            break
        tally.compared += 1
        found = problems(name, sample, device)
        tally.problems += [f"{name} [{dtype}] sample {i} {described(sample)}: {p}" for p in found]
    return tally


def problems(name: str, sample: SampleInput, device: str = "cpu") -> list[str]:
    """Where Weft and torch disagree on a sample."""
    trial = Trial(name, sample)
    try:
        # Samples visit poles and domains' ends on purpose; NumPy's warnings are no finding.
        with np.errstate(all="ignore"):
            got = trial.weft(device)
    except Exception as e:  # Whatever Weft raises is the finding, and the other samples go on.
        last = traceback.extract_tb(e.__traceback__)[-1]
        return [f"{type(e).__name__}: {e} ({last.filename}:{last.lineno})"]
    return disagreements(trial, got)
