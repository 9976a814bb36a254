"""Phantoms: arrays with a shape, strides and a lifetime, whose memory is never touched.

Eager mode runs on them as it is: its dispatch, its backward sweep, its optimizers, and Python's own
reference counts. Kernels do not: a row's result is a new phantom of the shape that the row's shape
rule gives, or a view where NumPy makes one. So every array is made and freed when a real run would
make and free it, and a ledger adds up their bytes.

All phantoms are views of one range of addresses that the system backs by no memory. What is not
intercepted computes on its zeros, and what that allocates is counted as it happens.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from .. import errors
from ..backend.numpy import namespace as numpy_
from ..core.aval import Aval
from ..core.backends import BACKENDS, GUARDS, KERNELS, guard, unguard
from ..core.op import TABLE, Op
from ..core.value import aval_of
from ..transform.checkpoint.host import above
from . import tile_workspace, workspace  # noqa: F401  (the first states its rows)
from .counter import Counter
from .ledger import Ledger

_REAL = 1024  # bytes: results up to this size are computed if all operands are real
_ELIDED = 1 << 18  # bytes: from this size on NumPy's operators reuse a temporary operand's memory


class _Memory:
    """The memory of one phantom and its views; it is freed with the last of them."""

    def __init__(self, ledger: Ledger, nbytes: int, op: str):
        self.range = ledger.reserve(nbytes)  # keeps the addresses valid
        self.__array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (self.range.ctypes.data, False),
            "version": 3,
        }
        self._ledger, self._nbytes = ledger, nbytes
        self.key: int = ledger.enter(nbytes, op)

    def __del__(self) -> None:
        self._ledger.leave(self.key, self._nbytes)


def key_of(x: "Phantom") -> int | None:
    """The number of a phantom's memory in its ledger."""
    root = numpy_._root(x)
    return root.key if isinstance(root, _Memory) else None


_ACTIVE: ContextVar[Ledger | None] = ContextVar("weft_ledger", default=None)


def _ledger() -> Ledger:
    ledger = _ACTIVE.get()
    assert ledger is not None, "a phantom is used after its estimate"
    return ledger


def make(shape: Sequence[int], dtype: Any, op: str, strides: Any = None) -> "Phantom":
    """A new phantom."""
    dtype = np.dtype(dtype)
    nbytes = prod(shape) * dtype.itemsize
    memory = np.asarray(_Memory(_ledger(), nbytes, op))
    return np.ndarray.__new__(Phantom, tuple(shape), dtype, memory, 0, strides)


def strided(shape: Sequence[int], dtype: Any, strides: Sequence[int]) -> "Phantom":
    """A new phantom with these strides, in elements; its memory has no gaps at the ends."""
    span = sum([(n - 1) * s for n, s in zip(shape, strides, strict=True)]) + 1
    line = make((span,), dtype, "operand")
    steps = tuple([s * line.itemsize for s in strides])
    return np.ndarray.__new__(Phantom, tuple(shape), line.dtype, line, 0, steps)


def like(x: np.ndarray, op: str) -> "Phantom":
    """A new phantom in the place of an array, with its strides if it is dense."""
    return make(x.shape, x.dtype, op, _dense_strides(x))


def _dense_strides(x: np.ndarray) -> tuple[int, ...] | None:
    """The strides of a copy of x in NumPy's order "K"; None: C order."""
    if x.flags.c_contiguous or x.ndim < 2 or not x.size:
        return None
    order = sorted(range(x.ndim), key=lambda k: -abs(x.strides[k]))
    strides, step = [0] * x.ndim, x.itemsize
    for k in reversed(order):
        strides[k] = step
        step *= x.shape[k]
    return tuple(strides)


# -- NumPy's operators and functions -----------------------------------------------------------


def _is_temporary(x: Any, references: int) -> bool:
    """Whether NumPy's operators would write into this operand: only the expression holds it."""
    if x.__class__ is not Phantom or references > _ALONE or x.nbytes < _ELIDED:
        return False
    return x.base.__class__ is not Phantom and x.flags.c_contiguous


