"""What PyTorch and Weft both call by one name means the same, is refused, or is in the table."""

import os
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors
from weft.arrays.spellings import SPELLINGS

from .meanings import differences, shared

LIMIT = 10_000 if os.environ.get("WEFT_SOAK") else 12
# In docs/coming-from-pytorch.md.
LISTED = set(
    "cummax cummin equal linalg.eig linalg.solve max median min repeat sort split std var".split()
)
# Numbers that are drawn, or that nobody has set.
DRAWN = re.compile(r"empty|rand|dropout|bernoulli|multinomial|normal")
SHARED = list(shared())
PAGE = Path(__file__).parents[2] / "docs" / "coming-from-pytorch.md"


def test_many_names_are_shared():
    assert len(SHARED) > 400


@pytest.mark.parametrize(("name", "form"), SHARED, ids=[f"{n}-{f}" for n, f in SHARED])
def test_calls_in_torchs_spelling(name, form):
    if DRAWN.search(name):
        pytest.skip("random")
    found = [d for d in differences(name, form, LIMIT) if "dropout_p=0.5" not in d]
    assert not found or name in LISTED, found[:3]


def test_the_table_lists_them():
    page = PAGE.read_text()
    assert all(f"{n.rpartition('.')[2]}" in page for n in LISTED)


X = np.arange(24.0).reshape(4, 6)
X_TORCH = torch.tensor(X)


def _turned(x):
    """Up and down again along the first axis."""
    return (x - 9.0) ** 2


def _turning(x):
    """A matrix with complex eigenvalues."""
    return (x[:4, :4] ** 2) % 11.0 - (x[:4, :4].T * 3.0) % 7.0


def _rescaled(mine, theirs):
    """v·w, each vector of ours in the place and the phase of theirs, which is all that differs."""
    (w, v), (theirs_w, theirs_v) = mine, theirs
    order = [int(np.argmin(abs(w.numpy() - z))) for z in theirs_w.numpy()]
    w, v = w.numpy()[order], v.numpy()[:, order]
    phase = (v.conj() * theirs_v.numpy()).sum(0)
    np.testing.assert_allclose(abs(phase), 1.0, rtol=1e-9)
    return wf.asarray(v * phase * w)


