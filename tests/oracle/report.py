"""What the oracle covers, in numbers: `python -m tests.oracle.report [op …]`."""

import sys
import time
from collections import Counter

from .battery import Tally, run
from .database import DTYPES, OPS, takes
from .mapping import MAPPED
from .unmapped import unmapped


def tallies(names: list[str]) -> dict[tuple[str, str], Tally]:
    """The outcome for every op and dtype."""
    return {(n, d): run(n, d) for n in names for d in DTYPES if takes(n, d)}


def lines(names: list[str], full: bool) -> list[str]:
    """The report, for all ops or for some."""
    start = time.perf_counter()
    found = tallies(names)
    seconds = time.perf_counter() - start
    left_out = Counter()
    for t in found.values():
        left_out.update(t.excluded)
    problems = [p for t in found.values() for p in t.problems]
    compared = sum(t.compared for t in found.values())
    out = [f"{compared} samples of {len(names)} ops compared in {seconds:.0f} s"]
    out += [f"{sum(left_out.values())} samples excluded:"]
    out += [f"  {n:5}  {why}" for why, n in left_out.most_common()]
    if full:
        reasons = Counter(unmapped(MAPPED).values())
        out += [f"{sum(reasons.values())} of torch's {len(OPS)} ops not mapped:"]
        out += [f"  {n:5}  {why}" for why, n in reasons.most_common()]
    return [*out, f"{len(problems)} problems:", *(f"  {p}" for p in problems)]


if __name__ == "__main__":
    print("\n".join(lines(sys.argv[1:] or list(MAPPED), full=len(sys.argv) == 1)))
