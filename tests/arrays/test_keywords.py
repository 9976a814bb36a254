"""Keywords that a function does not have: refused everywhere, naming the one that is meant."""

import inspect
import os
import random
import re

import numpy as np
import pytest
import torch

import weft as wf

SOAK = os.environ.get("WEFT_SOAK") == "1"
PLACES = {"wf": wf, "wf.linalg": wf.linalg, "wf.fft": wf.fft, "wf.special": wf.special}
PLACES["Tensor"] = wf.Tensor
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
AXES = {"axis", "axes", "axis1", "keepdims", "in_axes"}

X = wf.tensor(np.random.default_rng(3).uniform(0.2, 0.8, (3, 3, 3)))
INDICES = wf.zeros((3, 3, 3), dtype="int64")
# A value for each parameter that some function requires.
REQUIRED = {"x": X, "self": X, "a": X, "b": X, "arrays": [X, X], "indices": INDICES, "source": X}
REQUIRED |= {"values": X, "axis": 0, "shift": 1, "sections": 3, "chunks": 3, "repeats": 2}
REQUIRED |= {"size": 2, "k": 2, "q": 0.5, "f": wf.sin}
# Other libraries' keywords of the same meaning, by ours.
SPELLED = {"axis": ("dim", "dims"), "keepdims": ("keepdim",), "indices": ("index",)}
SPELLED |= {"source": ("src",), "axes": ("dim", "dims"), "correction": ("ddof", "unbiased")}
SPELLED |= {"axis1": ("dim1",), "axis2": ("dim2",), "in_axes": ("in_dims",), "shift": ("shifts",)}
SPELLED |= {"out_axes": ("out_dims",)}


def parameters(f) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(f).parameters)


def keywords(f) -> list[str]:
    _, *found = parameters(f).values()
    return [p.name for p in found if p.kind in NAMED]


def is_public(place: str, name: str) -> bool:
    if place in ("wf.linalg", "wf.special"):
        return name in PLACES[place].__all__
    return not name.startswith("_")


def functions():
    """Every public function and method that takes axes."""
    for place, owner in PLACES.items():
        for name in dir(owner):
            f = getattr(owner, name) if is_public(place, name) else None
            if inspect.isfunction(f) and AXES & set(parameters(f)):
                yield pytest.param(f, id=f"{place}.{name}")


FUNCTIONS = list(functions())


def required(f) -> tuple[list, dict]:
    """Values for what a function requires: tensors by position, the others by name."""
    found = [p for p in parameters(f).values() if p.default is p.empty and "VAR" not in p.kind.name]
    position = [p for i, p in enumerate(found) if i == 0 or p.kind not in NAMED]
    named = {p.name: REQUIRED[p.name] for p in found if p not in position}
    return [REQUIRED[p.name] for p in position], named


def refusal(f, args, named) -> str:
    """The message of a refused call, whose place is this file's line."""
    with pytest.raises(wf.errors.UnknownKeyword) as e:
        f(*args, **named)
    assert isinstance(e.value, TypeError)
    message, line = re.fullmatch(r"(.*) \(at test_keywords\.py:(\d+)\)", str(e.value)).groups()
    here = inspect.getsourcelines(refusal)
    assert here[0][int(line) - here[1]].strip() == "f(*args, **named)"
    return message


def misspellings(name: str, known: list[str]) -> list[str]:
    """The name with a letter lost, doubled or exchanged with the next."""
    places = range(len(name))
    wrong = {name[:i] + name[i + 1 :] for i in places} | {name[: i + 1] + name[i:] for i in places}
    wrong |= {name[:i] + name[i + 1 : i + 2] + name[i] + name[i + 2 :] for i in places}
    found = sorted(w for w in wrong if w.isidentifier() and w not in known)
    return found if SOAK else random.Random(name).sample(found, min(4, len(found)))


def test_there_are_many():
    assert len(FUNCTIONS) > 115


@pytest.mark.parametrize("f", FUNCTIONS)
def test_other_libraries_spellings(f):
    args, named = required(f)
    f(*args, **named)
    for ours in keywords(f):
        for theirs in SPELLED.get(ours, ()):
            given = {k: v for k, v in named.items() if k != ours} | {theirs: 1}
            want = f"{f.__name__}: no keyword '{theirs}'; use {ours}="
            if theirs not in parameters(f):
                assert refusal(f, args, given) == want


