"""Random tensors from counter-based streams: `wf.random`, `wf.rand`, `wf.randn` and so on.

A generator is a stream (128 bits, from the seed) and a position in it, counted in blocks of
128 random bits. A draw takes the blocks it needs, whole, and moves the position past them; then
element i of its result is a fixed function of the stream, the position and i. So:

- equal seeds and equal sequences of draws give equal numbers, on every device: bits, uniforms,
  integers and permutations always, normals wherever + - * / and sqrt are IEEE 754's;
- when or in which order results are computed does not matter, once they are drawn;
- `rand(10)` gives the first ten of what `rand(20)` would have given at that position, but two
  draws of ten are not one of twenty, since each begins with a fresh block;
- threads may share a generator: each draw gets blocks of its own, in the order of the calls;
- inside `vmap` every element gets numbers of its own: `vmap(lambda x: x + rand(()))(xs)` is
  `xs + rand(len(xs))`.

A block serves 4 elements of float32 and half precision, 2 of float64, of complex64 and of
integers from a range below 2³², 1 of complex128 and of integers from a larger range.

>>> import weft as wf
>>> wf.random.seed(0)
>>> state = wf.random.default_generator.state_dict()
>>> x = wf.randn((2, 3))
>>> wf.random.default_generator.load_state_dict(state)
>>> wf.randn((2, 3)).tolist() == x.tolist()
True
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil, prod
from numbers import Complex, Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import errors
from ..backend.device import canonical_device, namespace_for
from ..backend.shared import variates
from ..core import dtypes
from ..core.aval import broadcast
from ..core.backends import BACKENDS
from ..core.box import BOXES
from ..core.counter import WORD, Generator, ReservedBlocks
from ..core.settings import current
from ..core.value import TENSORS, as_seen_by_trace, wrap
from ..ops import draws
from ..ops.logic import less
from ..ops.order import argsort
from ..ops.transfer import move
from .arguments import as_tensor

if TYPE_CHECKING:
    from .tensor import Tensor
    from .types import ArrayLike, Device, DTypeLike, Shape

default_generator: Generator = Generator()
_UNSEEDED = (default_generator.key, default_generator.nonce)


def seed(seed: int) -> None:
    """Begin the default generator's stream anew.

    seed  an integer from 0 to 2¹²⁸ − 1

    Under `wf.deterministic` it is the mode's own stream, and the operations' with it.

    >>> import weft as wf
    >>> wf.random.seed(1)
    >>> first = wf.rand(3).tolist()
    >>> wf.random.seed(1)
    >>> wf.rand(3).tolist() == first
    True
    """
    (current.get().determinism or default_generator).seed(seed)


def get_state() -> dict[str, int]:
    """Where the default generator is: plain integers, to be saved with a run.

    Under `wf.deterministic` these are the mode's streams, those of single operations by their
    names.

    >>> import weft as wf
    >>> state = wf.random.get_state()
    >>> first = wf.rand(3).tolist()
    >>> wf.random.set_state(state)
    >>> wf.rand(3).tolist() == first
    True
    """
    return (current.get().determinism or default_generator).state_dict()


def set_state(state: dict[str, int]) -> None:
    """Continue the default generator from a `get_state()`, and operations that have their own.

    state  what `get_state()` gave: plain integers by name

    >>> import weft as wf
    >>> state = wf.random.get_state()
    >>> first = wf.randn(2).tolist()
    >>> wf.random.set_state(state)
    >>> wf.randn(2).tolist() == first
    True
    """
    determinism = current.get().determinism
    if determinism is None and any("." in name for name in state):
        raise errors.StateMismatch(
            "set_state: the state has streams of single operations; continue it under "
            "wf.deterministic with the operation_seeds that it was saved under"
        )
    (determinism or default_generator).load_state_dict(state)


@contextmanager
def folded(rank: int) -> Iterator[None]:
    """A block whose draws from the default streams are those of a rank; rank 0's are the usual.

    Positions go on through the block: the same draws move all ranks' streams to the same place.
    Generators that are given to operations are not folded.

    rank  of a process

    >>> import weft as wf
    >>> from weft.arrays.random import folded
    >>> found = []
    >>> for rank in (0, 1):
    ...     wf.random.seed(0)
    ...     with folded(rank):
    ...         found.append(wf.rand(2).tolist())
    ...     found.append(wf.rand(2).tolist())
    >>> found[0] == found[2], found[1] == found[3]
    (False, True)
    """
    if rank == 0:
        yield
        return
    determinism = current.get().determinism
    streams = [default_generator]
    if determinism is not None:
        streams = list(
            {id(g): g for g in (determinism.generator, *determinism.streams.values())}.values()
        )
    before = [g.here() for g in streams]
    for g in streams:
        g.load_state_dict(g.fork(f"rank {rank}").state_dict() | {"position": g.position})
    try:
        yield
    finally:
        for g, (key, nonce, _) in zip(streams, before, strict=True):
            g.load_state_dict({"key": key, "nonce": nonce, "position": g.position})


def stream_for(op: str, generator: Generator | None) -> Generator:
    """The generator that was given, or the operation's: under `wf.deterministic` maybe its own."""
    determinism = current.get().determinism
    if generator is not None:
        if not isinstance(generator, Generator):
            raise errors.ArgumentError(
                f"{op}: generator of type {type(generator).__name__}: expected a "
                "wf.random.Generator"
            )
        return generator
    if determinism is None:
        return default_generator
    if determinism.racing:
        determinism.refuse_or_warn(
            op, "workers draw in whatever order they come; draw from the generator= they are given"
        )
    source = determinism.generator
    if source is default_generator and (source.key, source.nonce) == _UNSEEDED:
        if op not in determinism.seeded:
            determinism.refuse_or_warn(
                op, "the default generator has no seed; give a global_seed, or call wf.random.seed"
            )
    return determinism.stream(op)


