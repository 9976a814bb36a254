"""Tensors that come in twice, that share memory, and that are returned twice."""

import numpy as np
import pytest

import weft as wf
from weft import errors

X = [1.0, -2.0, 3.0]


def raises(x, y):
    x.copy_(x + 1)
    return x + y


def rebinds(x, y):
    x[0] = 5.0
    return x + y


def both(f, *args):
    """What eager and compiled give, with the arguments afterwards."""
    results = []
    for g in (f, wf.compile(f)):
        given = [a() if callable(a) else a for a in args]
        out = g(*given)
        results.append((out.tolist(), [x.tolist() for x in given]))
    return results


@pytest.mark.parametrize("f", [raises, rebinds])
def test_a_tensor_that_is_given_twice(f):
    def twice(pair):
        return f(pair[0], pair[1])

    for g in (twice, wf.compile(twice)):
        x = wf.tensor(X)
        want = f(y := wf.tensor(X), y).tolist()
        assert g([x, x]).tolist() == want
        assert x.tolist() == y.tolist()


def test_twice_and_apart_are_two_programs():
    f = wf.compile(raises)
    x, y = wf.tensor(X), wf.tensor(X)
    assert f(x, y).tolist() == [3.0, -3.0, 7.0]
    assert f(x, x).tolist() == [6.0, 0.0, 10.0]
    assert f(x, y).tolist() == [5.0, -1.0, 9.0]
    (why,) = f.recompilations
    assert "the same as tensor 0" in why


def test_gradients_of_a_tensor_that_is_given_twice():
    @wf.compile
    def f(x, y):
        (x * y).sum().backward()
        return x.grad, y.grad

    x = wf.tensor(X, requires_grad=True)
    a, b = f(x, x)
    assert a.tolist() == b.tolist() == x.grad.tolist() == [2.0, -4.0, 6.0]


W = wf.tensor(X)


def doubles_what_it_finds(x):
    W.copy_(W * 2)
    return x + W


def doubles_its_argument(x):
    x.copy_(x * 2)
    return x + W


@pytest.mark.parametrize("f", [doubles_what_it_finds, doubles_its_argument])
def test_an_argument_that_the_function_finds_by_itself(f):
    compiled = wf.compile(f)
    results = []
    for g in (f, compiled):
        W.copy_(wf.tensor(X))
        other = wf.tensor(X)
        made = [g(W).tolist(), g(other).tolist(), g(W).tolist(), g(other).tolist()]
        results.append((made, W.tolist(), other.tolist()))
    assert results[0] == results[1]
    assert len(compiled.recompilations) == 1
    assert "finds by itself" in compiled.recompilations[0]


def test_a_parameter_that_is_argument_and_found():
    def trained(compiled):
        p = wf.Parameter(X)
        optimizer = wf.optim.SGD([p], lr=0.1)

        def step(q):
            optimizer.zero_grad()
            (q * p).sum().backward()
            optimizer.step()
            return q + 0

        step = wf.compile(step) if compiled else step
        return [step(p).tolist() for _ in range(3)], p.tolist(), p.grad.tolist()

    assert trained(True) == trained(False)


def test_arguments_in_memory_that_is_changed():
    f = wf.compile(lambda x, y: raises(x, y))
    memory = np.arange(4.0)
    pairs = [
        (wf.asarray(memory), wf.asarray(memory[1:])),
        (x := wf.tensor(X), x.detach()),
        (x, x[1:]),
    ]
    for a, b in pairs:
        before = a.tolist()
        with pytest.raises(errors.StagingError, match=r"argument 0 is changed in place and shares"):
            wf.compile(lambda x, y: (raises(x, x), y * 1))(a, b)
        assert a.tolist() == before
    assert f(x, x.detach().clone()).tolist() == [3.0, -3.0, 7.0]
    state = wf.zeros(3)
    g = wf.compile(lambda x: state.copy_(state + x))
    for same in (state.detach(), state.detach()[:]):
        with pytest.raises(errors.StagingError, match=r"shares its memory with argument 0"):
            g(same)
    g(wf.ones(3))
    assert state.tolist() == [1.0, 1.0, 1.0]


def test_memory_that_is_only_read_may_be_shared():
    x = wf.tensor(X)
    assert wf.compile(lambda a, b: a[1:] * b)(x, x[1:]).tolist() == [4.0, 9.0]


@pytest.mark.parametrize(
    "look",
    [
        lambda x: x.detach(),
        lambda x: x[1:],
        lambda x: x.reshape((3, 1)),
        lambda x: wf.flip(x),
        lambda x: wf.expand_dims(x, axis=0)[0],
    ],
)
def test_a_view_from_before_a_change(look):
    def f(x):
        y = look(x)
        x.copy_(x + 1)
        return y * 1

    with pytest.raises(errors.StagingError, match=r"memory that was written into after that"):
        wf.compile(f)(wf.tensor(X))
    with pytest.raises(errors.StagingError, match=r"memory that was written into after that"):
        wf.compile(lambda: f(wf.zeros(3)))()

    def fine(x):
        y = look(x).clone()
        x.copy_(x + 1)
        return y * look(x)

    want = fine(wf.tensor(X)).tolist()
    assert wf.compile(fine)(wf.tensor(X)).tolist() == want


