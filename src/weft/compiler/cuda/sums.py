"""Sums of matrix products and a bias: all in one array, which the smallest product writes first.

PyTorch adds a bias in the kernel of the product, and rounds once; see `isInputCompliesAddmmCudaLt`
in ATen's Blas.cpp for when. The other products are accumulated, so that nothing reads them again: a
large one has time to read the array while it multiplies, and rounds the sum once.

One product with a bias also applies GELU by tanh, if nothing else reads what it is applied to. So
that is for inference: a backward pass reads it, and PyTorch has no call that stores both. It is for
half types, since nothing is said of the error. The library's ReLU is not used: nothing is said of
NaN there, which a maximum may drop.
"""

from collections.abc import Callable
from math import prod
from typing import Any

from ...core import dtypes
from ...core.aval import Aval
from ...core.op import TABLE, Op
from ...core.record import record
from ...graph.graph import Equation, Graph, Literal
from ..ir.gemm import ACCUMULATE, BIASED, activation_of, gemm, is_product
from ..ir.schedule import ACTIVATIONS, row_major
from ..ir.views import View, viewer
from ..passes.products import PRODUCTS, SCALED_PRODUCT, SUM_OF_PRODUCTS
from ..passes.rewriting import Builder, Operand, Replacement, rewrite
from .computes import PRODUCT_DTYPES

# The least flops of a product that takes a bias: what is smaller fuses with its neighbours, or is
# part of a body. What the address of a bias is a multiple of, in bytes.
FLOPS, ALIGNED = 1 << 22, 16

BIASED_PRODUCT = Op(
    BIASED,
    compute=lambda xp, bias, a, b, alpha, f: _activated(xp, xp.matmul(a, b) * alpha + bias, f),
    shape=lambda bias, a, b, alpha, f: TABLE["matmul"].shape(a, b),
    rule=None,
    arity=3,
)


def _activated(xp: Any, x: Any, activation: str) -> Any:
    return getattr(xp, activation)(x) if activation else x


def sums(graph: Graph) -> Graph:
    """The graph with biases and activations in products, and sums of them in the best order."""
    if not any([e.op.name in PRODUCTS for e in graph.equations]):
        return graph
    return rewrite(graph, _Rule(), ("add", ACCUMULATE, *ACTIVATIONS))


@record
class _Sum:
    """Products of two matrices each, by the equations that compute them, and a bias."""

    products: tuple[Equation, ...]
    bias: int | None = None


