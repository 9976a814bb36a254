"""Indices out of range in compiled functions: the error is eager's, and names the index."""

from dataclasses import replace

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft.compiler.ir.schedule import GuardStep
from weft.core.origin import origin

F = wf.nn.functional
X = wf.tensor(np.arange(12.0, dtype="float32").reshape(3, 4))
MANY = wf.tensor(np.array([[0, 2], [7, -9]]))
BELOW = wf.tensor(np.array([0, -9, 1]))
ONE = wf.tensor(np.array(5))
CLASSES = wf.tensor(np.array([0, 1, 9, -3]))


def _assigned(x, i):
    y = x.clone()
    y[i] = 0.0
    return y


def _scanned(x, i):
    total, _ = wf.scan(lambda c, k: (c + x[k].sum(), c), wf.tensor(0.0), i.reshape(-1))
    return total


def _scanned_rows(x, i):
    total, _ = wf.scan(lambda c, k: (c + F.embedding(k, x).sum(), c), wf.tensor(0.0), i)
    return total


def _nested(x, i):
    def outer(c, row):
        inner, _ = wf.scan(lambda d, k: (d + x[k].sum(), d), c, row)
        return inner, c

    return wf.scan(outer, wf.tensor(0.0), i)[0]


def _repeated(x, i):
    def body(s):
        return s[0] + 1, s[1] + x[i + s[0]].sum()

    return wf.while_loop(lambda s: s[0] < 9, body, (wf.tensor(0), wf.tensor(0.0)))[1]


def _branched(x, i):
    return wf.cond(x.sum() > 0, lambda x: x[i], lambda x: x[i + 100], x)


def _after_a_library_call(x, i):
    return wf.linalg.svdvals(x)[i]


CASES = {
    "x[i]": (lambda x, i: x[i], MANY, "take: index 7 is out of range for length 3"),
    "below": (lambda x, i: x[i], BELOW, "take: index -9 is out of range for length 3"),
    "x[:, i]": (lambda x, i: x[:, i], MANY, "take: index 7 is out of range for length 4"),
    "x[i, i]": (lambda x, i: x[i, i], MANY, "index 7 is out of range for length 3"),
    "one": (lambda x, i: x[:, i], ONE, "index: 5 is out of range for axis 1 of length 4"),
    "uint8": (lambda x, i: x[i.to("uint8")], ONE, "index: 5 is out of range for axis 0"),
    "computed": (lambda x, i: x[2 * i + 1], MANY, "take: index 15 is out of range for length 3"),
    "take_along_axis": (
        lambda x, i: wf.take_along_axis(x, i, axis=1),
        wf.tensor(np.array([[0, 1], [9, 0], [0, 0]])),
        "take_along_axis: index 9 is out of range for length 4",
    ),
    "assigned": (_assigned, MANY, "index: index 7 is out of range for length 3"),
    "added": (lambda x, i: x.at[i].add(1.0), MANY, "index: index 7 is out of range for length 3"),
    "vmap": (lambda x, i: wf.vmap(lambda k: x[k])(i), BELOW, "take: index -9 is out of range"),
    "embedding": (lambda x, i: F.embedding(i, x), MANY, "embedding: indices from -9 to 7 are"),
    "negative row": (lambda x, i: F.embedding(i, x), BELOW, "embedding: indices from -9 to 1 are"),
    "one_hot": (lambda x, i: F.one_hot(i, 4), CLASSES, "one_hot: classes -3 to 9 are not all"),
    "nll_loss": (
        lambda x, i: F.nll_loss(wf.concat([x, x[:1]]), i),
        CLASSES,
        "nll_loss: classes from -3 to 9; expected 0 to 3, or ignore_index",
    ),
    "cross_entropy": (
        lambda x, i: F.cross_entropy(wf.concat([x, x[:1]]), i),
        CLASSES,
        "cross_entropy: class 9 of 4; expected 0 to 3",
    ),
    "scan": (_scanned, MANY, "index: 7 is out of range for axis 0 of length 3"),
    "loop of loops": (_nested, MANY, "index: 7 is out of range for axis 0 of length 3"),
    "while_loop": (_repeated, wf.tensor(np.array(0)), "index: 3 is out of range for axis 0"),
    "cond": (_branched, ONE, "index: 5 is out of range for axis 0 of length 3"),
    "library": (_after_a_library_call, ONE, "index: 5 is out of range for axis 0 of length 3"),
    "known": (
        lambda x, i: x[wf.tensor(np.array([0, 8]))] + i,
        wf.tensor(np.array(0)),
        "take: index 8 is out of range for length 3",
    ),
}


