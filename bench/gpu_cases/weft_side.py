"""The problems in Weft: eager and compiled."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

import weft as wf

from .problems import OURS_COMPILED, Problem
from .sides import Data, Library, Place, Side, nothing
from .torch_side import found

F = wf.nn.functional


def _scan(step: Callable[[Any, Any], Any], state: Any, xs: Any) -> Any:
    return wf.scan(lambda state, x: (step(state, x), None), state, xs)[0]


def _library(problem: Problem) -> Library:
    def autocast() -> AbstractContextManager[Any]:
        return wf.amp.autocast("bfloat16") if problem.autocast else nothing()

    return Library(F, wf, lambda x, like: x.to(like.dtype), _scan, autocast)


def _tensors(named: dict[str, torch.Tensor], place: Place) -> dict[str, Any]:
    """Weft's tensors in the memory of PyTorch's; on the device "cpu", copies."""
    return {k: wf.asarray(v.detach()).to(place.weft) for k, v in named.items()}


def _copies(named: dict[str, torch.Tensor], place: Place) -> dict[str, Any]:
    return _tensors({k: v.clone() for k, v in named.items()}, place)


def _optimizer(problem: Problem, params: list[Any]) -> Any:
    if problem.update == "sgd":
        return wf.optim.SGD(params, lr=0.1, momentum=0.9)
    return wf.optim.AdamW(params, lr=1e-3) if problem.update else None


def side(problem: Problem, data: Data, place: Place, way: str) -> Side:
    """One of Weft's ways."""
    lib = _library(problem)
    params = {k: wf.Parameter(v) for k, v in _copies(data.params, place).items()}
    frozen, buffers = _tensors(data.frozen, place), _copies(data.buffers, place)
    inputs, grads = _tensors(data.inputs, place), list(_tensors(data.grads, place).values())
    given = None if data.cotangent is None else _tensors({"g": data.cotangent}, place)["g"]
    leaves = list(params.values())
    optimizer = _optimizer(problem, leaves)

    def step(inputs: dict[str, Any]) -> Any:
        for p in leaves:
            p.grad = None
        with lib.autocast():
            y = problem.forward(lib, params, {**inputs, **frozen, **buffers})
        if leaves:
            y.backward(given)
        if problem.clip is not None:
            wf.optim.clip_grad_norm(leaves, problem.clip)
        if optimizer is not None:
            optimizer.step()
        return y.detach()

    def update(grads: list[Any]) -> None:
        optimizer.step(grads)

    f = update if problem.forward is None else step
    run: Any = wf.compile(f) if way == OURS_COMPILED else f
    arguments: Any = grads if problem.forward is None else inputs

    def results(y: Any) -> dict[str, torch.Tensor]:
        values = {k: _array(p, place) for k, p in params.items()}
        grads = {k: _array(p.grad, place) for k, p in params.items() if p.grad is not None}
        return found(problem, data, None if y is None else _array(y, place), values, grads)

    return Side(lambda: run(arguments), results, lambda _: place.wait())


def _array(x: Any, place: Place) -> torch.Tensor:
    return x.detach().torch().to(place.torch)
