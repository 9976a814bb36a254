"""Running a custom operation's functions: on one set of inputs, and on a batch of them."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ... import errors
from ...arrays.make import asarray
from ...arrays.manipulation import broadcast_to, reshape, stack
from ...arrays.tensor import Tensor
from ...core import dtypes
from ...core.aval import Aval
from ...core.backends import PYTHON_SCALARS
from ...core.value import TENSORS, aval_of
from ..modes.vmap import vmap
from .signature import CustomFunctions, Rule

# The values of a call as rules get them: tensors; avals of those not saved, None for zeros.
Values = list[Any]


class Application:
    """One call of a custom operation: its functions, with the keywords of the call.

    It is the static parameter of a row, so that a recorded call can find its operation.
    """

    functions: CustomFunctions
    params: dict[str, Any]
    verified: set[Any]
    several: bool  # whether `forward` returned a tuple

    def __init__(
        self, functions: CustomFunctions, params: dict[str, Any], verified: set[Any] | None = None
    ):
        self.functions, self.params = functions, params
        self.verified = set() if verified is None else verified
        self.several = False
        self.avals: tuple[Aval, ...] = ()
        self.memo: Any = None  # the results computed to find out their number

    depth = 0

    @property
    def root(self) -> "Application":
        return self

    def __repr__(self) -> str:
        return f"<{self.functions.name}>"

    def values(self, inputs: Values) -> list[Tensor]:
        """The results of `forward`, as a list."""
        out = self.functions.forward(inputs, **self.params)
        self.several = isinstance(out, tuple | list)
        results = list(out) if self.several else [out]
        if not results:
            raise errors.ArgumentError(f"{self.functions.name}: its forward returned no value")
        return [self._tensor("forward", r, inputs) for r in results]

    def _tensor(
        self, what: str | Rule, value: Any, like: Values, dtype: np.dtype | None = None
    ) -> Tensor:
        """A result of the user's function as a tensor, on the inputs' device."""
        if type(value) in TENSORS:
            return value
        near = next(x for x in like if type(x) in TENSORS)
        if type(value) in PYTHON_SCALARS:
            if dtype is None and isinstance(value, float | complex):
                dtype = dtypes.with_scalar(near.dtype, value)
            return asarray(value, dtype=dtype, device=near.device)
        try:
            return asarray(value, device=near.device, copy=True)
        except errors.DTypeError:
            raise errors.DTypeError(
                f"{self.functions.name}: its {what} returned {type(value).__name__}, expected "
                "tensors or arrays"
            ) from None

    def jvp(self, tangents: Values, inputs: Values, outputs: Values) -> Values:
        """The outputs' tangents by the user's rule, None for those that are zero."""
        rule: Rule = self.functions.jvp  # type: ignore[assignment]
        out = rule(tangents, *self._values_for_rule(inputs, outputs), **self.params)
        moved = list(out) if isinstance(out, tuple | list) else [out]
        if len(moved) != len(outputs):
            raise errors.ArgumentError(
                f"{self.functions.name}: its {rule} gave {count_noun(len(moved), 'tangent')} for "
                f"{count_noun(len(outputs), 'result')}"
            )
        return [
            self._fit_derivative(rule, t, y, k, tangents)
            for k, (t, y) in enumerate(zip(moved, outputs, strict=True))
        ]

    def vjp(self, cotangents: Values, inputs: Values, outputs: Values) -> Values:
        """The inputs' cotangents by the user's rule, None for those that are zero."""
        rule: Rule = self.functions.vjp  # type: ignore[assignment]
        g = tuple(cotangents) if self.several else cotangents[0]
        out = rule(g, *self._values_for_rule(inputs, outputs), **self.params)
        pulled = list(out) if isinstance(out, tuple | list) else [out]
        if len(pulled) != len(inputs):
            raise errors.ArgumentError(
                f"{self.functions.name}: its {rule} gave {count_noun(len(pulled), 'cotangent')} "
                f"for {count_noun(len(inputs), 'input')}; return one for each, None where there is "
                "none"
            )
        return [
            self._fit_derivative(rule, c, x, i, cotangents)
            for i, (c, x) in enumerate(zip(pulled, inputs, strict=True))
        ]

    def _values_for_rule(self, inputs: Values, outputs: Values) -> tuple[Values, Any]:
        """The values as the user's rule gets them: None for those not saved."""
        xs = [x if type(x) in TENSORS else None for x in inputs]
        ys = [y if type(y) in TENSORS else None for y in outputs]
        return xs, tuple(ys) if self.several else ys[0]

    def _fit_derivative(
        self, rule: Rule, value: Any, of: Any, position: int, like: Values
    ) -> Tensor | None:
        """A (co)tangent, checked against its value's shape and dtype; None if it has none."""
        if value is None or of is None:
            return None
        expected = aval(of)
        if not dtypes.is_inexact(expected.dtype):
            return None
        t = self._tensor(rule, value, like, expected.dtype)
        found = aval_of(t)
        if found == expected:
            return t
        what, whose = ("tangent", "result") if rule.kind == "jvp" else ("cotangent", "input")
        told = f"{self.functions.name}: its {rule} gave a {what}"
        whose = f"for {whose} {position}, which"
        if found.shape != expected.shape:
            raise errors.ShapeError(
                f"{told} of shape {found.shape} {whose} has the shape {expected.shape}"
            )
        if found.dtype != expected.dtype:
            raise errors.DTypeError(
                f"{told} of {found.dtype} {whose} is {expected.dtype}; cast it with .to()"
            )
        raise errors.DeviceError(
            f"{told} on {found.device!r} {whose} is on {expected.device!r}; move it with .to()"
        )