class _Rule:
    """Rewrites one sum."""

    def __init__(self) -> None:
        self._look: Callable[[int], View] | None = None
        self._terms: dict[int, int] = {}  # by sums, the terms of the product that comes first

    def __call__(self, b: Builder, e: Equation) -> Replacement:
        if e.op.name == ACCUMULATE:
            return self._accumulate(b, e)
        if e.op.name in ACTIVATIONS:
            return _activate(b, e)
        return self._add_bias(b, e) or self._add_sums(b, e)

    def _accumulate(self, b: Builder, e: Equation) -> Replacement:
        """x + α·a·b; the products of x come later if they are larger."""
        x, a, _ = e.inputs
        if x not in self._terms:
            self._terms[x] = _terms(b, b.definitions[x])
        if b.shape(a)[-1] >= self._terms[x]:
            self._terms[e.outputs[0]] = self._terms[x]
            return None
        before = _sum_of(b, x)
        assert before is not None, "nothing else reads what is accumulated into"
        return self._emit(b, _Sum((*before.products, e), before.bias))

    def _add_bias(self, b: Builder, e: Equation) -> Replacement:
        """x + bias, where x is a sum of products, also with other axes before the last one."""
        for x, y in (e.inputs, e.inputs[::-1]):
            shape = b.graph.avals[e.outputs[0]].shape
            matrix = _behind_reshape(b, x)
            found = _sum_of(b, matrix)
            if found is None or found.bias is not None or b.shape(x) != shape:
                continue
            bias = self._bias(b, y, b.aval(matrix))
            if bias is None:
                continue
            made = self._emit(b, _Sum(found.products, bias))
            if made is not None:
                return made if matrix == x else (b.emit("reshape", made[0], shape),)
        return None

    def _add_sums(self, b: Builder, e: Equation) -> Replacement:
        """x + y, where both are sums of products, and at most one has a bias."""
        x, y = (_behind_reshape(b, i) for i in e.inputs)
        if x == y or b.aval(e.inputs[0]) != b.aval(e.inputs[1]) or b.aval(x) != b.aval(y):
            return None
        first, second = _sum_of(b, x), _sum_of(b, y)
        if first is None or second is None:
            return None
        biases = [s.bias for s in (first, second) if s.bias is not None]
        if len(biases) > 1:
            return None
        made = self._emit(b, _Sum((*first.products, *second.products), *biases))
        if made is None or x == e.inputs[0]:
            return made
        return (b.emit("reshape", made[0], b.shape(e.inputs[0])),)

    def _bias(self, b: Builder, y: Operand, product: Aval) -> int | None:
        """The vector that is added to each row of a product; None if y is none that it can be."""
        source = b.made_by(y, "broadcast_to")
        y = y if source is None else source.inputs[0]
        if isinstance(y, Literal) or not product.shape:
            return None
        n = product.shape[-1]
        if n < 2 or b.shape(y)[-1:] != (n,) or prod(b.shape(y)) != n:
            return None
        view = self._view(b, y)
        if view.strides[-1] != 1 or view.offset * product.dtype.itemsize % ALIGNED:
            return None
        return y if len(view.shape) == 1 else b.emit("reshape", y, (n,))

    def _emit(self, b: Builder, found: _Sum) -> tuple[int] | None:
        """The sum, its smallest product first; None if no product can take the bias."""
        able = [e for e in found.products if found.bias is None or self._takes_bias(b, e)]
        if not able:
            return None
        first = min(able, key=lambda e: _terms(b, e))
        factors, alpha = first.inputs[-2:], _alpha(first)
        if found.bias is not None:
            made = b.emit(BIASED_PRODUCT, found.bias, *factors, alpha, "")
        else:
            made = b.emit(SCALED_PRODUCT, *factors, alpha)
        terms = self._terms[made] = _terms(b, first)
        for e in found.products:
            if e is not first:
                made = b.emit(SUM_OF_PRODUCTS, made, *e.inputs[-2:], _alpha(e))
                self._terms[made] = terms
        return (made,)

    def _takes_bias(self, b: Builder, e: Equation) -> bool:
        """Whether a product is one of two matrices, large enough for the library's epilogue."""
        x, y = e.inputs[-2:]
        shape = b.graph.avals[e.outputs[0]].shape
        result = View(e.outputs[0], shape, row_major(shape))
        step = gemm(e, self._view(b, x), self._view(b, y), result, (0, 1, 2))
        return not step.batch and min(step.m, step.n, step.k) > 1 and step.flops >= FLOPS

    def _view(self, b: Builder, x: int) -> View:
        self._look = self._look or viewer(b.graph, b.definitions)
        return self._look(x)


def _sum_of(b: Builder, x: Operand) -> _Sum | None:
    """The sum that computes x and that nothing else reads; None if x is no sum of products."""
    products: list[Equation] = []
    while (e := b.made_by(x, *PRODUCTS, ACCUMULATE, BIASED)) is not None:
        if isinstance(x, Literal) or b.uses[x] > 1:
            return None
        if not is_product(e, [b.aval(i) for i in e.inputs], PRODUCT_DTYPES) or activation_of(e):
            return None
        products.append(e)
        if e.op.name != ACCUMULATE:
            return _Sum(tuple(products[::-1]), e.inputs[0] if e.op.name == BIASED else None)
        x = e.inputs[0]
    return None


def _activate(b: Builder, e: Equation) -> Replacement:
    """f(α·a·b + bias) as one product, also with other axes before the last one."""
    (x,) = e.inputs
    matrix = _behind_reshape(b, x)
    product = b.made_by(matrix, BIASED)
    if product is None or isinstance(matrix, Literal) or b.uses[matrix] > 1:
        return None
    if activation_of(product) or b.dtype(matrix) not in dtypes.HALF:
        return None
    made = b.emit(BIASED_PRODUCT, *product.inputs, _alpha(product), e.op.name)
    return (made if matrix == x else b.emit("reshape", made, b.shape(x)),)


def _behind_reshape(b: Builder, x: Operand) -> Operand:
    """What x is in another shape, if nothing else reads it; otherwise x."""
    e = b.made_by(x, "reshape")
    return x if e is None or isinstance(x, Literal) or b.uses[x] > 1 else e.inputs[0]


def _terms(b: Builder, e: Equation) -> int:
    """How many terms each number of a product has."""
    return b.shape(e.inputs[-2])[-1]


def _alpha(e: Equation) -> float:
    return e.static[0] if e.static else 1.0