def test_a_value_that_was_written_somewhere_is_not_the_same_memory():
    def f(x, y):
        v = x * 2
        y.copy_(v)
        v.copy_(v + 1)
        return y + v

    a, b = both(f, lambda: wf.tensor(X), lambda: wf.zeros(3))
    assert a == b


def test_a_backward_pass_after_what_it_needs_was_overwritten():
    w = wf.Parameter(X)

    def f(x):
        y = (w * w * x).sum()
        with wf.no_grad():
            w.copy_(w * 2)
        y.backward()

    for g, error in ((f, errors.SavedValueOverwritten), (wf.compile(f), errors.StagingError)):
        with pytest.raises(error):
            g(wf.tensor(X))


def test_every_row_that_gives_views_is_known():
    from tests.table.rows import cases, load

    from weft.core.backends import KERNELS

    for name, op in load().items():
        kernel = KERNELS[op].get(np.ndarray)
        for case in cases(op) if kernel is not None and not op.views else ():
            try:
                with np.errstate(all="ignore"):
                    args = case.args
                    made = kernel(list(args), *case.static) if op.arity is None else None
                    made = kernel(*args, *case.static) if made is None else made
            except Exception:
                continue  # a case that is refused
            arrays = [a for a in args if isinstance(a, np.ndarray) and a.size]
            for y in made if isinstance(made, tuple) else (made,):
                shared = [np.shares_memory(a, y) for a in arrays if isinstance(y, np.ndarray)]
                assert not any(shared), name


def test_what_is_returned_twice_is_one_tensor():
    f = wf.compile(lambda x: (lambda y: (y, {"again": y}, x, x))(x * 2))
    x = wf.tensor(X)
    for _ in range(2):
        a, b, c, d = f(x)
        assert a is b["again"] and c is d is x
    leaf = wf.tensor(X, requires_grad=True)
    a, b, _, _ = f(leaf)
    (a.sum() + b["again"].sum()).backward()
    assert leaf.grad.tolist() == [4.0, 4.0, 4.0]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: [(x, x + 1), None, 3, "text"],
        lambda x: ((x, x * 2), None),
        lambda x: [None, [x, 1]],
        lambda x: (),
        lambda x: None,
        lambda x: {"a": (), "b": [x]},
    ],
)
def test_the_structure_of_results_with_none(make):
    import optree

    x = wf.tensor(X)
    want, got = make(x), wf.compile(make)(x)
    same = [optree.tree_structure(t, none_is_leaf=True) for t in (want, got)]
    assert same[0] == same[1]


def test_the_structure_of_arguments_with_none():
    f = wf.compile(lambda a, b=None: a[0] - a[1] if b is None else a * b)
    x, y = wf.tensor(X), wf.tensor([2.0, 2.0, 2.0])
    for _ in range(2):
        assert f((x, y), None).tolist() == [-1.0, -4.0, 1.0]
        assert f(x, y).tolist() == [2.0, -4.0, 6.0]


def test_a_number_that_nothing_uses():
    f = wf.compile(lambda x, a: x * 2)
    assert [f(wf.tensor(2.0), a).item() for a in (1.0, 2.0, 3.0)] == [4.0, 4.0, 4.0]


def test_the_default_dtype_is_part_of_a_program():
    f = wf.compile(lambda x: wf.zeros(2) + x)
    x = wf.tensor([1, 2])
    assert f(x).dtype == wf.float32
    wf.set_default_dtype("float64")
    try:
        assert f(x).dtype == wf.float64
    finally:
        wf.set_default_dtype("float32")
    assert f(x).dtype == wf.float32


def test_static_arguments_have_a_hash_and_no_values_of_their_own():
    f = wf.compile(lambda x, n: x * n[0], static_argnums=1)
    with pytest.raises(errors.ArgumentError, match=r"is a list, which has no hash.*a tuple"):
        f(wf.tensor(X), [2])
    with pytest.raises(errors.ArgumentError, match=r"static argument 1 is a tensor"):
        f(wf.tensor(X), wf.tensor([2.0]))
    assert f(wf.tensor(X), (2,)).tolist() == [2.0, -4.0, 6.0]


def test_arrays_of_other_libraries_are_not_changed():
    f = wf.compile(lambda x: rebinds(x, x))
    with pytest.raises(errors.StagingError, match=r"changes argument 0.*wf\.tensor\(array\)"):
        f(np.array(X))
    assert wf.compile(lambda x: x * 2)(np.array(X)).tolist() == [2.0, -4.0, 6.0]


