"""The user's line: found through Weft, NumPy, SciPy and the standard library."""

import copy
import functools
import inspect
import threading

import numpy as np
import pytest
import scipy.special

import weft as wf
from weft import errors
from weft.core import origin


def here() -> int:
    return inspect.currentframe().f_back.f_lineno


def line(node) -> str:
    return f"test_origin.py:{node}"


def test_a_node_knows_the_line_of_its_call():
    x = wf.tensor([1.0, 2.0], requires_grad=True)
    y, expected = x * 2, here()
    assert y._node.line == line(expected)
    y, expected = wf.softmax(x), here()  # several functions deep in Weft
    assert y._node.line == line(expected)
    y, expected = np.sum(x), here()  # by NumPy's dispatch
    assert y._node.line == line(expected)
    y, expected = scipy.special.logsumexp(x), here()  # computed in SciPy's files
    assert y._node.line == line(expected)
    y, expected = functools.reduce(lambda a, b: a * b, [x, x]), here()
    assert y._node.line == line(expected)


def test_a_call_over_several_lines_names_its_own():
    x = wf.tensor([1.0, 2.0], requires_grad=True)
    first = here()
    y = wf.exp(
        x
        * 2
    )  # fmt: skip
    assert first < int(y._node.line.rpartition(":")[2]) <= first + 4


def test_an_error_names_the_line():
    x = wf.tensor([1.0, 2.0], requires_grad=True)
    for call in (
        lambda: wf.reshape(x, (3,)),
        lambda: np.asarray(x),
        lambda: np.vectorize(float)(x * 2),
        lambda: copy.deepcopy(x * 2),
    ):
        with pytest.raises(errors.WeftError) as e:
            call()
        assert str(e.value).endswith(f"(at {line(call.__code__.co_firstlineno)})")


def test_code_without_a_file():
    space = {"wf": wf, "x": wf.tensor([1.0], requires_grad=True)}
    exec(compile("y = x * 2\nz = x + 1", "<cell 3>", "exec"), space)
    assert space["y"]._node.line == "<cell 3>:1" and space["z"]._node.line == "<cell 3>:2"


def test_where_no_frame_is_the_user_s():
    x = wf.tensor([1.0], requires_grad=True)
    made = []
    thread = threading.Thread(target=functools.partial(made.append, None))
    thread.start()
    thread.join()
    results = []
    worker = threading.Thread(target=_Collect(results, wf.exp, x))
    worker.start()
    worker.join()
    assert ":" in results[0]._node.line


class _Collect:
    def __init__(self, results, f, x):
        self.call = functools.partial(f, x)
        self.results = results

    def __call__(self):
        self.results.append(self.call())


def test_files_are_told_apart():
    frame = inspect.currentframe()
    assert origin.user_frame(frame) is frame and not origin.is_array_library(frame)
    assert origin.INTERNAL[__file__] is False
    assert origin.INTERNAL[wf.core.dispatch.__file__] is True


class _Watcher:
    def __setitem__(self, key, value):
        self.assigned = origin.assigns_item(inspect.currentframe().f_back)


def test_assignments_are_told_from_calls():
    watcher = _Watcher()
    watcher[0] = 1
    assert watcher.assigned
    watcher[0:1] = 1
    assert watcher.assigned
    watcher.__setitem__(0, 1)
    assert not watcher.assigned
