"""Weft functions as differentiable functions of PyTorch and of JAX."""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

import numpy as np

from .. import errors
from ..arrays.make import asarray
from ..core import dtypes
from ..core.value import TENSORS
from .modes.backward import enable_grad
from .modes.reverse import sweep
from .tape.gradient_tape import GradientTape


def _results(f: Callable[..., Any], args) -> tuple:
    """The results of f, as a tuple of tensors."""
    out = f(*args)
    outs = tuple(out) if isinstance(out, list | tuple) else (out,)
    for o in outs:
        if type(o) not in TENSORS:
            raise errors.DTypeError(
                f"{getattr(f, '__name__', 'the function')} returned {type(o).__name__}, expected "
                "a tensor or a sequence of tensors"
            )
    return outs


def _pullback(f: Callable[..., Any], n: int) -> Callable[..., Any]:
    """The pull-back of f as a function of its n arguments and the cotangents of its results.

    It is recorded, so that a bridge of it can be differentiated again.
    """

    def pullback(*values):
        args = [asarray(v) for v in values[:n]]
        tape = GradientTape(persistent=True)
        sources = [tape.watch(a) for a in args if dtypes.is_inexact(a.dtype)]
        outs = _results(f, args)
        cotangents = list(values[n:])
        return tape.gradient(list(outs), sources, cotangents, unconnected="zero")

    return pullback


def to_torch(f: Callable[..., Any]) -> Callable[..., Any]:
    """f as a function of torch tensors that torch's autograd differentiates, to any order.

    f  a function of tensors

    Arguments that are not torch tensors are handed to f as they are.

    >>> import weft as wf
    >>> import torch, weft as wf
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> wf.to_torch(lambda x: (x**3).sum())(x).backward()
    >>> x.grad
    tensor([ 3., 12.])
    """
    torch = import_module("torch")

    @wraps(f)
    def wrapped(*args):
        places = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor)]

        def of_tensors(*tensors):
            filled = list(args)
            for i, t in zip(places, tensors, strict=True):
                filled[i] = t
            return f(*filled)

        single = []
        outs = _torch_function(torch).apply(of_tensors, single, *(args[i] for i in places))
        return outs[0] if single[0] else outs

    return wrapped


def _torch_function(torch):
    """torch.autograd.Function around a Weft function; defined here: torch is imported late."""

    class Bridge(torch.autograd.Function):
        @staticmethod
        def forward(ctx, f, single, *args):
            leaves = [asarray(a.detach()) for a in args]
            for leaf, a in zip(leaves, args, strict=True):
                if a.requires_grad:
                    leaf.requires_grad_()
            out = f(*leaves)
            single.append(type(out) in TENSORS)
            outs = _results(lambda: out, ())
            ctx.f, ctx.leaves, ctx.outs = f, leaves, outs
            ctx.save_for_backward(*args)
            return tuple(o.detach().to(_torch_place(args)).torch() for o in outs)

        @staticmethod
        def backward(ctx, *gs):
            args = ctx.saved_tensors
            found: list = [None] * len(args)
            wanted = [i for i, a in enumerate(args) if a.requires_grad]
            if torch.is_grad_enabled():
                inexact = [i for i, a in enumerate(args) if dtypes.is_inexact(ctx.leaves[i].dtype)]
                grads = to_torch(_pullback(ctx.f, len(args)))(*args, *gs)
                for i, g in zip(inexact, grads, strict=True):
                    found[i] = g if i in wanted else None
            else:
                _sweep_back(ctx, gs, wanted, found)
            return (None, None, *found)

    return Bridge


def _torch_place(args) -> str:
    return asarray(args[0].detach()).device if args else "torch"


def _sweep_back(ctx, gs, wanted, found: list) -> None:
    """The first-order cotangents, by one sweep over the graph of the forward pass."""
    seeds: dict = {}
    for o, g in zip(ctx.outs, gs, strict=True):
        if o.requires_grad and g is not None:
            raw = asarray(g).to(o.dtype).to(o.device)._data
            seeds[o._node] = raw if o._node not in seeds else seeds[o._node] + raw
    reached = sweep(seeds, record=False, retain=True)
    for i in wanted:
        raw = reached.get(ctx.leaves[i]._node)
        found[i] = None if raw is None else asarray(raw).to(ctx.leaves[i].device).torch()


def to_jax(f: Callable[..., Any]) -> Callable[..., Any]:
    """f as a function of JAX arrays that JAX differentiates in reverse mode, also under `jit`.

    f  a function of tensors

    JAX calls back into Python; shapes and dtypes of the results are found by running f once on
    arbitrary numbers.

    >>> import weft as wf
    >>> import jax, weft as wf
    >>> float(jax.grad(wf.to_jax(lambda x: (x**3).sum()))(jax.numpy.array(2.0)))
    12.0
    """
    jax = import_module("jax")

    def host(*arrays):
        with enable_grad(), np.errstate(all="ignore"):
            outs = _results(f, [asarray(np.asarray(a)) for a in arrays])
        return tuple(np.asarray(o.detach().to("cpu").numpy()) for o in outs)

    def call(*args):
        return jax.pure_callback(host, _shapes(jax, f, args), *args, vmap_method="sequential")

    bridge = jax.custom_vjp(call)

    def backward(args, gs):
        grads = iter(to_jax(_list_results(_pullback(f, len(args))))(*args, *gs))
        return tuple(
            next(grads) if dtypes.is_inexact(np.dtype(a.dtype)) else _no_tangent(jax, a)
            for a in args
        )

    bridge.defvjp(lambda *args: (bridge(*args), args), backward)

    @wraps(f)
    def wrapped(*args):
        arrays = [jax.numpy.asarray(a) for a in args]
        outs = bridge(*arrays)
        return outs[0] if _is_single(f, arrays) else outs

    return wrapped


def _list_results(f: Callable[..., Any]) -> Callable[..., Any]:
    def listed(*args):
        return tuple(f(*args))

    return listed


def _no_tangent(jax, a):
    return np.zeros(a.shape, jax.dtypes.float0)


def _probe(f: Callable[..., Any], args):
    """f on arbitrary numbers of the right shapes and dtypes."""
    rng = np.random.default_rng(0)
    numbers = [rng.uniform(0.5, 1.5, a.shape).astype(a.dtype) for a in args]
    with enable_grad(), np.errstate(all="ignore"):
        return f(*map(asarray, numbers))


def _is_single(f: Callable[..., Any], args) -> bool:
    return type(_probe(f, args)) in TENSORS


def _shapes(jax, f: Callable[..., Any], args) -> tuple:
    out = _probe(f, args)
    outs = _results(lambda: out, ())
    return tuple(jax.ShapeDtypeStruct(o.shape, o.dtype) for o in outs)
