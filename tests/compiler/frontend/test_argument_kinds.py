"""What a program is kept for: arguments of another kind never get the program of equal ones.

Values that Python finds equal, in every place of an argument; and what a tensor tells about itself
inside of a compiled function, for every kind of tensor and every property.
"""

import collections
import dataclasses
import fractions
import itertools

import numpy as np
import pytest

import weft as wf

X = wf.tensor([1.0, 2.0])


@dataclasses.dataclass(frozen=True)
class Config:
    value: object
    other: object = 2.0


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    value: object


EQUAL = [1, 1.0, True, np.int64(1), np.float32(1), fractions.Fraction(1), 1 + 0j]
ZEROS = [0, 0.0, -0.0, False, -0j, complex(-0.0, 0.0)]
# Each puts a value into an argument, and reads it there.
PLACES = {
    "key": (lambda v: {v: 0}, lambda a: next(iter(a))),
    "ordered key": (lambda v: collections.OrderedDict({v: 0}), lambda a: next(iter(a))),
    "default key": (lambda v: collections.defaultdict(int, {v: 0}), lambda a: next(iter(a))),
    "key of a key": (lambda v: [{"k": {v: [0]}}], lambda a: next(iter(a[0]["k"]))),
    "in a key": (lambda v: {(v, 2): 0}, lambda a: next(iter(a))[0]),
    "in a set": (lambda v: {frozenset([v]): 0}, lambda a: next(iter(next(iter(a))))),
    "frozenset": (lambda v: frozenset([v]), lambda a: next(iter(a))),
    "frozen": (Config, lambda a: a.value),
    "frozen key": (lambda v: {Config(v): 0}, lambda a: next(iter(a)).value),
    "slotted": (Slotted, lambda a: a.value),
    "nested": (lambda v: [Config(Slotted((v,)))], lambda a: a[0].value.value[0]),
}


@pytest.mark.parametrize("values", [EQUAL, ZEROS], ids=["ones", "zeros"])
@pytest.mark.parametrize("place", PLACES)
def test_equal_values_of_other_kinds(place, values):
    put, read = PLACES[place]

    def f(x, a):
        v = read(a)
        return x * 1, f"{type(v).__name__} {v!r}"

    g = wf.compile(f, max_variants=100)
    for first, second in itertools.permutations(values, 2):
        for v in (first, second):
            assert g(X, put(v))[1] == f(X, put(v))[1]


@pytest.mark.parametrize("kind", [Config, Slotted])
def test_dataclasses_with_numbers_and_tensors(kind):
    def f(a, x):
        return x * a.value

    g, t = wf.compile(f), wf.tensor([1.0, 2.0])
    for value in (2.0, t, 3.0, wf.tensor([5.0, 1.0]), t, 2, wf.ones(2)):
        np.testing.assert_array_equal(g(kind(value), X).numpy(), f(kind(value), X).numpy())


def tensors() -> dict:
    leaf = wf.tensor([[1.0, 2.0]], requires_grad=True)
    other = wf.tensor([[1.0, 2.0]], requires_grad=True)
    (other * 2).sum().backward()
    return {
        "plain": wf.tensor([[1.0, 2.0]]),
        "leaf": leaf,
        "with a gradient": other,
        "parameter": wf.Parameter([1.0, 2.0]),
        "computed": leaf * 2,
        "computed view": (leaf * 2).T,
        "detached": (leaf * 2).detach(),
        "integers": wf.tensor([1, 2]),
        "scalar": wf.tensor(1.0),
        "turned": wf.tensor([[1.0, 2.0]]).T,
        "empty": wf.zeros((0, 3), dtype="float64"),
        "complex": wf.tensor([1j]),
    }


# A tensor's own number, its values, and what makes another tensor.
VALUES = {"at", "id", "T", "mT", "mH", "H", "real", "imag", "data", "grad", "flat"}
PROPERTIES = sorted(
    n for n, v in vars(wf.Tensor).items() if isinstance(v, property) and n[0] != "_"
)


def told(x) -> dict:
    """All that a tensor tells about itself but its values."""
    said = {}
    for name in set(PROPERTIES) - VALUES:
        try:
            said[name] = repr(getattr(x, name))
        except wf.errors.WeftError as e:
            said[name] = type(e).__name__
    said["grad"] = x.grad is None
    said["len"] = len(x) if x.ndim else None
    return said


@pytest.mark.parametrize("kind", tensors())
def test_what_an_argument_tells_about_itself(kind):
    want = told(tensors()[kind])
    got = wf.compile(lambda x: (told(x), x * 1))(tensors()[kind])[0]
    assert got == want


def test_a_computed_argument_is_treated_as_one():
    leaf = wf.tensor([1.0, 2.0], requires_grad=True)

    def off(x):
        return x.requires_grad_(False)

    def assigned(x):
        with wf.no_grad():
            x[0] = 5.0
        return x * 2

    for f, error in ((off, wf.errors.GradientError), (assigned, wf.errors.InPlaceOnTracked)):
        for g in (f, wf.compile(f)):
            with pytest.raises(error):
                g(leaf * 2)
    y = wf.compile(lambda x: x.requires_grad_() * x)(leaf * 2)
    y.sum().backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), [8.0, 16.0])


def test_the_gradient_of_a_computed_argument_is_retained():
    def f(x):
        x.retain_grad()
        return x * x

    g = wf.compile(f)
    for k in (1.0, 2.0):
        y = wf.tensor([k, 3.0], requires_grad=True) * 2
        g(y).sum().backward()
        np.testing.assert_array_equal(y.grad.numpy(), 2 * y.detach().numpy())
