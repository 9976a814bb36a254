"""The problems in JAX, by jax.jit."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch

from .jax_functions import Functions
from .problems import Problem
from .sides import Data, Library, Place, Side, nothing
from .torch_side import found

Arrays = dict[str, Any]


def _scan(step: Callable[[Any, Any], Any], state: Any, xs: Any) -> Any:
    return jax.lax.scan(lambda state, x: (step(state, x), None), state, xs)[0]


def _arrays(named: dict[str, torch.Tensor]) -> Arrays:
    """Copies, since a step gives its memory away."""
    held = {k: jax.dlpack.from_dlpack(v.detach().contiguous()) for k, v in named.items()}
    return {k: jnp.array(v, copy=True) for k, v in held.items()}


def _adamw(p: Any, g: Any, m: Any, v: Any, t: Any) -> tuple[Any, Any, Any]:
    """The decoupled weight decay of Loshchilov and Hutter."""
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    step = m / (1 - 0.9**t) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return p * (1 - 1e-3 * 0.01) - 1e-3 * step, m, v


def _sgd(p: Any, g: Any, m: Any, v: Any, t: Any) -> tuple[Any, Any, Any]:
    m = 0.9 * m + g
    return p - 0.1 * m, m, v


def _start(problem: Problem, params: Arrays) -> dict[str, Any]:
    """Parameters and moments; SGD has no second ones."""
    moments = {k: jnp.zeros_like(p) for k, p in params.items()} if problem.update else {}
    second = jax.tree.map(jnp.zeros_like, moments) if problem.update == "adamw" else {}
    return {"params": params, "m": moments, "v": second, "t": jnp.float32(0)}


def _updated(problem: Problem, state: dict[str, Any], grads: Arrays) -> dict[str, Any]:
    if problem.clip is not None:
        norm = jnp.sqrt(sum((g * g).sum() for g in grads.values()))
        grads = {k: g * jnp.minimum(1.0, problem.clip / (norm + 1e-6)) for k, g in grads.items()}
    update = _sgd if problem.update == "sgd" else _adamw
    t = state["t"] + 1
    new: dict[str, Any] = {"params": {}, "m": {}, "v": {}, "t": t}
    for k, p in state["params"].items():
        p, m, v = update(p, grads[k], state["m"][k], state["v"].get(k), t)
        new["params"][k], new["m"][k] = p, m
        new["v"] |= {} if v is None else {k: v}
    return new


def _program(problem: Problem, lib: Library, cotangent: Any) -> Callable[..., Any]:
    """(state, held, grads) to the result, the gradients that are asked for, and the new state."""

    def step(state: dict[str, Any], held: Arrays, grads: Arrays) -> tuple[Any, Arrays, Any]:
        params = state["params"]
        if problem.forward is None:
            return None, {}, _updated(problem, state, grads)
        if not params:
            return problem.forward(lib, params, held), {}, state
        y, pull = jax.vjp(lambda p: problem.forward(lib, p, held), params)
        (grads,) = pull(jnp.ones_like(y) if cotangent is None else cotangent.astype(y.dtype))
        return (y, {}, _updated(problem, state, grads)) if problem.update else (y, grads, state)

    return step


def side(problem: Problem, data: Data, place: Place) -> Side:
    """A step; of training steps the results are the loss and the parameters' changes."""
    half = problem.autocast
    kinds = {x.dtype for x in (*data.params.values(), *data.frozen.values())}
    exact = not half and torch.bfloat16 not in kinds
    jax.config.update("jax_default_matmul_precision", "highest" if exact else "default")
    functions = Functions(half, place.torch != "cpu")
    lib = Library(functions, jnp, lambda x, like: x.astype(like.dtype), _scan, nothing)
    cotangent = None if data.cotangent is None else _arrays({"g": data.cotangent})["g"]
    donated = (0,) if problem.update else ()
    run = jax.jit(_program(problem, lib, cotangent), donate_argnums=donated)
    held = _arrays({**data.inputs, **data.frozen, **data.buffers})
    given, state = _arrays(data.grads), _start(problem, _arrays(data.params))

    def call() -> tuple[Any, Arrays, Any]:
        nonlocal state
        y, grads, state = run(state, held, given)
        return y, grads, state["t"]

    def results(made: tuple[Any, Arrays, Any]) -> dict[str, torch.Tensor]:
        y, grads, _ = made
        values = {k: _tensor(p) for k, p in state["params"].items()}
        named = {k: _tensor(g) for k, g in grads.items()}
        return found(problem, data, None if y is None else _tensor(y), values, named)

    return Side(call, results, lambda made: None if made is None else jax.block_until_ready(made))


def _tensor(x: Any) -> torch.Tensor:
    return torch.from_dlpack(x)