@pytest.mark.parametrize("f", FUNCTIONS)
def test_misspellings(f):
    args, named = required(f)
    known = keywords(f)
    for ours in [k for k in known if len(k) > 3]:
        alike = [k for k in known if k[:3] == ours[:3]]
        for wrong in misspellings(ours, [*known, *(s for v in SPELLED.values() for s in v)]):
            given = {k: v for k, v in named.items() if k != ours} | {wrong: 1}
            told = re.fullmatch(
                rf"{f.__name__}: no keyword '{wrong}'; use (\w+)=", refusal(f, args, given)
            )
            assert told and told[1] in alike


@pytest.mark.parametrize("f", FUNCTIONS)
def test_keywords_that_mean_nothing(f):
    args, named = required(f)
    for wrong in ("zzzz", "unknown", "self" if "self" not in parameters(f) else "qqqq"):
        message = refusal(f, args, named | {wrong: 1})
        listed = ", ".join(f"{k}=" for k in keywords(f))
        position = "give tensors by position" if wrong == "self" else f"there are {listed}"
        assert message == f"{f.__name__}: no keyword '{wrong}'; {position}"


def of_torch() -> dict[str, set[str]]:
    """The parameters of PyTorch's functions and methods, by name, as PyTorch lists them."""
    found: dict[str, set[str]] = {}
    for f, shown in torch.overrides.get_testing_overrides().items():
        names = {p.name for p in parameters(shown).values() if p.kind in NAMED}
        found.setdefault(getattr(f, "__name__", ""), set()).update(names)
    return found


def of_numpy() -> dict[str, set[str]]:
    """The parameters of NumPy's functions, by name."""
    names = [n for n in dir(np) if not isinstance(getattr(np, n), type | np.ufunc)]
    found = {}
    for name in [n for n in names if callable(getattr(np, n)) and n in dir(wf)]:
        if getattr(getattr(np, name), "__module__", "") == "numpy":
            found[name] = {p.name for p in parameters(getattr(np, name)).values()}
    return found


@pytest.mark.parametrize("library", [of_torch, of_numpy])
def test_every_keyword_of_another_library(library):
    theirs, count = library(), 0
    for case in FUNCTIONS:
        f = case.values[0]
        args, named = required(f)
        for name in theirs.get(case.id.rpartition(".")[2], set()) - set(parameters(f)):
            assert f"no keyword '{name}'; " in refusal(f, args, named | {name: 1})
            count += 1
    assert count > 100


@pytest.mark.parametrize("f", FUNCTIONS)
def test_tensors_by_name(f):
    """Python itself says which tensor is missing, or this package that they go by position."""
    with pytest.raises(TypeError, match=rf"{f.__name__}(\(\) missing|: no keyword .*position)"):
        f(input=X, **required(f)[1])


@pytest.mark.parametrize(
    "transform", [wf.vmap, wf.compile, wf.grad, lambda f: wf.compile(wf.vmap(f)), wf.checkpoint]
)
@pytest.mark.parametrize("call", [lambda x: x.sum(dim=0), lambda x: x.gather(dim=0, index=INDICES)])
def test_inside_transformations(transform, call):
    with pytest.raises(wf.errors.UnknownKeyword, match="no keyword 'dim'; use axis="):
        transform(lambda x: call(x).sum())(X)


def test_other_meanings_are_not_suggested():
    """`split_size` is a length and `sections` a number: the message says what ours are."""
    assert "how many parts" in refusal(wf.split, [X], {"split_size": 2})
    assert "how many parts" in refusal(wf.Tensor.split, [X], {"split_size_or_sections": 2})
    assert "swapaxes" in refusal(wf.transpose, [X], {"dim0": 0, "dim1": 1})
    assert "reshape" in refusal(wf.flatten, [X], {"start_dim": 1})


def test_numpys_own_options_still_reach_numpy():
    x = X.numpy()
    np.testing.assert_array_equal(np.sum(X, initial=2.0), np.sum(x, initial=2.0))
    np.testing.assert_array_equal(np.take(X, [5], 1, mode="clip"), np.take(x, [5], 1, mode="clip"))
    for ours, theirs in zip(np.split(X, 3, axis=1), np.split(x, 3, axis=1), strict=True):
        assert isinstance(ours, wf.Tensor)
        np.testing.assert_array_equal(ours.numpy(), theirs)
