"""The GPU's table as text."""

from math import exp, log
from typing import Any

from .problems import (
    COMPILED,
    CUDNN,
    EAGER,
    JAX,
    OURS,
    OURS_COMPILED,
    PROBLEMS,
    REDUCED,
)

TORCHS = (EAGER, COMPILED, REDUCED, CUDNN)
COLUMNS = (*TORCHS, JAX, OURS, OURS_COMPILED)
TITLES = {EAGER: "torch eager", OURS: "Weft eager", OURS_COMPILED: "Weft compiled"}
MIB = 1 << 20
HEAD = """# Steps on a GPU

Written by `python bench/gpu.py`, numbers beside in RESULTS-GPU.json. All contenders of a line run
in one process on the same numbers: PyTorch's eager mode and Weft in turns, then PyTorch's compilers
(once they have run, all Python code of a process takes longer), then JAX. Results are compared with
float64 before they are timed. Times are medians of wall-clock times between two synchronisations,
in milliseconds. PyTorch's optimizers are the fused ones."""

Cases = dict[str, Any]


def written(cases: Cases) -> str:
    """Tables in Markdown: times and ratios, memory, first calls, errors, what was raised."""
    cases = {name: cases[name] for name in PROBLEMS if name in cases}
    parts = [HEAD, _environments(cases), _times(cases), _eager(cases), _memory(cases)]
    parts += [_first(cases), _errors(cases), _messages(cases)]
    return "\n\n".join(part for part in parts if part) + "\n"


def ratio(name: str, case: Any) -> float | None:
    """Weft compiled to what its problem is compared with."""
    against = PROBLEMS[name].against
    peer = _best(case) if against == "" else _milliseconds(case, against)
    mine = _milliseconds(case, OURS_COMPILED)
    return None if peer is None or mine is None else mine / peer


def _milliseconds(case: Any, way: str) -> float | None:
    return case["lines"].get(way, {}).get("milliseconds")


def _best(case: Any) -> float | None:
    times = [t for t in (_milliseconds(case, way) for way in TORCHS) if t is not None]
    return min(times, default=None)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _title(way: str) -> str:
    return TITLES.get(way, way)


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1f}" if value >= 100 else f"{value:.3g}"


def _environments(cases: Cases) -> str:
    found: dict[str, list[str]] = {}
    for name, case in cases.items():
        found.setdefault(case["environment"], []).append(name)
    if len(found) == 1:
        return f"{next(iter(found))}."
    return "\n".join(f"- {text}: {', '.join(names)}" for text, names in found.items())


def _times(cases: Cases) -> str:
    rows = []
    for name, case in cases.items():
        problem, reached = PROBLEMS[name], ratio(name, case)
        cells = [_time(case["lines"].get(way)) for way in COLUMNS]
        verdict = "–" if reached is None else f"{reached:.2f}"
        missed = reached is not None and problem.goal is not None and reached > problem.goal
        verdict = f"**{verdict}**" if missed else verdict
        goal = "–" if problem.goal is None else f"{problem.goal:.2f}"
        goal += f" of {_title(problem.against)}" if problem.against else ""
        rows.append([problem.title, *cells, _number(problem.floor), verdict, goal])
        rows[-1].append(_beside_jax(case, problem.floor))
    head = ["problem", *map(_title, COLUMNS), "floor", "ratio", "goal", "to jax.jit"]
    return (
        "## Times\n\n"
        + _table(head, rows)
        + "\n\nThe ratio is Weft compiled to the quickest of PyTorch's, or to what the goal names. "
        "Ratios in bold miss their goal; to jax.jit it is 1, or 1.15 of the floor if that is more. "
        "The floor is what memory traffic or products take by "
        "themselves on an H200."
    )


def _beside_jax(case: Any, floor: float | None) -> str:
    peer, mine = _milliseconds(case, JAX), _milliseconds(case, OURS_COMPILED)
    if peer is None or mine is None:
        return "–"
    missed = mine > max(peer, 1.15 * (floor or 0.0))
    return f"**{mine / peer:.2f}**" if missed else f"{mine / peer:.2f}"


def _time(line: Any) -> str:
    if line is None:
        return "–"
    if "milliseconds" in line:
        return _number(line["milliseconds"])
    return line.get("message", "not timed").partition(":")[0]


def _eager(cases: Cases) -> str:
    ratios = {}
    for name, case in cases.items():
        mine, peer = _milliseconds(case, OURS), _milliseconds(case, EAGER)
        if mine is not None and peer is not None:
            ratios[name] = mine / peer
    if not ratios:
        return ""
    mean = exp(sum(map(log, ratios.values())) / len(ratios))
    each = ", ".join(f"{name} {r:.2f}" for name, r in ratios.items())
    return f"Weft eager to torch eager: geometric mean {mean:.2f}, each: {each}."


def _memory(cases: Cases) -> str:
    rows = []
    for name, case in cases.items():
        peaks = {way: case["lines"].get(way, {}).get("peak") for way in COLUMNS if way != JAX}
        if any(p is not None for p in peaks.values()):
            cells = ["–" if p is None else f"{p / MIB:,.0f}" for p in peaks.values()]
            mine, peer = peaks[OURS_COMPILED], peaks[EAGER]
            if mine is not None and peer is not None and mine > peer:
                cells[-1] = f"**{cells[-1]}**"
            rows.append([PROBLEMS[name].title, *cells])
    head = ["problem", *[_title(way) for way in COLUMNS if way != JAX]]
    text = (
        "## Peak memory of a step, in MiB\n\n"
        "`torch.cuda.max_memory_allocated` of one step, less what only other contenders hold. "
        "More than torch eager's is in bold.\n\n"
    )
    return text + _table(head, rows) if rows else ""


def _first(cases: Cases) -> str:
    ways = (COMPILED, REDUCED, JAX, OURS_COMPILED)
    rows = []
    for name, case in cases.items():
        cells = [_number(case["lines"].get(way, {}).get("first")) for way in ways]
        own = case["lines"].get(OURS_COMPILED, {}).get("own", [])
        cells += [_number(t) for t in own] + ["–"] * (2 - len(own))
        rows.append([PROBLEMS[name].title, *cells])
    head = ["problem", *map(_title, ways), "own process, cold", "own process, from the cache"]
    return (
        "## First call, in seconds\n\nWith empty caches; Weft compiled also in processes of its "
        "own, first with empty caches and then with what the first has left: programs, and "
        "Weft's modules as bytecode, which an installation has from the beginning.\n\n"
        + _table(head, rows)
    )


def _errors(cases: Cases) -> str:
    rows = []
    for name, case in cases.items():
        found = [case["lines"].get(way, {}).get("error") for way in COLUMNS]
        cells = ["–" if e is None else f"{e:.1e}" for e in found]
        rows.append([PROBLEMS[name].title, *cells])
    return (
        "## Errors beside float64\n\nThe largest of an array's, relative to its norm: results, "
        "gradients, and all changes of parameters as one array.\n\n"
        + _table(["problem", *map(_title, COLUMNS)], rows)
    )


def _messages(cases: Cases) -> str:
    found = []
    for name, case in cases.items():
        for way, line in case["lines"].items():
            if "message" in line:
                found.append(f"- {name}, {_title(way)}: {line['message']}")
    return "## What was not run\n\n" + "\n".join(found) if found else ""
