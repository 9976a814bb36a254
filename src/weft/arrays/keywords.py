"""What to write in place of keywords that a function does not have.

Public functions whose keywords other libraries spell otherwise end in `**unknown: Never`, so that
type checkers refuse what lands there, and raise `unexpected_keyword` if anything did. That is the
quick way. Where more than the tensors is required, Python would miss `axis` before the function
could say a word about `dim`: those have `checks_keywords`.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache, wraps
from inspect import Parameter, Signature, signature
from typing import Never, ParamSpec, TypeVar

from .. import errors

_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)

P = ParamSpec("P")
R = TypeVar("R")

# By PyTorch's or NumPy's name: parameters of that meaning; a function has one of them at most.
_SPELLINGS = {
    "axes": ("axis",),
    "axis": ("axes",),
    "ddof": ("correction",),
    "diagonal": ("offset", "k"),
    "dim": ("axis", "axes"),
    "dim1": ("axis1",),
    "dim2": ("axis2",),
    "dims": ("axis", "axes"),
    "in_dims": ("in_axes",),
    "index": ("indices",),
    "indices_or_sections": ("sections",),
    "interpolation": ("method",),
    "keepdim": ("keepdims",),
    "offset": ("k",),
    "out_dims": ("out_axes",),
    "p": ("ord",),
    "shifts": ("shift",),
    "src": ("source",),
    "unbiased": ("correction",),
}
# Names of the tensors themselves, which go by position.
_TENSORS = {"a", "array", "arrays", "b", "input", "other", "self", "tensor", "tensors", "x"}
_PARTS = "sections= (how many parts, or where to cut)"
_EXCHANGE = "wf.swapaxes(x, dim0, dim1)"
# By function and keyword, where the meaning differs as well.
_OTHERWISE = {
    ("autocast", "device_type"): "the device of the tensors; leave it out",
    ("autocast", "dtype"): "wf.amp.autocast(dtype), by position",
    ("flatten", "start_dim"): "x.reshape((*x.shape[:start_dim], -1))",
    ("histogram", "bins"): "edges by position: wf.linspace(x.min(), x.max(), bins + 1)",
    ("LSTM", "proj_size"): "a wf.nn.Linear after it",
    ("split", "split_size"): _PARTS,
    ("split", "split_size_or_sections"): _PARTS,
    ("to", "device"): "x.to(device), by position",
    ("to", "dtype"): "x.to(dtype), by position",
    ("transpose", "dim0"): _EXCHANGE,
    ("transpose", "dim1"): _EXCHANGE,
}


@lru_cache(maxsize=None)
def signature_of(function: Callable) -> Signature:
    """What a function takes: its signature without `**unknown: Never`."""
    found = signature(function)
    parameters = found.parameters.values()
    return found.replace(parameters=[p for p in parameters if p.annotation not in (Never, "Never")])


def checks_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """The function, refusing keywords that it does not have before Python misses others."""
    known = frozenset(_keywords(function))

    @wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> R:
        if named and not known.issuperset(named):
            raise unexpected_keyword(function, named)
        return function(*args, **named)

    return call


def check_keywords(name: str, method: Callable, given: Iterable[str]) -> None:
    """Refuse keywords that a method does not have; `name` is what the user called."""
    _, *found = signature(method).parameters.values()
    known = [p.name for p in found if p.kind in _NAMED]
    if not {*known}.issuperset(given) and all(p.kind is not Parameter.VAR_KEYWORD for p in found):
        raise unknown_keyword(name, next(k for k in given if k not in known), known)


def unexpected_keyword(function: Callable, given: Iterable[str]) -> errors.UnknownKeyword:
    """The error for the first of some keywords that a function does not have."""
    tensor, *_ = signature_of(function).parameters
    known = _keywords(function)
    name = next(k for k in given if k not in known)
    return unknown_keyword(function.__name__, name, [k for k in known if k != tensor])


def _keywords(function: Callable) -> list[str]:
    return [p.name for p in signature_of(function).parameters.values() if p.kind in _NAMED]


def unknown_keyword(function: str, name: str, known: Iterable[str]) -> errors.UnknownKeyword:
    """The error for a keyword that is not among those a function has."""
    instead = _instead_of(function, name, list(known))
    return errors.UnknownKeyword(f"{function}: no keyword {name!r}; {instead}")


def _instead_of(function: str, name: str, known: list[str]) -> str:
    from difflib import get_close_matches  # only for messages

    if (function, name) in _OTHERWISE:
        return f"use {_OTHERWISE[function, name]}"
    spelled = [k for k in _SPELLINGS.get(name, ()) if k in known]
    near = spelled or get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f"use {near[0]}="
    if name in _TENSORS:
        return "give tensors by position"
    return f"there are {', '.join(f'{k}=' for k in known)}" if known else "it takes none"
