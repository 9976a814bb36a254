"""The progress bar at every width of a terminal."""

import io
import re

import numpy as np
import pytest
from rich.console import Console

import weft as wf
from weft.profile import gpu
from weft.train import progress
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
        assert "perplexity" in last and "grad norm" in last and "epoch 2" in last


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


class Tick(wf.train.Callback):
    """Lets a clock go on after each step, longer after the first ones, which compile."""

    def __init__(self, monkeypatch, slow: int):
        self.now, self.slow = 0.0, slow
        monkeypatch.setattr(progress, "perf_counter", lambda: self.now)

    def on_step_end(self, trainer, row):
        self.now += 2.0 if self.slow <= 0 else 100.0
        self.slow -= 1


def said(capsys) -> tuple[list[float], list[int]]:
    """The speeds and the seconds that were left, of each line."""
    text = capsys.readouterr().err
    speeds = [float(n.replace(",", "")) for n in re.findall(r"([\d.,]+) samples/s", text)]
    left = [
        int(h) * 3600 + int(m) * 60 + int(s) for h, m, s in re.findall(r"ETA (.+):(.+):(.+)", text)
    ]
    return speeds, left


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_samples_and_time_left_by_a_clock(tmp_path, monkeypatch, capsys, accumulate):
    """Also of smaller batches at the end of epochs, and after a run was resumed."""
    options = dict(progress="lines", log_every=1, accumulate=accumulate)
    each = [4] * 6 + [2]
    steps = [sum(each[i : i + accumulate]) for i in range(0, 7, accumulate)]
    first = trainer(tmp_path, callbacks=[Tick(monkeypatch, 0)], **options)
    first.fit(loader(), epochs=1)
    speeds, left = said(capsys)
    np.testing.assert_allclose(speeds, [n / 2 for n in steps], rtol=0.05)  # two digits are shown
    assert left == [2 * k for k in range(len(steps))][::-1]

    again = trainer(tmp_path, callbacks=[Tick(monkeypatch, 2)], **options)
    again.fit(loader(), epochs=5, resume="auto")
    speeds, left = said(capsys)
    np.testing.assert_allclose(speeds[2:], [n / 2 for n in (steps * 4)[2:]], rtol=0.05)
    assert left[3:] == [2 * k for k in range(4 * len(steps))][::-1][3:]


def test_memory_is_that_of_a_counter_or_of_the_gpu(monkeypatch, capsys):
    options = dict(progress="lines", log_every=1)
    trainer(**options).fit(loader(), steps=1)
    assert "memory" not in capsys.readouterr().err
    with wf.profile.Counter() as counter:
        run = trainer(**options)
        held = wf.zeros(1 << 18, dtype="float64")
        run.fit(loader(), steps=1)
        live = counter.live
    told = re.search(r"memory ([\d.]+) MiB, peak ([\d.]+) MiB", capsys.readouterr().err)
    assert told is not None and 2 <= float(told[1]) <= float(told[2]) < 3 and held.size
    assert abs(float(told[1]) - live / 2**20) < 0.1
    monkeypatch.setattr(progress, "device_of", lambda model: "cuda:1")
    monkeypatch.setattr(gpu, "live", lambda device: {"cuda:1": 3 << 30}[device])
    monkeypatch.setattr(gpu, "peak", lambda device: {"cuda:1": 5 << 30}[device])
    trainer(**options).fit(loader(), steps=1)
    assert "memory 3.00 GiB, peak 5.00 GiB  ETA" in capsys.readouterr().err
    assert "mem 3.0/5.0 GiB" in shown(100)[-1] and "lr 0.01" in shown(100)[-1]
    assert "mem 3.0/5.0 GiB" in shown(80)[-1] and "ETA" in shown(80)[-1]