# (theirs, ours): the last column of the table.
ROWS = {
    "max": (lambda x: x.max(1), lambda x: wf.max_with_indices(x, axis=1)),
    "min": (lambda x: x.min(1), lambda x: wf.min_with_indices(x, axis=1)),
    "cummax": (lambda x: _turned(x).cummax(0).values, lambda x: _turned(x).cummax(0)),
    "cummin": (lambda x: _turned(x).cummin(0).values, lambda x: _turned(x).cummin(0)),
    "eig": (
        lambda x: _turning(x).to(torch.complex128) @ torch.linalg.eig(_turning(x))[1],
        lambda x: _rescaled(wf.linalg.eig(_turning(x)), torch.linalg.eig(_turning(X_TORCH))),
    ),
    "sort": (lambda x: x.sort(), lambda x: (wf.sort(x), wf.argsort(x))),
    "std": (lambda x: x.std(), lambda x: x.std(correction=1)),
    "var": (lambda x: x.var(0), lambda x: x.var(0, correction=1)),
    "split": (lambda x: x.split(2), lambda x: wf.split(x, [2])),
    "repeat": (lambda x: x.repeat(2, 3), lambda x: wf.tile(x, (2, 3))),
    "equal": (lambda x: torch.equal(x, x), lambda x: bool(wf.all(x == x))),
    "median": (lambda x: x[0].median(), lambda x: wf.sort(x[0])[(6 - 1) // 2]),
    "solve": (
        lambda x: torch.linalg.solve(torch.eye(6, dtype=x.dtype).expand(4, 6, 6), x),
        lambda x: wf.linalg.solve(
            wf.broadcast_to(wf.eye(6, dtype="float64"), (4, 6, 6)), x[..., None]
        )[..., 0],
    ),
}


def test_every_row_of_the_table_is_checked():
    table = PAGE.read_text().partition("|---")[2].partition("\n\n")[0]
    listed = [line.split("|")[1] for line in table.splitlines()[1:]]
    names = {n for cell in listed for n in re.findall(r"`(?:x|torch|linalg)\.(\w+)", cell)}
    assert names == set(ROWS) == {n.rpartition(".")[2] for n in LISTED}


@pytest.mark.parametrize("name", sorted(LISTED))
def test_every_row_is_a_difference(name):
    forms = [form for n, form in SHARED if n == name]
    assert any(list(differences(name, form, 200)) for form in forms)


@pytest.mark.parametrize("row", ROWS)
def test_what_to_write_instead(row):
    from .meanings import alike, parts

    theirs, mine = ROWS[row]
    assert alike(parts(mine(wf.tensor(X))), parts(theirs(torch.tensor(X))))


REFUSED = {
    "transpose": (errors.AxisError, lambda x: x.transpose(0, 1), r"wf\.swapaxes\(x, 0, 1\)"),
    "transpose from the end": (errors.AxisError, lambda x: x.transpose(-2, -1), "swapaxes"),
    "transpose of three": (errors.AxisError, lambda x: x[None].transpose(1, 2), "swapaxes"),
    "randn": (errors.ArgumentError, lambda x: wf.randn(2, 3), r"randn\(\(2, 3\)\)"),
    "Parameter.randn": (errors.ArgumentError, lambda x: wf.Parameter.randn(2, 3), "mean=3.0"),
    "rand": (errors.ArgumentError, lambda x: wf.rand(2, 3), r"rand\(\(2, 3\)\)"),
    "zeros": (errors.ArgumentError, lambda x: wf.zeros(2, 3), r"zeros\(\(2, 3\)\)"),
    "ones": (errors.ArgumentError, lambda x: wf.ones(2, 3), r"ones\(\(2, 3\)\)"),
    "empty": (errors.ArgumentError, lambda x: wf.empty(2, 3), r"empty\(\(2, 3\)\)"),
    "std": (errors.DTypeError, lambda x: x.std(True), "keyword"),
    "functional_call": (
        errors.ArgumentError,
        lambda x: wf.nn.functional_call(wf.nn.Linear(6, 2), {}, (x,)),
        r"functional_call\(module, state, \*args",
    ),
}


@pytest.mark.parametrize("call", REFUSED)
def test_two_meanings_are_refused(call):
    error, f, fix = REFUSED[call]
    with pytest.raises(error, match=fix):
        f(wf.ones((4, 6)))


def names_of(owner) -> list[str]:
    return [n for n in dir(owner) if not n.startswith("_")]


OWNERS = {
    "Tensor": (lambda: wf.ones(2), [torch.Tensor, np.ndarray]),
    "weft": (lambda: wf, [torch, np]),
    "weft.linalg": (lambda: wf.linalg, [torch.linalg, np.linalg]),
    "weft.nn": (lambda: wf.nn, [torch.nn]),
    "weft.nn.functional": (lambda: wf.nn.functional, [torch.nn.functional]),
    "weft.optim": (lambda: wf.optim, [torch.optim]),
}


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.filterwarnings("ignore")
def test_every_absent_name_says_what_to_write(owner):
    make, others = OWNERS[owner]
    mine = make()
    others = {n for other in others for n in names_of(other)} - set(dir(mine))
    absent = sorted(n for n in others if not isinstance(getattr(mine, n, None), ModuleType))
    assert absent
    for name in absent:
        with pytest.raises(AttributeError) as caught:
            getattr(mine, name)
        text = str(caught.value)
        assert text.startswith(f"{owner!r} has no {name!r}; ")
        assert not hasattr(mine, name) and getattr(mine, name, 5) == 5


def test_spellings_name_what_exists():
    for name, text in SPELLINGS.items():
        for found in re.findall(r"wf(?:\.\w+)+", text):
            there = wf
            for part in found.split(".")[1:]:
                there = getattr(there, part)
        for found in re.findall(r"\bx\.(\w+)", text):
            assert hasattr(wf.ones((2, 2)), found), (name, text)