def _said(f, *args) -> str:
    with pytest.raises(errors.IndexingError) as caught:
        f(*args)
    return str(caught.value)


@pytest.mark.parametrize("name", CASES)
def test_the_error_is_that_of_eager_mode(name):
    f, i, words = CASES[name]
    said = _said(wf.compile(f), X, i)
    assert words in said
    assert said == _said(f, X, i)


def test_rows_in_a_loop_name_the_step_s_own_index():
    said = _said(wf.compile(_scanned_rows), X, MANY)
    assert "embedding: indices from 7 to 7 are out of range; expected 0 to 2" in said


def test_right_indices_are_read_as_before():
    right = wf.tensor(np.array([[0, 2], [1, -1]]))
    for name in ("x[i]", "x[:, i]", "x[i, i]", "assigned", "added", "scan", "loop of loops"):
        f = CASES[name][0]
        np.testing.assert_allclose(wf.compile(f)(X, right).numpy(), f(X, right).numpy())


def test_loops_with_checks_stay_native():
    right = wf.tensor(np.array([[0, 2], [1, 0]]))
    for f in (_scanned, _scanned_rows, _nested):
        compiled = wf.compile(f)
        compiled(X, right)
        assert "library call" not in compiled.explain()


def test_a_call_works_after_one_that_failed():
    f = wf.compile(lambda x, i: x[i].sum())
    for _ in range(2):
        assert "index 7" in _said(f, X, MANY)
        assert f(X, wf.tensor(np.array([0, 1]))).item() == X[:2].sum().item()


def _training():
    table = wf.Parameter(np.ones((5, 4), "float32"))
    optimizer = wf.optim.Adam([table], lr=0.1)

    @wf.compile
    def step(i, classes):
        optimizer.zero_grad()
        loss = F.cross_entropy(F.embedding(i, table), classes)
        loss.backward()
        optimizer.step()
        return loss

    return table, step


def test_a_step_with_a_wrong_class_changes_nothing():
    i, classes = wf.tensor(np.array([0, 1, 4])), wf.tensor(np.array([0, 3, 2]))
    (table, step), (other, right) = _training(), _training()
    step(i, classes)
    right(i, classes)
    assert "class 4 of 4; expected 0 to 3" in _said(step, i, wf.tensor(np.array([0, 4, 9])))
    assert "from 0 to 5 are out of range" in _said(step, wf.tensor(np.array([0, 5, 1])), classes)
    np.testing.assert_array_equal(table.detach().numpy(), other.detach().numpy())
    step(i, classes)
    right(i, classes)
    np.testing.assert_array_equal(table.detach().numpy(), other.detach().numpy())


def test_a_program_from_the_disk_names_them_too(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "objects"))
    for _ in range(2):
        _, step = _training()
        i = wf.tensor(np.array([0, 1, 4]))
        assert "class 9 of 4" in _said(step, i, wf.tensor(np.array([0, 9, 2])))
        assert "from 1 to 5" in _said(step, i + 1, wf.tensor(np.array([0, 1, 2])))
    assert "plan from the cache" in step.explain()


def test_what_a_guard_names_is_kept_until_then():
    step = GuardStep(3, errors.IndexingError, "index {index}", origin(), (5, 0, 2))
    assert step.reads == (3, 5)
    assert replace(step, seen=None).reads == (3,)
