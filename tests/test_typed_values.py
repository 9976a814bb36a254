"""Every public function with values that its types admit: a result, or an error of ours.

The valid calls are those of the docstrings' examples; in each, one argument after the other is
replaced.
"""

import doctest
import inspect
import io
import re
import warnings

import numpy as np
import pytest

import weft as wf
from weft.errors import WeftError

PLACES = {
    "wf": wf,
    "wf.linalg": wf.linalg,
    "wf.fft": wf.fft,
    "wf.special": wf.special,
    "wf.random": wf.random,
    "wf.nn.functional": wf.nn.functional,
}
ARRAYS = [1.0, [], [1.0], 1j, True, np.ones((2, 0)), np.ones((1, 1, 1)), np.zeros(3, np.int8)]
# By what an annotation mentions: values of that type.
VALUES = {
    "ArrayLike": [*ARRAYS, *map(wf.asarray, ARRAYS)],
    "Tensor": [wf.asarray(a) for a in ARRAYS],
    "int": [True, 0, -1, 7],
    "float": [0.0, -1.0, float("inf"), 2],
    "str": ["bad"],
    "Sequence": [(), [0], (0, 0, 0), [7]],
    "Axes": [(), [0], (0, 0), 7, None],
    "Shape": [(), 0, (0,), [2, 0]],
}


def functions():
    """Public functions, by where they are; each once."""
    seen = set()
    for place, owner in PLACES.items():
        for name in dir(owner):
            f = getattr(owner, name)
            if inspect.isfunction(f) and name[0] != "_" and f.__doc__ and f not in seen:
                if {"f", "path", "directory", "state"} & {*inspect.signature(f).parameters}:
                    continue  # of functions, of files, and of generators
                seen.add(f)
                yield pytest.param(owner, name, id=f"{place}.{name}")


def example_calls(owner, name):
    """The arguments of the calls that a function's own examples make."""
    f, calls = getattr(owner, name), []

    def record(*args, **named):
        calls.append((args, named))
        return f(*args, **named)

    setattr(owner, name, record)
    state = wf.random.get_state()
    try:
        examples = doctest.DocTestParser().get_doctest(f.__doc__, {}, name, None, 0)
        runner = doctest.DocTestRunner(verbose=False)
        runner.run(examples, out=io.StringIO().write, clear_globs=False)
    finally:
        setattr(owner, name, f)
        wf.random.set_state(state)
    return calls


def replacements(f, args, named):
    """(parameter, value, arguments, keywords), with one argument replaced by a value it admits."""
    parameters = inspect.signature(f).parameters
    try:
        bound = inspect.signature(f).bind(*args, **named)
    except TypeError:  # an example of a mistake
        return
    for p in parameters.values():
        text = re.sub(r"tuple\[.*\]|(Sequence|Iterable|Mapping)\[.*\]", r"\1", str(p.annotation))
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) or "Callable" in text:
            continue
        for kind, values in VALUES.items():
            if kind in text:
                for value in values:
                    given = inspect.BoundArguments(bound.signature, dict(bound.arguments))
                    given.arguments[p.name] = value
                    order = [n for n in parameters if n in given.arguments]
                    given.arguments = {n: given.arguments[n] for n in order}
                    yield p.name, value, given.args, given.kwargs


@pytest.mark.parametrize("owner, name", list(functions()))
def test_a_result_or_an_error_of_ours(owner, name):
    f = getattr(owner, name)
    failures = []
    for args, named in example_calls(owner, name)[:1]:
        for parameter, value, given, kw in replacements(f, args, named):
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                try:
                    f(*given, **kw)
                except WeftError:
                    pass
                except Exception as e:
                    failures.append(f"{parameter}={value!r}: {type(e).__name__}: {e}")
    assert not failures, "\n".join(failures)
