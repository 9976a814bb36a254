"""The scoreboard as text."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from .problems import PROBLEMS

PEERS = ("torch", "torch.compile", "jax.jit", "autograd", "CasADi", "torch foreach")
COLUMNS = ("torch", "torch.compile", "jax.jit", "other", "floor", "weft", "weft.compile")
OTHERS = ("autograd", "CasADi", "CasADi, bound", "torch foreach")


def written(found: dict) -> str:
    """Tables in Markdown: times, ratios and goals, first calls, errors."""
    parts = [_head(), _times(found), _compilations(found), _errors(found)]
    return "\n\n".join(parts) + "\n"


def _head() -> str:
    packages = ["weft", "numpy", "torch", "jax", "autograd", "casadi", "llvmlite"]
    versions = ", ".join(f"{p} {_version(p)}" for p in packages)
    return (
        "# Scoreboard\n\n"
        "Written by `make bench` (`python -m bench.scoreboard`). Each contender runs in a process "
        "of its own, all take turns; results are compared with PyTorch's in float64 before they "
        "are timed. Times are the best of six rounds, in microseconds. The ratio is Weft compiled "
        "to the best peer (the arm: to CasADi's ordinary call); the floor is NumPy at the part "
        "that nobody can do without (a copy, the products of matrices, XᵀSX), no peer.\n\n"
        f"{_cpu()}, {os.cpu_count()} threads; Python {platform.python_version()}, {versions}."
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "from source"


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def ratio(name: str, lines: dict) -> float | None:
    """Weft compiled to the peer that counts."""
    against = PROBLEMS[name].against
    peers = [p for p in PEERS if p in lines and lines[p].right and against in (None, p)]
    if "weft.compile" not in lines or not peers:
        return None
    return lines["weft.compile"].best / min(lines[p].best for p in peers)


def _times(found: dict) -> str:
    rows = []
    for name, lines in found.items():
        cells = [_other(lines) if c == "other" else _time(lines.get(c)) for c in COLUMNS]
        reached, goal = ratio(name, lines), PROBLEMS[name].goal
        verdict = "–" if reached is None else f"{reached:.2f}"
        verdict = f"**{verdict}**" if reached is not None and reached > goal else verdict
        rows.append([PROBLEMS[name].title, *cells, verdict, f"{goal:.2f}"])
    head = ["problem", *COLUMNS[:-1], "weft.compile", "ratio", "goal"]
    return "## Times\n\n" + _table(head, rows) + "\n\nRatios in bold miss their goal."


def _time(line) -> str:
    if line is None:
        return "–"
    micro = 1e6 * line.best
    text = f"{micro:,.0f}" if micro >= 100 else f"{micro:.1f}" if micro >= 10 else f"{micro:.2f}"
    return text if line.right else f"{text} (wrong)"


def _other(lines: dict) -> str:
    found = [f"{c} {_time(lines[c])}" for c in OTHERS if c in lines]
    return ", ".join(found) or "–"


def _compilations(found: dict) -> str:
    ways = ("torch.compile", "jax.jit", "CasADi", "weft.compile")
    rows = [
        [PROBLEMS[name].title, *(_first(lines.get(w)) for w in ways)]
        for name, lines in found.items()
    ]
    return "## First call, in seconds: with empty caches / with what another process left\n\n" + (
        _table(["problem", *ways], rows)
    )


def _first(line) -> str:
    return "–" if line is None else f"{line.cold:.3f} / {line.warm:.3f}"


def _errors(found: dict) -> str:
    ways = ("torch", "jax.jit", "weft", "weft.compile")
    rows = [
        [PROBLEMS[name].title, *(_error(lines.get(w)) for w in ways)]
        for name, lines in found.items()
    ]
    return (
        "## Relative errors beside float64, in norm\n\n"
        "Of a training step: of five losses, then of the parameters' changes.\n\n"
        + _table(["problem", *ways], rows)
    )


def _error(line) -> str:
    if line is None or not line.errors:
        return "–"
    return ", ".join(f"{e:.1e}" for e in line.errors)
