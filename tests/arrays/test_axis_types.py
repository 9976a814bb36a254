"""Every function that takes axes: run time takes the kinds that its annotation names, no others."""

import inspect
import re

import numpy as np
import pytest

import weft as wf
from weft.arrays.keywords import signature_of
from weft.errors import AxisError, DTypeError

PLACES = {"wf": wf, "wf.linalg": wf.linalg, "wf.fft": wf.fft, "wf.special": wf.special}
PLACES |= {"F": wf.nn.functional, "Tensor": wf.Tensor}
AXES = {"axis", "axes", "dim", "axis1", "axis2"}
# Numbers of features, not axes; and rows whose annotations `tools/stubs.py` leaves out.
OTHERS = {"rope", "rotary_table"}
X = wf.tensor(np.random.default_rng(3).uniform(0.2, 0.8, (3, 3, 3)))
INDICES = wf.zeros((3, 3, 3), dtype="int64")
REQUIRED = {"indices": INDICES, "arrays": [X, X], "axis": 0, "shift": 1, "sections": 3, "chunks": 3}
REQUIRED |= {"repeats": 2, "size": 2, "k": 2, "q": 0.5}
KINDS = {"int": 1, "tuple": (0,), "list": [0], "None": None, "float": 1.0, "str": "rows"}
# What annotations mention, and the kinds that it stands for.
TOLD = {"Axes": {"int", "tuple", "list", "None"}, "Sequence": {"tuple", "list"}}
TOLD |= {kind: {kind} for kind in ("int", "tuple", "list", "None")}


def functions():
    for place, owner in PLACES.items():
        for name in dir(owner):
            f = getattr(owner, name) if name[0] != "_" and name not in OTHERS else None
            if inspect.isfunction(f):
                for p in signature_of(f).parameters.values():
                    if p.name in AXES:
                        yield pytest.param(f, p.name, id=f"{place}.{name}({p.name})")


def told_kinds(annotation) -> set[str]:
    """The kinds of values that an annotation admits; `tuple[int, …]` admits no int."""
    text = re.sub(r"\[[^\[\]]*\]", "", re.sub(r"\[[^\[\]]*\]", "", str(annotation)))
    if annotation is int:
        return {"int"}
    return set().union(*(TOLD[w] for w in re.findall(r"\w+", text) if w in TOLD))


def call(f, name, value):
    args, named = [], {}
    for p in signature_of(f).parameters.values():
        given = p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        if p.name == name or given:
            v = value if p.name == name else REQUIRED.get(p.name, X)
            if p.kind is p.POSITIONAL_ONLY:
                args.append(v)
            else:
                named[p.name] = v
    return f(*args, **named)


FUNCTIONS = list(functions())


@pytest.mark.parametrize("f, name", FUNCTIONS)
def test_the_annotation_names_the_kinds_that_are_taken(f, name):
    taken = set()
    for kind, value in KINDS.items():
        try:
            call(f, name, value)
            taken.add(kind)
        except DTypeError:
            pass
        except wf.errors.WeftError:  # a length or a number of axes: the kind was right
            taken.add(kind)
    assert taken == told_kinds(signature_of(f).parameters[name].annotation)


@pytest.mark.parametrize("f, name", FUNCTIONS)
def test_an_axis_out_of_range_names_the_function(f, name):
    with pytest.raises((AxisError, DTypeError, wf.errors.ArgumentError)) as caught:
        call(f, name, 7)
    assert str(caught.value).startswith(f.__name__)
