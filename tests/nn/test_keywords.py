"""Keywords of modules: those of PyTorch's that Weft has not are refused, with what there is."""

import inspect
import pickle
from copy import deepcopy

import pytest
import torch

import weft as wf
from weft.errors import ArgumentError, UnknownKeyword, WeftError


def pairs():
    """(our class, a keyword of PyTorch's class of that name which ours has not)."""
    for name in sorted(set(dir(wf.nn)) & set(dir(torch.nn))):
        ours, theirs = getattr(wf.nn, name), getattr(torch.nn, name)
        if isinstance(ours, type) and issubclass(ours, wf.nn.Module):
            own = inspect.signature(ours.__init__).parameters.values()
            if any(p.kind is p.VAR_KEYWORD for p in own):
                continue
            known = {p.name for p in own}
            for p in inspect.signature(theirs.__init__).parameters.values():
                if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in known:
                    yield pytest.param(ours, p.name, id=f"{name}({p.name})")


MISSING = [*pairs(), pytest.param(wf.nn.Linear, "foo", id="Linear(foo)")]


@pytest.mark.parametrize("cls, keyword", MISSING)
def test_what_pytorch_has_and_weft_has_not(cls, keyword):
    with pytest.raises(UnknownKeyword, match=f"^{cls.__name__}: no keyword '{keyword}'; "):
        cls(**{keyword: 1})


class Scaled(wf.nn.Module):
    def __init__(self, size, *, scale=1.0):
        super().__init__()
        self.linear, self.scale = wf.nn.Linear(size, size), scale

    def forward(self, x):
        return self.linear(x) * self.scale


class Open(Scaled):
    def __init__(self, size, **options):
        super().__init__(size, **options)


def test_modules_of_users():
    assert Scaled(2, scale=3.0).scale == Open(size=2, scale=3.0).scale == 3.0
    with pytest.raises(UnknownKeyword, match=r"^Scaled: no keyword 'scal'; use scale="):
        Scaled(2, scal=3.0)
    with pytest.raises(TypeError, match="scal"):
        Open(2, scal=3.0)
    model = Scaled(2, scale=3.0)
    for made in (deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert made.scale == 3.0


def test_assignments_of_pytorch_say_what_to_write():
    p = wf.Parameter([1.0])
    with pytest.raises(ArgumentError, match=r"copy_\(value\)"):
        p.data = wf.ones(1)
    assert not hasattr(p, "data")


def test_requires_grad_is_assigned_as_in_pytorch():
    for made in (wf.Parameter([1.0]), wf.tensor([1.0], requires_grad=True)):
        made.requires_grad = False
        assert not made.requires_grad
        made.requires_grad = True
        assert (made * 3.0).sum().backward()[made].tolist() == [3.0]
    with pytest.raises(WeftError, match=r"requires_grad_\(False\): .* computed by"):
        (made * 3.0).requires_grad = False


def test_signatures_are_those_of_init_and_forward():
    assert list(inspect.signature(wf.nn.Linear).parameters)[:2] == ["in_features", "out_features"]
    assert list(inspect.signature(Scaled).parameters) == ["size", "scale"]
    assert not inspect.signature(wf.nn.Module).parameters
    assert "kwargs" in inspect.signature(wf.nn.Linear(2, 2)).parameters


X = wf.ones((2, 3))
ADVICE = {
    "to": (r"x\.to\(device\)", lambda: X.to(device="cpu")),
    "autocast": (r"wf\.amp\.autocast\(dtype\)", lambda: wf.amp.autocast(dtype=wf.bfloat16)),
    "autocast device": ("leave it out", lambda: wf.amp.autocast(device_type="cuda")),
    "histogram": ("linspace", lambda: wf.histogram(X, bins=5)),
    "histogram 5": ("linspace", lambda: wf.histogram(X, 5)),
    "repeat": (r"wf\.tile", lambda: X.repeat(2, 3)),
    "normal": ("complex64", lambda: wf.random.normal(1j)),
}


@pytest.mark.parametrize("name", ADVICE)
def test_calls_of_pytorch_say_what_to_write(name):
    text, call = ADVICE[name]
    with pytest.raises(WeftError, match=rf"^{name.split()[0]}\b.*{text}"):
        call()


OWN_NAMES = {
    "hvp": lambda: wf.hvp(lambda x: (x**2).sum(), X, X),
    "normal": lambda: wf.random.normal((2,)),
    "cumsum": lambda: wf.cumsum(X, axis=7),
    "cumprod": lambda: wf.cumprod(X, axis=7),
    "percentile": lambda: wf.percentile(X, 50, method="bad"),
    "rfft": lambda: wf.fft.rfft(X, n=0),
    "hfft": lambda: wf.fft.hfft(X, n=0),
    "ihfft": lambda: wf.fft.ihfft(X, n=0),
    "irfft2": lambda: wf.fft.irfft2(X, s=(0, 0)),
    "clip": lambda: wf.clip(X, 0, 2, out=wf.ones(3)),
}


@pytest.mark.parametrize("name", OWN_NAMES)
def test_errors_name_the_function_that_was_called(name):
    with pytest.raises(WeftError, match=rf"^{name}\b"):
        OWN_NAMES[name]()


def test_schedulers_of_pytorch():
    for name in dir(torch.optim.lr_scheduler):
        if name in ("CosineAnnealingLR", "StepLR", "ExponentialLR", "OneCycleLR"):
            with pytest.raises(AttributeError, match=r"use wf\.optim\.schedulers\."):
                getattr(wf.optim, name)
