"""The progress bar at every width of a terminal."""

import io
import re

import pytest
from rich.console import Console

from weft.train.progress import BAR, Bar, fitting

from .runs import loader, squares, trainer


def loss(model, batch):
    """Metrics with long names, as models have them."""
    value, metrics = squares(model, batch)
    return value, {"mean_absolute_error_of_all": metrics["absolute"], "perplexity": 1234.5}


def shown(width: int, **options) -> list[str]:
    """The lines that a terminal of this width shows, without colours and moves."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=width, color_system=None)
    run = trainer(loss=loss)
    run.callbacks.named["Bar"] = Bar(console)
    run.fit(loader(), epochs=2, **options)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.getvalue())
    return [line for line in re.split(r"[\r\n]", plain) if line.strip()]


@pytest.mark.parametrize("width", range(20, 201, 3))
def test_what_matters_is_shown(width):
    lines = shown(width)
    assert all(len(line.rstrip()) <= width for line in lines)
    last = lines[-1]
    assert "14/14" in last and "…" not in last
    if width >= 36:
        assert re.search(r"loss [\d.]+(e[-+]\d+)?", last) and re.search(
            r"[\d,.]+( samples)?/s", last
        )
    if width >= 60:
        assert "━" * 10 in last and "samples/s" in last
    if width >= 80:
        assert "ETA 0:00:00" in last and "━" * 10 in last
    if width >= 170:
        assert "perplexity" in last and "grad norm" in last and "epoch 1" in last


@pytest.mark.parametrize("width", range(1, 60, 7))
def test_parts_fit_by_their_rank(width):
    parts = [(5, "epoch 3"), (3, BAR), (0, "123/456"), (1, "loss 0.5"), (2, "99/s")]
    found = fitting(parts, width)
    assert found == [p for _, p in parts if p in found] and "123/456" in found
    assert len("  ".join(found)) <= width or found == ["123/456"]
    kept = [rank for rank, p in parts if p in found]
    for rank, p in parts:  # what is left out has no room beside what matters more
        if p not in found:
            more = [q for r, q in parts if r < rank and r in kept]
            assert len("  ".join([*more, p])) > width
