"""Wrong kinds of arguments, each to each argument of wf.optim, wf.amp and wf.train's public names.

Where one is refused, it is by an error of Weft's, or by a TypeError whose message names the
argument; nobody gets an AttributeError from inside.
"""

import inspect

import numpy as np
import pytest

import weft as wf
from weft.errors import WeftError

KINDS = {
    "None": None,
    "str": "word",
    "int": 3,
    "list": [1, "two"],
    "dict": {"one": 1},
    "config": wf.optim.AdamConfig(),
    "class": wf.optim.Adam,
    "function": len,
    "tensor": wf.ones(3),
}


def _parameter() -> wf.Parameter:
    p = wf.Parameter([1.0, 2.0])
    p.grad = wf.tensor([0.5, 0.5])
    return p


MODEL = wf.nn.Linear(2, 1)
STEPS = {"total_steps": 10, "warmup_steps": 2, "decay_steps": 2, "stable_steps": 2, "step_size": 2}
# What an argument is where another one is wrong; a call has what it cannot do without.
RIGHT = {
    "base": wf.optim.SGD,
    "groups": lambda: [wf.optim.ParameterGroup([_parameter()])],
    "params": lambda: [_parameter()],
    "patterns": lambda: {"*": {}},
    "grads": lambda: [wf.ones(2)],
    "optimizer": lambda: wf.optim.SGD(MODEL.parameters()),
    "scaler": wf.amp.Dynamic,
    "model": lambda: MODEL,
    "loss": lambda: wf.train.supervised(wf.nn.functional.mse_loss),
    "criterion": lambda: wf.nn.functional.mse_loss,
    "dataset": lambda: wf.train.TensorDataset(np.ones((4, 2))),
    "lengths": lambda: [2, 2],
    "indices": lambda: [0, 1],
    "samples": lambda: [np.ones(2), np.ones(2)],
    "history": wf.train.History,
}
# Abstract, or what a file is written by.
LEFT_OUT = {"Optimizer", "LossScaler", "PrecisionMode", "draw_curves", "Curves", "TensorBoard"}


def _calls():
    """(name, function, argument, kind) of everything that can be called with arguments."""
    for module in (wf.optim, wf.amp, wf.train, wf.optim.gradient_clipping):
        for name in module.__all__:
            f = getattr(module, name)
            if callable(f) and name not in LEFT_OUT:
                where = f"{module.__name__.removeprefix('weft.')}.{name}"
                for argument, p in inspect.signature(f).parameters.items():
                    if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
                        yield pytest.param(f, argument, id=f"{where}-{argument}")


def _right(argument: str):
    return RIGHT[argument]() if argument in RIGHT else STEPS.get(argument, 0.5)


@pytest.mark.parametrize("f, argument", list(_calls()))
@pytest.mark.filterwarnings("ignore")
def test_refused_by_name(f, argument):
    problems = []
    for kind, value in KINDS.items():
        given = {
            k: _right(k)
            for k, p in inspect.signature(f).parameters.items()
            if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        }
        try:
            f(**{**given, argument: value})
        except WeftError:
            continue
        except Exception as e:
            if not (isinstance(e, TypeError) and argument in str(e)):
                problems.append(f"{kind}: {type(e).__name__}: {e}")
    assert not problems, "\n".join(problems)


def test_the_fix_is_in_the_message():
    with pytest.raises(WeftError, match=r"MultiGroupOptimizer\(Adam\(AdamConfig\(\)\), groups\)"):
        wf.optim.MultiGroupOptimizer(wf.optim.AdamConfig(lr=0.1), [])


def test_a_norm_may_be_a_tensor():
    grads = [wf.tensor([3.0, 4.0])]
    wf.optim.clip_grads_with_norm(grads, 1.0, wf.tensor(5.0))
    assert np.allclose(grads[0].numpy(), [0.6, 0.8])
