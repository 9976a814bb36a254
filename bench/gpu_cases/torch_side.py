"""The problems in PyTorch: eager, by torch.compile, by cuDNN's loop, and in float64."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from . import networks
from .problems import COMPILED, CUDNN, HALF, REDUCED, Problem
from .sides import Data, Library, Place, Side, nothing

F = torch.nn.functional


def _loop(step: Callable[[Any, Any], Any], state: Any, xs: Any) -> Any:
    for x in xs:
        state = step(state, x)
    return state


def _library(f: Any, autocast: Callable[[], AbstractContextManager[Any]]) -> Library:
    return Library(f, torch, lambda x, like: x.to(like.dtype), _loop, autocast)


class _InFloat64:
    """PyTorch's functions; the scores of attention are not kept for the backward pass."""

    def __getattr__(self, name: str) -> Any:
        return getattr(F, name)

    def scaled_dot_product_attention(self, *args: Any, **options: Any) -> torch.Tensor:
        attend = F.scaled_dot_product_attention
        return checkpoint(attend, *args, use_reentrant=False, **options)


def _laid_out(x: torch.Tensor, place: Place) -> torch.Tensor:
    """A copy; of images, with the channels last, as PyTorch advises."""
    last = x.ndim == 4 and place.advised
    layout = torch.channels_last if last else torch.contiguous_format
    return x.detach().clone(memory_format=layout)


def _optimizer(problem: Problem, params: list[Any]) -> Any:
    if not problem.update or not params:
        return None
    if problem.update == "sgd":
        return torch.optim.SGD(params, lr=0.1, momentum=0.9, fused=True)
    return torch.optim.AdamW(params, lr=1e-3, fused=True)


def _step(problem: Problem, data: Data, place: Place, lib: Library, way: str) -> Side:
    """A step by copies of the arrays that it changes."""
    params = {k: torch.nn.Parameter(_laid_out(v, place)) for k, v in data.params.items()}
    buffers = {k: v.clone() for k, v in data.buffers.items()}
    inputs = {k: _laid_out(v, place) if v.ndim == 4 else v for k, v in data.inputs.items()}
    optimizer = _optimizer(problem, list(params.values()))
    program = networks.recurrent_by_cudnn if way == CUDNN else problem.forward

    def forward(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        with lib.autocast():
            return program(lib, params, {**inputs, **data.frozen, **buffers})

    run = _compiled(forward, data, way)

    def call() -> torch.Tensor:
        for p in params.values():
            p.grad = None
        y = run(inputs)
        if params:
            y.backward(data.cotangent)
        if problem.clip is not None:
            torch.nn.utils.clip_grad_norm_(params.values(), problem.clip)
        if optimizer is not None:
            optimizer.step()
        return y.detach()

    def results(y: torch.Tensor) -> dict[str, torch.Tensor]:
        return found(problem, data, y, params, {k: p.grad for k, p in params.items()})

    return Side(call, results, lambda _: place.wait())


def _compiled(forward: Callable[..., Any], data: Data, way: str) -> Callable[..., Any]:
    if way not in (COMPILED, REDUCED):
        return forward
    torch._dynamo.reset()
    if way == REDUCED:  # otherwise each replay begins with copies of what never moves
        for x in (*data.inputs.values(), *data.frozen.values()):
            torch._dynamo.mark_static_address(x)
    run = torch.compile(forward, mode="reduce-overhead" if way == REDUCED else None)

    def begin(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        torch.compiler.cudagraph_mark_step_begin()
        return run(inputs)

    return begin


def found(
    problem: Problem,
    data: Data,
    y: torch.Tensor | None,
    params: dict[str, Any],
    grads: dict[str, Any],
) -> dict[str, torch.Tensor]:
    """The result, the gradients and the change of the parameters, under the same names."""
    named = {} if y is None else {"result": y}
    if problem.forward is not None:
        named |= {f"gradient of {k}": g for k, g in grads.items() if g is not None}
    if problem.update:
        for name, p in params.items():
            named[f"change of {name}"] = p.detach() - data.params[name].to(p.dtype)
    return named


def side(problem: Problem, data: Data, place: Place, way: str) -> Side:
    """One of PyTorch's ways."""

    def autocast() -> AbstractContextManager[Any]:
        return torch.autocast(place.torch, HALF, enabled=problem.autocast)

    if problem.forward is None:
        return _update(problem, data, place, way)
    return _step(problem, data, place, _library(F, autocast), way)


def _update(problem: Problem, data: Data, place: Place, way: str) -> Side:
    """An optimizer's step by given gradients: fused, or the plain formulas by torch.compile."""
    params = {k: torch.nn.Parameter(v.clone()) for k, v in data.params.items()}
    for name, g in data.grads.items():
        params[name].grad = g
    if way == COMPILED:
        capturable = place.torch != "cpu"
        optimizer = torch.optim.AdamW(params.values(), lr=1e-3, capturable=capturable)
        run = torch.compile(optimizer.step)
    else:
        run = _optimizer(problem, list(params.values())).step

    def results(_: None) -> dict[str, torch.Tensor]:
        return found(problem, data, None, params, {})

    return Side(lambda: run(), results, lambda _: place.wait())


def reference(problem: Problem, data: Data, place: Place) -> dict[str, torch.Tensor]:
    """The results of one step in float64."""

    def wide(named: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {k: v.double() if v.is_floating_point() else v for k, v in named.items()}

    cotangent = None if data.cotangent is None else data.cotangent.double()
    given = wide(data.params), wide(data.inputs), wide(data.frozen), wide(data.buffers)
    exact = Data(*given, cotangent, wide(data.grads))
    if problem.forward is None:
        made = _update(problem, exact, place, "reference")
    else:
        made = _step(problem, exact, place, _library(_InFloat64(), nothing), "reference")
    return made.results(made.call())