class Batched:
    """The operation of an application on a whole batch: axis 0 of its `mapped` inputs."""

    inner: "Application | Batched"
    size: int
    mapped: tuple[bool, ...]
    depth: int

    def __init__(self, inner: "Application | Batched", size: int, mapped: tuple[bool, ...]):
        self.inner, self.size, self.mapped = inner, size, mapped
        self.root: Application = inner.root
        self.depth = inner.depth + 1
        self.avals: tuple[Aval, ...] = ()

    def __repr__(self) -> str:
        return f"<{self.root.functions.name} over {self.size}>"

    def values(self, inputs: Values) -> list[Tensor]:
        """The values of all elements, each result with the batch in front."""
        if callable(self.root.functions.batch):
            return self._by_rule(inputs)
        return self._each("forward", self.inner.values, inputs, self.mapped)

    def jvp(self, tangents: Values, inputs: Values, outputs: Values) -> Values:
        """The tangents of all elements."""
        n = len(inputs)

        def one(values):
            return self.inner.jvp(values[:n], values[n : 2 * n], values[2 * n :])

        mapped = (*self.mapped, *self.mapped, *(True for _ in outputs))
        return self._each("jvp", one, [*tangents, *inputs, *outputs], mapped)

    def vjp(self, cotangents: Values, inputs: Values, outputs: Values) -> Values:
        """The cotangents of all elements; summed for an input that all of them share."""
        n, k = len(inputs), len(outputs)

        def one(values):
            return self.inner.vjp(values[:k], values[k : k + n], values[k + n :])

        mapped = (*(True for _ in cotangents), *self.mapped, *(True for _ in outputs))
        found = self._each("vjp", one, [*cotangents, *inputs, *outputs], mapped)
        return [
            c if c is None or m else c.sum(axis=0) for c, m in zip(found, self.mapped, strict=True)
        ]

    def _each(
        self, what: str, f: Callable[..., Any], values: Values, mapped: Sequence[bool]
    ) -> Values:
        """f of a list for every element of the batch; values and results may be absent."""
        there = [i for i, v in enumerate(values) if type(v) in TENSORS]
        rest = [
            v.like(shape=v.shape[1:]) if m and isinstance(v, Aval) else v
            for v, m in zip(values, mapped, strict=True)
        ]
        absent: list[tuple[bool, ...]] = []

        def one(*given):
            full = list(rest)
            for i, v in zip(there, given, strict=True):
                full[i] = v
            out = f(full)
            absent.append(tuple(r is None for r in out))
            return tuple(r for r in out if r is not None)

        given, axes = [values[i] for i in there], [mapped[i] for i in there]
        loop = self.root.functions.batch == "loop"
        found = iter((self._loop if loop else self._together)(what, one, given, axes))
        if len(set(absent)) > 1:
            raise errors.ArgumentError(
                f"{self.root.functions.name}: its {what} gave None for some elements of the "
                "batch only; give zeros there"
            )
        return [None if missing else next(found) for missing in absent[0]]

    def _loop(
        self, what: str, one: Callable[..., Any], given: Values, mapped: list[bool]
    ) -> Values:
        if not self.size:
            raise errors.BatchingError(
                f"{self.root.functions.name}: a batch of no elements cannot be looped over "
                "(batch='loop'): the shape of its results is not known"
            )
        rows = [
            one(*[v[i] if m else v for v, m in zip(given, mapped, strict=True)])
            for i in range(self.size)
        ]
        return [stack(column) for column in zip(*rows, strict=True)]

    def _together(
        self, what: str, one: Callable[..., Any], given: Values, mapped: list[bool]
    ) -> Any:
        try:
            return vmap(one, in_axes=tuple(0 if m else None for m in mapped))(*given)
        except (errors.InterchangeError, errors.BatchingError) as e:
            raise errors.BatchingError(
                f"{self.root.functions.name}: its {what} cannot run on a whole batch "
                f"({e.message}). Give the operation batch='loop' (one element after the other), "
                "or a batch rule for its forward"
            ) from e

    def _by_rule(self, inputs: Values) -> list[Tensor]:
        """The user's rule for batches; the axes of nested batches are made one."""
        chain: list[Batched] = [self]
        while isinstance(chain[-1].inner, Batched):
            chain.append(chain[-1].inner)
        sizes = tuple(b.size for b in chain)
        flags = [tuple(b.mapped[i] for b in chain) for i in range(len(inputs))]
        root = self.root
        given = [_merge_batches(x, sizes, f) for x, f in zip(inputs, flags, strict=True)]
        batch: Callable[..., Any] = root.functions.batch  # type: ignore[assignment]
        out = batch(given, [any(f) for f in flags], **root.params)
        root.several = isinstance(out, tuple | list)
        results = list(out) if root.several else [out]
        results = [root._tensor("batch rule", r, inputs) for r in results]
        for r in results:
            if r.shape[:1] != (prod(sizes),):
                raise errors.ShapeError(
                    f"{root.functions.name}: its batch rule returned the shape {r.shape}, expected "
                    f"a first axis of {prod(sizes)}, the batch"
                )
        return [reshape(r, (*sizes, *r.shape[1:])) for r in results]


def _merge_batches(x: Tensor, sizes: tuple[int, ...], mapped: tuple[bool, ...]) -> Tensor:
    """x with one axis in place of the batches' axes; unchanged if it has none."""
    if not any(mapped) or len(sizes) == 1:
        return x
    rest = x.shape[sum(mapped) :]
    ones = tuple(n if m else 1 for n, m in zip(sizes, mapped, strict=True))
    return reshape(broadcast_to(reshape(x, (*ones, *rest)), (*sizes, *rest)), (prod(sizes), *rest))


def aval(x: Tensor | Aval) -> Aval:
    """The aval of a tensor, or of a stand-in for one that was not kept."""
    return x if isinstance(x, Aval) else aval_of(x)


def differentiable(x: Tensor | Aval) -> bool:
    """Whether a tensor, or what a stand-in stands for, can carry a derivative."""
    return dtypes.is_inexact(aval(x).dtype)


def count_noun(n: int, noun: str) -> str:
    """`1 input`, `2 inputs`."""
    return f"{n} {noun}" + "s" * (n != 1)