def rand(
    shape: Shape = (),
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Uniform in [0, 1): multiples of 2⁻²⁴, in double precision of 2⁻⁵³.

    shape          an integer or a tuple
    dtype          a real or complex floating dtype; None: the default float
    device         where the result is: "cpu", "cuda", … ; None for the default
    requires_grad  whether the result is a leaf to differentiate by
    generator      the random stream; None for the default one

    Complex numbers have both parts uniform. Half precision is rounded from float32, never up
    to 1.

    >>> import weft as wf
    >>> wf.rand((2, 3), dtype="float64").shape
    (2, 3)
    """
    if isinstance(dtype, int):
        raise errors.ArgumentError(
            f"rand({shape}, {dtype}): the shape is one argument: rand(({shape}, {dtype}))"
        )
    return _uniform("rand", 0.0, 1.0, shape, dtype, device, requires_grad, generator)


def uniform(
    low: float = 0.0,
    high: float = 1.0,
    shape: Shape = (),
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Uniform in [low, high), where both are first rounded to the dtype; low if they are equal.

    low, high      the bounds, numbers
    shape          an integer or a tuple
    dtype          a real floating dtype; None: the default float
    device         where the result is: "cpu", "cuda", … ; None for the default
    requires_grad  whether the result is a leaf to differentiate by
    generator      the random stream; None for the default one

    >>> import weft as wf
    >>> x = wf.random.uniform(-1.0, 1.0, 100)
    >>> -1.0 <= min(x.tolist()) and max(x.tolist()) < 1.0
    True
    """
    return _uniform("uniform", low, high, shape, dtype, device, requires_grad, generator)


def _uniform(op, low, high, shape, dtype, device, requires_grad, generator):
    shape, dtype = _shape_of(op, shape), _inexact(op, dtype)
    real = dtypes.to_real(dtype)
    low, high = _round_number(op, "low", low, real), _round_number(op, "high", high, real)
    if not low <= high or high - low > float(np.finfo(dtypes.accumulator(real)).max):
        raise errors.ArgumentError(
            f"{op}: low={low}, high={high} in {dtype}: expected low ≤ high, and both finite "
            f"with a finite difference"
        )
    last = float(np.nextafter(real.type(high), real.type(low)))
    shape = (*_batches(), *shape)
    generator = stream_for(op, generator)
    at, draw = _reserve(device, generator, prod(shape) * variates.words_per(dtype))
    made = _shared_out(_draw("uniform", at, draw, shape, dtype, low, high, last))
    return made.requires_grad_() if requires_grad else made


def randn(
    shape: Shape = (),
    mean: complex = 0.0,
    std: float = 1.0,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Normal with density exp(−(x − mean)²/(2·std²)) / (std·√(2π)).

    shape          an integer or a tuple
    mean, std      the mean and the standard deviation, numbers
    dtype          a real or complex floating dtype; None: the default float
    device         where the result is: "cpu", "cuda", … ; None for the default
    requires_grad  whether the result is a leaf to differentiate by
    generator      the random stream; None for the default one

    Complex numbers have independent parts of variance std²/2, so that E|x − mean|² = std².

    >>> import weft as wf
    >>> wf.randn((2, 3), mean=1.0, std=0.5).shape
    (2, 3)
    """
    if isinstance(shape, int) and isinstance(mean, int):
        raise errors.ArgumentError(
            f"randn({shape}, {mean}): is {mean} a length or the mean? Write "
            f"randn(({shape}, {mean})) for this shape, randn({shape}, mean={float(mean)}) for this "
            "mean"
        )
    return _normal("randn", shape, mean, std, dtype, device, requires_grad, generator)


def _normal(name: str, shape, mean, std, dtype, device, requires_grad: bool, generator) -> Tensor:
    shape, dtype = _shape_of(name, shape), _inexact(name, dtype)
    if isinstance(mean, complex) and dtype not in dtypes.COMPLEX:
        raise errors.ArgumentError(
            f"{name}: mean={mean} of {dtype}, expected a real number; give dtype='complex64' for "
            "complex numbers"
        )
    mean = _number(name, "mean", mean, Complex if dtype in dtypes.COMPLEX else Real)
    std = _number(name, "std", std, Real)
    if not 0.0 <= std < float("inf"):
        raise errors.ArgumentError(f"{name}: std={std}: expected 0 ≤ std < ∞")
    shape = (*_batches(), *shape)
    generator = stream_for(name, generator)
    at, draw = _reserve(device, generator, prod(shape) * variates.words_per(dtype))
    made = _shared_out(_draw("normal", at, draw, shape, dtype, mean, std))
    return made.requires_grad_() if requires_grad else made


def normal(
    mean: complex = 0.0,
    std: float = 1.0,
    shape: Shape = (),
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Normal with density exp(−(x − mean)²/(2·std²)) / (std·√(2π)): `randn` in another order.

    mean, std      the mean and the standard deviation, numbers
    shape          an integer or a tuple
    dtype          a real or complex floating dtype; None: the default float
    device         where the result is: "cpu", "cuda", … ; None for the default
    requires_grad  whether the result is a leaf to differentiate by
    generator      the random stream; None for the default one

    >>> import weft as wf
    >>> wf.random.normal(1.0, 0.5, (2, 3)).shape
    (2, 3)
    """
    return _normal("normal", shape, mean, std, dtype, device, requires_grad, generator)


def randint(
    low: int,
    high: int,
    shape: Shape = (),
    dtype: DTypeLike = "int64",
    device: Device | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Integers from low to high − 1, each with the same probability up to a factor 1 ± 2⁻³².

    low, high  integers, the lower bound and the one above the upper bound
    shape      an integer or a tuple
    dtype      an integer dtype
    device     where the result is: "cpu", "cuda", … ; None for the default
    generator  the random stream; None for the default one

    >>> import weft as wf
    >>> x = wf.randint(1, 7, 100)
    >>> x.dtype, set(x.tolist()) <= {1, 2, 3, 4, 5, 6}
    (dtype('int64'), True)
    """
    shape, dtype = _shape_of("randint", shape), dtypes.canonical(dtype)
    if dtype not in dtypes.SIGNED + dtypes.UNSIGNED:
        raise errors.DTypeError(
            f"randint: dtype {dtype}: expected an integer dtype; convert the result with .to()"
        )
    low, high = (int(_number("randint", *x, Integral)) for x in (("low", low), ("high", high)))
    least, greatest = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if not least <= low < high <= greatest + 1:
        raise errors.ArgumentError(
            f"randint: low={low}, high={high}: expected {least} ≤ low < high ≤ {greatest + 1} "
            f"for {dtype}"
        )
    n = high - low
    shape = (*_batches(), *shape)
    generator = stream_for("randint", generator)
    at, draw = _reserve(device, generator, prod(shape) * variates.words_per_integer(n))
    return _shared_out(_draw("integers", at, draw, shape, dtype, low, n))


def bernoulli(
    p: ArrayLike = 0.5,
    shape: Shape | None = None,
    dtype: DTypeLike = bool,
    device: Device | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """True (or 1) with probability p, which is kept to 2⁻³².

    p          a number, or a tensor of probabilities, which then also gives the shape (unless
               one that it broadcasts to is given) and the device
    shape      an integer or a tuple; None: that of p
    dtype      of the result: bool, or one in which True is 1
    device     where the result is: "cpu", "cuda", … ; None for the default
    generator  the random stream; None for the default one

    >>> import weft as wf
    >>> wf.random.bernoulli(1.0, 3, dtype="float32").tolist()
    [1.0, 1.0, 1.0]
    """
    dtype, generator = dtypes.canonical(dtype), stream_for("bernoulli", generator)
    if isinstance(p, Real):
        chance: Any = p
        if not 0.0 <= chance <= 1.0:
            raise errors.ArgumentError(f"bernoulli: p={p}: expected 0 ≤ p ≤ 1")
        sizes = _shape_of("bernoulli", () if shape is None else shape)
        threshold = ceil(chance * WORD)
    else:
        chances = as_seen_by_trace(as_tensor(p))
        sizes = chances.shape if shape is None else _shape_of("bernoulli", shape)
        device, threshold = chances.device, _thresholds(chances, sizes)
        if chances._data.__class__ in BOXES and not chances._data.staged:
            return less(rand(sizes, "float64", device, generator=generator), chances).to(dtype)
    sizes = (*_batches(), *sizes)
    at, draw = _reserve(device, generator, prod(sizes))
    made = _shared_out(_draw("below", at, draw, sizes, threshold))
    return made if dtype == dtypes.bool_ else made.to(dtype)


def _thresholds(p, shape):
    if broadcast("bernoulli", p.shape, shape) != shape:
        raise errors.ShapeError(
            f"bernoulli: p of shape {p.shape} does not broadcast to {shape}: give a shape that "
            f"holds it, or none"
        )
    if p.dtype not in dtypes.REAL:
        raise errors.DTypeError(
            f"bernoulli: p of dtype {p.dtype}: expected {dtypes.names(dtypes.REAL)}"
        )
    if p._data.__class__ in BOXES:  # compared with p itself, or traced
        return (p.detach().to("float64") * float(WORD))._data if p._data.staged else None
    return BACKENDS[type(p._data)].cast(p._data, dtypes.float64) * float(WORD)


def permutation(
    x: int | ArrayLike, device: Device | None = None, generator: Generator | None = None
) -> Tensor:
    """The numbers 0 … x − 1 in random order, or a tensor's slices along its first axis.

    x          an integer, or an array with at least one axis
    device     where the numbers are; None: the default
    generator  the random stream; None for the default one

    >>> import weft as wf
    >>> sorted(wf.permutation(5).tolist())
    [0, 1, 2, 3, 4]
    """
    generator = stream_for("permutation", generator)
    if isinstance(x, Integral):
        (n,) = _shape_of("permutation", x)
        return _order(n, device, generator)
    x = as_tensor(x)
    if x.ndim == 0:
        raise errors.ShapeError(
            "permutation: a tensor of shape () has no first axis: give its length as an "
            "integer, or a tensor of at least one dimension"
        )
    return x[_order(x.shape[0], x.device, generator)]


def _order(n: int, device, generator):
    if _batches():
        return argsort(rand(n, "float64", device, generator=generator), 0, False)
    at, draw = _reserve(device, generator, 2 * n)
    return wrap(_draw("order", at, draw, n))


def _draw(kind: str, at: variates.VariatesTarget, draw, shape, *how):
    """Raw variates; while tracing, a row that draws at each call."""
    if draw.__class__ is ReservedBlocks:
        return getattr(variates, kind)(at, draw, shape, *how)
    state = move(draw.state, at.device)
    if kind == "below" and how[0].__class__ is not int:
        return draws.draw_below_each(state, how[0], shape)
    return getattr(draws, f"draw_{kind}")(state, shape, *how)


def _batches() -> tuple[int, ...]:
    """The lengths of the enclosing batches, each of whose elements draws its own numbers."""
    return tuple([level.size for level in current.get().levels if level.size is not None])


def _shared_out(raw):
    """Numbers drawn for whole batches, the outermost axis first, as a batched tensor."""
    for level in current.get().levels:
        if level.size is not None:
            raw = level.kind(level.tag, raw, level.size)
    return wrap(raw)


def _reserve(
    device, generator: Generator, words: int
) -> tuple[variates.VariatesTarget, ReservedBlocks]:
    """The target on the device, and the draw: the reserved blocks."""
    device = canonical_device(device)
    return namespace_for(device).random_target(device), generator.reserve(words)


def _shape_of(op: str, shape: Any) -> tuple[int, ...]:
    sizes = shape if isinstance(shape, tuple | list) else (shape,)
    if not all(isinstance(n, Integral) and int(n) >= 0 for n in sizes):
        raise errors.ShapeError(
            f"{op}: shape {shape!r}: expected a nonnegative integer or a tuple of them"
        )
    return tuple(map(int, sizes))


def _inexact(op: str, dtype) -> np.dtype:
    dtype = dtypes.default_float() if dtype is None else dtypes.canonical(dtype)
    if not dtypes.is_inexact(dtype):
        raise errors.DTypeError(
            f"{op}: dtype {dtype}: expected a real or complex floating dtype; for integers use "
            f"wf.randint"
        )
    return dtype


_NUMBER: dict[type, tuple[Any, str]] = {
    Integral: (int, "an integer"),
    Real: (float, "a real number"),
}
_NUMBER[Complex] = (complex, "a number")


def _number(op: str, name: str, x, kind: type):
    convert, words = _NUMBER[kind]
    if not isinstance(x, kind):
        fix = f"; for a tensor, combine it with {op}(shape)" if type(x) in TENSORS else ""
        raise errors.ArgumentError(
            f"{op}: {name} of type {type(x).__name__}: expected {words}{fix}"
        )
    return convert(x)


def _round_number(op: str, name: str, x, real: np.dtype) -> float:
    with np.errstate(over="ignore"):
        return float(real.type(_number(op, name, x, Real)))


__all__ = """
    Generator bernoulli default_generator get_state normal permutation rand randint randn seed
    set_state uniform
""".split()


def __dir__() -> list[str]:
    return list(__all__)
