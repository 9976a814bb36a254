"""What a run will take, as the command prints it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from ..diffusion.training.estimate import RunEstimate


def estimate_table(found: RunEstimate) -> Group:
    """Memory by part, kinds of batches, the answer, time and disk."""
    lines = [_answer(found)]
    lines += [f"  {text}" for text in found.remedies]
    lines += [*_time(found), _disk(found), *[f"note: {note}" for note in found.notes]]
    return Group(_parts(found), Text(), _kinds(found), Text(), Text("\n".join(lines)))


def _parts(found: RunEstimate) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(f"memory on {found.device}")
    table.add_column("MiB", justify="right")
    for name, nbytes in found.parts().items():
        table.add_row(name, _mib(nbytes))
    table.add_row("at the peak", _mib(found.peak), style="bold")
    return table


def _kinds(found: RunEstimate) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("images", "size", "batches", "MiB", "s/step"):
        table.add_column(name, justify="right")
    for kind, count in found.batches.items():
        seconds = "–" if found.seconds is None else f"{found.seconds[kind]:.3g}"
        size = f"{kind.width}×{kind.height}"
        mib = _mib(found.memory.kinds[kind])
        table.add_row(f"{kind.count}", size, f"{count}", mib, seconds)
    return table


def _answer(found: RunEstimate) -> str:
    if found.refused:
        return f"does not fit: {found.refused}" + (". This does:" if found.remedies else "")
    if found.budget is not None:
        budget = f"the budget of {_mib(found.budget)} MiB is kept, with {_mib(found.peak)} MiB; "
        return budget + _free(found)
    return _free(found)


def _free(found: RunEstimate) -> str:
    if found.free is None:
        return f"takes {_mib(found.peak)} MiB of {found.device}, whose free memory is not known"
    free = f"{_mib(found.peak)} of {_mib(found.free)} MiB that are free on {found.device}"
    return f"fits: {free}" if found.fits else f"does not fit: {free}. This does:"


def _time(found: RunEstimate) -> list[str]:
    per_step, images = found.seconds_per_step, found.images_per_second
    if per_step is None or images is None:
        return [f"steps: {found.steps}"]
    whole = timedelta(seconds=round(per_step * found.steps))
    return [f"steps: {found.steps}, {per_step:.3g} s each ({images:.3g} images/s), {whole} in all"]


def _disk(found: RunEstimate) -> str:
    return "disk: " + ", ".join([f"{name} {_mib(n)} MiB" for name, n in found.disk.items()])


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.1f}"
