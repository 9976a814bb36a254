"""Calls of function transformations that cannot work: the class, the fix, and the user's line."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft import errors


class Raised:
    """Expect an error of a class whose message has these words and names the user's line."""

    def __init__(self, error, *words: str):
        self.error, self.words = error, words

    def __enter__(self):
        return self

    def __exit__(self, kind, e, traceback):
        assert kind is not None, f"nothing was raised, expected {self.error.__name__}"
        assert issubclass(kind, self.error), f"{kind.__name__}: {e}"
        for word in self.words:
            assert word in str(e), str(e)
        lines = []
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == __file__:
                lines.append(traceback.tb_lineno)
            traceback = traceback.tb_next
        assert f"(at {Path(__file__).name}:{lines[-1]})" in str(e), str(e)
        return True


X, I = wf.tensor([1.0, 2.0]), wf.tensor([1, 2])  # noqa: E741
ONE = wf.tensor(1.0)


def square(x):
    return (x * x).sum()


BAD_CALLS = {
    "tangent of another shape": (
        lambda: wf.jvp(square, (X,), (ONE,)),
        errors.ShapeError,
        "a tangent of shape () for a value of shape (2,); they must be equal",
    ),
    "tangent missing": (
        lambda: wf.jvp(lambda a, b: a * b, (X, X), (X,)),
        errors.ArgumentError,
        "1 tangents for 2 arguments; give wf.zeros_like(x)",
    ),
    "tangent None": (
        lambda: wf.jvp(lambda a, b: a * b, (X, X), (X, None)),
        errors.ArgumentError,
        "give wf.zeros_like(x) for one that does not move",
    ),
    "tangents built otherwise": (
        lambda: wf.jvp(lambda t: t["a"], ({"a": X, "b": X},), ([X, X],)),
        errors.ArgumentError,
        "structures differ",
    ),
    "tangent elsewhere": (
        lambda: wf.jvp(square, (X,), (X.to("torch"),)),
        errors.DeviceError,
        "the tangent is on 'torch', the value on 'cpu'",
    ),
    "complex tangent of a real value": (
        lambda: wf.jvp(square, (X,), (X * 1j,)),
        errors.DTypeError,
        "take wf.real(x) first",
    ),
    "no tuples": (lambda: wf.jvp(square, X, X), errors.ArgumentError, "wf.jvp(f, (x,), (v,))"),
    "cotangent of another shape": (
        lambda: wf.vjp(lambda x: x * x, X)[1](ONE),
        errors.ShapeError,
        "a cotangent of shape () for a result of shape (2,); they must be equal",
    ),
    "cotangent missing": (
        lambda: wf.vjp(lambda x: (x, x), X)[1](X),
        errors.ArgumentError,
        "1 cotangents for 2 results; give each result one",
    ),
    "cotangents built otherwise": (
        lambda: wf.vjp(lambda x: {"a": x, "b": x}, X)[1]((X, X)),
        errors.ArgumentError,
        "structures differ",
    ),
    "cotangent elsewhere": (
        lambda: wf.vjp(lambda x: x * x, X)[1](X.to("torch")),
        errors.DeviceError,
        "move it with .to()",
    ),
    "integers in grad": (lambda: wf.grad(square)(I), errors.NotDifferentiable, "make it a float"),
    "integers in vjp": (lambda: wf.vjp(square, I), errors.NotDifferentiable, "make it a float"),
    "integers in jvp": (
        lambda: wf.jvp(square, (I,), (I,)),
        errors.NotDifferentiable,
        "make it a float",
    ),
    "integer result": (
        lambda: wf.grad(lambda x: wf.argmax(x))(X),
        errors.NotDifferentiable,
        "the function returned int64, which has no derivative; compute the result in floating",
    ),
    "vector result": (
        lambda: wf.grad(lambda x: x * x)(X),
        errors.NonScalarBackward,
        "reduce it (.sum()), or use wf.vjp or wf.jacobian",
    ),
    "two results": (
        lambda: wf.grad(lambda x: (ONE, ONE))(X),
        errors.NonScalarBackward,
        "must return one number",
    ),
    "None from grad's": (lambda: wf.grad(lambda x: None)(X), errors.DTypeError, "`return`"),
    "None from vjp's": (lambda: wf.vjp(lambda x: None, X), errors.DTypeError, "`return`"),
    "None from jvp's": (
        lambda: wf.jvp(lambda x: None, (X,), (X,)),
        errors.DTypeError,
        "`return`",
    ),
    "None from vmap's": (lambda: wf.vmap(lambda x: None)(X), errors.DTypeError, "`return`"),
    "a string from grad's": (lambda: wf.grad(lambda x: "y")(X), errors.DTypeError, "has_aux=True"),
    "a string from jvp's": (
        lambda: wf.jvp(lambda x: (x, "y"), (X,), (X,)),
        errors.DTypeError,
        "has_aux=True",
    ),
    "a string from vmap's": (
        lambda: wf.vmap(lambda x: "y")(X),
        errors.DTypeError,
        "got str, expected tensors or numbers",
    ),
    "a string for an argument": (
        lambda: wf.grad(square)("x"),
        errors.DTypeError,
        "got str, expected tensors or numbers",
    ),
    "no aux in grad": (
        lambda: wf.grad(square, has_aux=True)(X),
        errors.ArgumentError,
        "return (result, aux)",
    ),
    "no aux in jvp": (
        lambda: wf.jvp(square, (X,), (X,), has_aux=True),
        errors.ArgumentError,
        "return (result, aux)",
    ),
    "a function from jvp's": (
        lambda: wf.jvp(lambda u: lambda x: x + u, (X,), (X,)),
        errors.DTypeError,
        "got function, expected tensors",
    ),
    "a function from grad's": (
        lambda: wf.grad(lambda u: lambda x: x + u)(X),
        errors.DTypeError,
        "got function, expected tensors",
    ),
    "argnums out of range": (
        lambda: wf.grad(square, argnums=1)(X),
        errors.ArgumentError,
        "argnums=1 with 1 positional arguments; give the position of one",
    ),
    "argnums twice": (
        lambda: wf.grad(lambda a, b: square(a), argnums=(0, -2))(X, X),
        errors.ArgumentError,
        "names an argument twice",
    ),
    "argnums by name": (
        lambda: wf.grad(square, argnums="x")(X),
        errors.ArgumentError,
        "a tuple of positions",
    ),
    "batches of different sizes": (
        lambda: wf.vmap(lambda a, b: a + b)(wf.zeros(2), wf.zeros((3, 1))),
        errors.ShapeError,
        "2 (of (2,)) and 3 (of (3, 1)); choose other in_axes, None for",
    ),
    "in_axes out of range": (
        lambda: wf.vmap(square, in_axes=2)(X),
        errors.AxisError,
        "in_axes=2 for an argument of shape (2,); take one of its 1 axes",
    ),
    "out_axes out of range": (
        lambda: wf.vmap(lambda x: x, out_axes=1)(X),
        errors.AxisError,
        "out_axes=1 for a result of shape (2,)",
    ),
    "no axis to map over": (
        lambda: wf.vmap(lambda x: x)(ONE),
        errors.AxisError,
        "give it in_axes=None",
    ),
    "nothing mapped": (
        lambda: wf.vmap(square, in_axes=None)(X),
        errors.ArgumentError,
        "give one of them an axis",
    ),
    "in_axes of another number": (
        lambda: wf.vmap(square, in_axes=(0, 0))(X),
        errors.ArgumentError,
        "2 in_axes for 1 positional arguments",
    ),
    "in_axes of another structure": (
        lambda: wf.vmap(lambda t: t["a"], in_axes=({"b": 0},))({"a": X}),
        errors.ArgumentError,
        "the same structure",
    ),
    "a batch where there is none": (
        lambda: wf.vmap(lambda x: x, out_axes=None)(X),
        errors.ArgumentError,
        "differs over the batch; give it an axis",
    ),
    "truth of a batch": (
        lambda: wf.vmap(lambda x: x if x > 0 else -x)(X),
        errors.BatchingError,
        "branch with wf.where",
    ),
    "number of a batch": (
        lambda: wf.vmap(lambda x: x * float(x))(X),
        errors.BatchingError,
        "has no single value",
    ),
    "a dual as an array": (
        lambda: wf.jvp(lambda x: np.asarray(x), (X,), (X,)),
        errors.InterchangeError,
        "use x.detach() if that is meant",
    ),
    "a batch as an array": (
        lambda: wf.vmap(lambda x: np.asarray(x))(X),
        errors.InterchangeError,
        "compute with wf's functions",
    ),
    "into a buffer": (
        lambda: wf.jvp(lambda x: wf.mul(x, x, out=wf.zeros(2)), (X,), (X,)),
        errors.InPlaceOnTracked,
        "leave the buffer out, or assign with y[i] = v",
    ),
    "copied into a tensor": (
        lambda: wf.vmap(lambda x: wf.zeros(()).copy_(x))(X),
        errors.InPlaceOnTracked,
        "leave the buffer out, or assign with y[i] = v",
    ),
    "into a parameter": (
        lambda: wf.jvp(lambda x: wf.Parameter.zeros((2,)).apply_update(x), (X,), (X,)),
        errors.InPlaceOnTracked,
        "apply_update: inside jvp or vmap",
    ),
    "no derivative, forward": (
        lambda: wf.jvp(lambda x: wf.nextafter(x, x), (X,), (X,)),
        errors.NotDifferentiable,
        "use .detach() or wf.stop_gradient()",
    ),
}


@pytest.mark.parametrize("what", BAD_CALLS)
def test_a_bad_call_says_what_to_do(what):
    call, error, words = BAD_CALLS[what]
    with Raised(error, words):
        call()


def test_an_error_leaves_no_level_behind():
    for call, error, _ in BAD_CALLS.values():
        with pytest.raises(error):
            call()
    assert wf.grad(wf.grad(lambda x: x**3))(wf.tensor(2.0)).item() == 12.0
    assert wf.vmap(partial(wf.add, 1.0))(X).tolist() == [2.0, 3.0]