def _operator(ufunc: np.ufunc, swapped: bool = False) -> Callable[[Any, Any], Any]:
    commutes = ufunc in (np.add, np.multiply)

    def apply(self: Any, other: Any) -> Any:
        mine, others = sys.getrefcount(self), sys.getrefcount(other)
        pair = (other, self) if swapped else (self, other)
        y = _elementwise_aval(ufunc, pair)
        fits = [x for x, n in ((self, mine), (other, others)) if _is_temporary(x, n)]
        fits = [x for x in fits if x.shape == y.shape and x.dtype == y.dtype]
        if fits and (commutes or fits[0] is pair[0]):
            return fits[0]
        return _elementwise_result(ufunc.__name__, pair, y)

    return apply


def _unary(ufunc: np.ufunc) -> Callable[[Any], Any]:
    def apply(self: Any) -> Any:
        if _is_temporary(self, sys.getrefcount(self)):
            return self
        return _elementwise_result(ufunc.__name__, (self,), _elementwise_aval(ufunc, (self,)))

    return apply


def _elementwise_aval(ufunc: np.ufunc, operands: Sequence[Any]) -> Aval:
    small = [np.ones((1,) * x.ndim, x.dtype) if isinstance(x, np.ndarray) else x for x in operands]
    with np.errstate(all="ignore"):
        y = ufunc(*small)
    shape = np.broadcast_shapes(*[x.shape for x in operands if isinstance(x, np.ndarray)])
    return Aval(shape, y.dtype, "cpu")


def _elementwise_result(name: str, operands: Sequence[Any], y: Aval) -> "Phantom":
    """A new phantom in the order "K" of its operands."""
    whole = [x for x in operands if isinstance(x, np.ndarray) and x.shape == y.shape]
    strides = None
    if whole and not any([x.flags.c_contiguous for x in whole]):
        ratio = y.dtype.itemsize / whole[0].itemsize
        dense = _dense_strides(whole[0])
        strides = dense and tuple([int(s * ratio) for s in dense])
    return make(y.shape, y.dtype, name, strides)


class Phantom(np.ndarray):
    """An array without values."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "at":
            return None
        out = kwargs.get("out")
        if out is not None:
            return out[0]
        if method == "__call__" and ufunc.nout == 1 and ufunc.signature is None:
            y = _elementwise_aval(ufunc, inputs)
            return _elementwise_result(ufunc.__name__, inputs, y)
        if method == "reduce":
            return _reduce(ufunc, *inputs, **kwargs)
        plain = [x.view(np.ndarray) if isinstance(x, Phantom) else x for x in inputs]
        return getattr(ufunc, method)(*plain, **kwargs)

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        return _elementwise_result("cast", (self,), Aval(self.shape, np.dtype(dtype), "cpu"))

    def copy(self, *args: Any, **kwargs: Any) -> Any:
        return make(self.shape, self.dtype, "copy")

    def fill(self, value: Any) -> None:
        pass

    def __setitem__(self, index: Any, value: Any) -> None:
        pass

    def reshape(self, *shape: Any, **kwargs: Any) -> Any:
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        known = prod([n for n in sizes if n != -1])
        return _reshape(self, [self.size // max(known, 1) if n == -1 else n for n in sizes])


for _name, _ufunc in {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.divide,
}.items():
    setattr(Phantom, f"__{_name}__", _operator(_ufunc))
    setattr(Phantom, f"__r{_name}__", _operator(_ufunc, swapped=True))
    setattr(Phantom, f"__i{_name}__", lambda self, other: self)
Phantom.__neg__ = _unary(np.negative)  # type: ignore[method-assign,assignment]


class _Probe:
    """Counts the references that Python holds to a temporary operand."""

    def __add__(self, other: Any) -> int:
        return sys.getrefcount(self)


_ALONE: int = _Probe() + None


def _reduce(ufunc: np.ufunc, x: Any, axis: Any = 0, dtype: Any = None, **kwargs: Any) -> Any:
    axes = range(x.ndim) if axis is None else np.atleast_1d(axis)
    axes = [int(a) % x.ndim for a in axes]
    kept = kwargs.get("keepdims", False)
    shape = [1 if k in axes else n for k, n in enumerate(x.shape) if kept or k not in axes]
    kind = ufunc.reduce(np.ones(1, x.dtype), dtype=dtype).dtype
    return make(shape, kind, f"{ufunc.__name__} over axes")


def _reshape(x: Any, shape: Sequence[int]) -> Any:
    """A view where NumPy makes one, else a new phantom."""
    try:
        return np.ndarray.reshape(x, tuple(shape), copy=False)
    except ValueError:
        return make(shape, x.dtype, "reshape")


# -- the rows ----------------------------------------------------------------------------------


def _flatten(args: Sequence[Any]) -> Iterator[Any]:
    for a in args:
        if isinstance(a, list | tuple):
            yield from _flatten(a)
        elif isinstance(a, np.ndarray):
            yield a


def _simulated(op: Op, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel of a row that makes phantoms in an estimate, and computes outside of one."""

    def call(*args: Any) -> Any:
        ledger = _ACTIVE.get()
        if ledger is None or op.foreign:  # a custom operation's functions are operations
            return kernel(*args)
        operands, static = _split(op, args)
        phantoms = any([isinstance(x, Phantom) for x in _flatten(operands)])
        avals = [None if x is None else aval_of(x) for x in operands]
        made = op.call(op.shape, avals, static)
        made = (made,) if op.outputs == 1 else tuple(made)
        if not phantoms and sum([nbytes_of(a) for a in made]) <= _REAL:
            return kernel(*args)
        for shape, dtype in workspace.kept_zeros(op, operands):
            _keep_zeros(ledger.kept, shape, dtype)
        found = _results(op, kernel, args, operands, made)
        ledger.note(op.name, workspace.of(op, operands, found, static))
        return found[0] if op.outputs == 1 else found

    return call