def test_a_graph_that_was_freed_in_part():
    p = wf.Parameter(X)

    def f():
        h = wf.sin(p)
        (h * h).sum().backward()
        return h * 2

    for g in (f, wf.compile(f)):
        y = g()
        with pytest.raises(errors.GraphFreed):
            y.sum().backward()


# Other tensors under the same name

HELD = wf.tensor(X)


def helps(x):
    return x * HELD


def test_a_global_that_is_another_tensor():
    f = wf.compile(lambda x: helps(x) + 1)
    x, old = wf.ones(3), HELD
    assert f(x).tolist() == [2.0, -1.0, 4.0]
    globals()["HELD"] = wf.zeros(3)
    assert f(x).tolist() == [1.0, 1.0, 1.0]
    globals()["HELD"] = old
    assert f(x).tolist() == [2.0, -1.0, 4.0]
    assert f.recompilations == ["the variable 'HELD': another tensor"]


class Holder:
    """Something with a tensor."""


def test_a_variable_an_attribute_and_an_item_that_are_other_tensors():
    w, holder, items, table = wf.ones(3), Holder(), [wf.ones(3)], {"a": wf.ones(3)}
    holder.w = wf.ones(3)
    functions = [
        wf.compile(lambda x: x * w),
        wf.compile(lambda x: x * holder.w),
        wf.compile(lambda h, x: x * h.w),
        wf.compile(lambda x: x * items[0]),
        wf.compile(lambda x: x * table["a"]),
        wf.compile(wf.grad(lambda x: (x * w).sum())),
    ]

    def results():
        x = wf.ones(3)
        return [
            f(holder, x)[0].item() if k == 2 else f(x)[0].item() for k, f in enumerate(functions)
        ]

    assert results() == [1.0] * 6
    w = holder.w = items[0] = table["a"] = wf.full((3,), 2.0)
    assert results() == [2.0] * 6
    assert [len(f.recompilations) for f in functions] == [1] * 6


def test_parameters_and_modules_that_are_replaced():
    model = wf.nn.Sequential(wf.nn.Linear(2, 1, bias=False), wf.nn.Tanh())
    functions = [wf.compile(lambda x: model(x)), wf.compile(model.forward)]
    x = wf.ones((1, 2))
    for change in (
        lambda: None,
        lambda: setattr(model[0], "weight", wf.Parameter(np.ones((1, 2), np.float32))),
        lambda: model.register_module("0", wf.nn.Linear(2, 1)),
    ):
        change()
        want = model(x).item()
        assert [f(x).item() for f in functions] == pytest.approx([want, want])
    assert [len(f.recompilations) for f in functions] == [2, 2]


def test_a_state_that_is_another_tensor_at_each_call():
    holder = Holder()
    holder.state = wf.zeros(3)
    f = wf.compile(lambda x: x + holder.state, max_variants=3)
    with pytest.raises(errors.VariantsExhausted, match=r"holder\.state: another tensor"):
        for k in range(5):
            holder.state = f(wf.ones(3))
            assert holder.state.tolist() == [k + 1.0] * 3


# Memory that is written into under another name


def test_a_change_by_another_name():
    state = wf.zeros(3)

    def f(x):
        state.detach().copy_(x)
        x.detach().copy_(x * 2)
        return state + 1

    for g in (f, wf.compile(f)):
        state.copy_(wf.zeros(3))
        x = wf.tensor(X)
        for k in range(2):
            assert g(x).tolist() == [v * 2**k + 1 for v in X]
            assert x.tolist() == [v * 2 ** (k + 1) for v in X]
            assert state.tolist() == [v * 2**k for v in X]


def test_a_change_of_a_part_by_another_name():
    state = wf.zeros(3)

    def f(x):
        state[1:].copy_(x)

    with pytest.raises(errors.StagingError, match=r"memory that was written into after that"):
        wf.compile(f)(wf.ones(2))
    assert state.tolist() == [0.0, 0.0, 0.0]


def test_a_change_in_a_function_that_is_differentiated():
    def f(x):
        with wf.no_grad():
            x.copy_(x * 0.5 + 1)
        return (x * x).sum()

    results = []
    for g in (wf.grad(f), wf.compile(wf.grad(f))):
        x = wf.tensor(X)
        results.append((g(x).tolist(), x.tolist()))
    assert results[0] == results[1]


def test_a_tensor_that_is_found_and_gets_other_memory():
    """Calls like the last one look at what was found, too."""
    w, x = wf.tensor([1.0, 2.0]), wf.tensor([1.0, 1.0])
    f = wf.compile(lambda x: x * w)
    for _ in range(3):
        np.testing.assert_array_equal(f(x), [1, 2])
    held, memory = w.numpy(), w._data
    w[0] = 5.0
    assert w._data is not memory and held[0] == 1
    for _ in range(2):
        np.testing.assert_array_equal(f(x), [5, 2])
    w.requires_grad_()
    y = f(x)
    assert y.requires_grad
    np.testing.assert_array_equal(y.sum().backward()[w], [1, 1])