def _keep_zeros(kept: dict[Any, Any], shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Count zeros that a kernel keeps for later calls."""
    zeros = kept.pop((shape, dtype), None)
    kept[shape, dtype] = make(shape, dtype, "zeros") if zeros is None else zeros
    if len(kept) > workspace.KEPT:
        del kept[next(iter(kept))]


def bytes_of_call(ledger: Ledger, op: Op, operands: Sequence[Any], static: Any) -> tuple[int, int]:
    """The bytes of a kernel's results, and the most that it takes: in a simulation."""
    before = ledger.live
    ledger.reset_peak()
    start = ledger.peak
    made = op.call(KERNELS[op][Phantom], operands, static)
    taken = ledger.live - before, ledger.peak - start
    del made
    return taken


def _split(op: Op, args: Sequence[Any]) -> tuple[list[Any], tuple[Any, ...]]:
    if op.arity is None:
        return list(args[0]), tuple(args[1:])
    return list(args[: op.arity]), tuple(args[op.arity :])


def nbytes_of(a: Aval) -> int:
    """The bytes of an array of this shape and dtype."""
    return prod(a.shape) * a.dtype.itemsize


def _results(
    op: Op, kernel: Callable[..., Any], args: Sequence[Any], operands: list[Any], made: tuple
) -> tuple[Any, ...]:
    if op.name == "reshape":
        return (_reshape(operands[0], made[0].shape),)
    if op.views:
        found = kernel(*args)
        return (found,) if op.outputs == 1 else tuple(found)
    if workspace.keeps_order(op):
        arrays = [x for x in operands if isinstance(x, np.ndarray)]
        return tuple([_elementwise_result(op.name, arrays, a) for a in made])
    if op.name in ("attention", "attention_gradient"):
        return tuple([_by_positions(op.name, a, made[0]) for a in made])
    return tuple([make(a.shape, a.dtype, op.name) for a in made])


def _by_positions(name: str, a: Aval, first: Aval) -> "Phantom":
    """A result of attention: vectors of the heads of one position are side by side in memory."""
    if len(a.shape) < len(first.shape):  # a number for each vector
        return make(a.shape, a.dtype, name)
    *lead, heads, length, width = a.shape
    return make((*lead, length, heads, width), a.dtype, name).swapaxes(-2, -3)


class _Namespace:
    """The backend of phantoms: rows as simulated, queries as NumPy's."""

    array_type = Phantom
    name = "phantom"

    def __getattr__(self, name: str) -> Any:
        row = TABLE.get(name)
        return getattr(numpy_, name) if row is None else KERNELS[row][np.ndarray]

    def whole(self, x: Any) -> Any:
        return x if isinstance(x, Phantom) else np.asarray(x)

    def copy(self, x: Any) -> Any:
        return make(x.shape, x.dtype, "copy")

    def cast(self, x: Any, dtype: Any) -> Any:
        return x.astype(dtype)

    def full(self, shape: Any, value: Any, dtype: Any, device: Any = None) -> Any:
        return make(shape, dtype, "full")

    def zeros_like(self, x: Any) -> Any:
        return make(x.shape, x.dtype, "zeros_like")

    def freeze(self, x: Any) -> Any:
        x.setflags(False)
        return x

    def frozen_view(self, x: Any) -> Any:
        return self.freeze(x.view())

    def owns(self, x: Any) -> bool:
        return x.base.__class__ is not Phantom

    def overwrite(self, x: Any, value: Any) -> None:
        """Nothing: there are no values."""

    def into(self, kernel: Any, args: Any, out: Any) -> None:
        """Nothing: there are no values."""

    def add_slice(self, x: Any, g: Any, index: Any) -> None:
        """Nothing: there are no values."""

    def zero_where_zero(self, c: Any, g: Any) -> Any:
        return c

    def strong_product(self, g: Any, d: Any) -> Any:
        return g * d

    def all_finite(self, x: Any) -> bool:
        return True

    def to_numpy(self, x: Any) -> Any:
        raise errors.StagingError(
            "estimate: the step reads values (.numpy(), .item(), save_on_disk), and there are none "
            "in an estimate; leave that out of the step"
        )

    def walk(self, jobs: Any) -> None:
        """A step of an optimizer: in place, with temporaries for a block."""
        _ledger().note("optimizer step", workspace.of_update(jobs))


_SIMULATING = Lock()  # one at a time: each puts back what it found


@contextmanager
def simulation() -> Iterator[Ledger]:
    """A block in which rows make phantoms, in this thread."""
    with _SIMULATING, _phantoms() as ledger:
        yield ledger


@contextmanager
def _phantoms() -> Iterator[Ledger]:
    makers = {name: getattr(numpy_, name) for name in ("full", "empty")}
    new_counter = above.new_counter
    with Counter() as counter:
        ledger = Ledger(counter)
        token = _ACTIVE.set(ledger)
        BACKENDS[Phantom] = _Namespace()
        try:
            for cls in (np.ndarray, Phantom):
                guard(cls, _simulated)
            for name in makers:
                numpy_.improve(name, partial(_simulate_maker, name))
            above.new_counter = _refuse_budget
            yield ledger
        finally:
            above.new_counter = new_counter
            BACKENDS.pop(Phantom, None)
            _ACTIVE.reset(token)
            for cls in (np.ndarray, Phantom):
                if _simulated in GUARDS.get(cls, ()):
                    unguard(cls, _simulated)
            for name, maker in makers.items():
                numpy_.improve(name, partial(_put_back, maker))


def _put_back(maker: Any, _: Any) -> Any:
    return maker


def _refuse_budget() -> Any:
    raise errors.StagingError(
        "estimate: the step runs in eager mode under a budget of bytes, which is its peak if it "
        "can be kept; estimate it without checkpoint= to see what it needs, or compile it"
    )


def _simulate_maker(name: str, maker: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes arrays: large ones are phantoms in a simulation."""

    def call(shape: Any, *args: Any) -> Any:
        dtype = np.dtype(args[1] if name == "full" else args[0])
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        if _ACTIVE.get() is None or prod(sizes) * dtype.itemsize <= _REAL:
            return maker(shape, *args)
        return make(sizes, dtype, name)

    return call
