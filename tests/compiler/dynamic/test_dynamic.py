"""`wf.compile(f, dynamic=…)`: calls of many lengths equal eager mode, or are refused."""

import os
import pickle
import threading

import numpy as np
import optree
import pytest

import weft as wf
import weft.nn as nn
import weft.nn.functional as F
from weft import errors
from weft.compiler.dynamic import loops, moments, moves, products, rules, slices
from weft.compiler.dynamic.lift import Lift
from weft.compiler.dynamic.spans import Span, cut, pad_array, reshape_spans
from weft.compiler.dynamic.traces import LengthTrace

from .lengths import compare, generate
from .lengths.programs import KERNEL, PROGRAMS, B, W

SOAK = os.environ.get("WEFT_SOAK") == "1"
LENGTHS = (5, 9, 16, 2)


def leaves(out) -> list[np.ndarray]:
    return [np.array(y.detach()) for y in optree.tree_leaves(out)]


def same(found, expected, tolerance=1e-9) -> None:
    found, expected = leaves(found), leaves(expected)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        wide = 4e-3 if a.dtype.itemsize < 4 and a.dtype.kind != "b" else tolerance
        np.testing.assert_allclose(a.astype("float64"), b.astype("float64"), wide, wide)


def lines(n: int, seed: int = 0):
    return wf.tensor(np.random.default_rng(seed).uniform(0.5, 2.0, (n, 4)))


def valid_for(f, axes, args):
    """The argument `valid` of a call, if the function has it."""
    if "valid" not in f.__code__.co_varnames[: f.__code__.co_argcount]:
        return {}
    (axis,), (x, *_) = [*axes.values()][:1], args
    return {"valid": wf.ones(x.shape[axis], dtype=bool)}


# -- programs that must not be refused -------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_a_bucket_is_right_at_every_length(name):
    f, axes, example = PROGRAMS[name]
    compiled, rng = wf.compile(f, dynamic=axes), np.random.default_rng(1)
    for n in LENGTHS:
        args = example(n, rng)
        same(compiled(*args), f(*args, **valid_for(f, axes, args)))
    assert len(compiled._made) == 1, compiled.recompilations


GRADIENTS = [
    "masked_mean",
    "plain_mean",
    "masked_cross_entropy",
    "mean_cross_entropy",
    "normalised_batch",
    "statistics",
    "infinite_padding",
    "neighbours",
    "running",
    "joined_lines",
    "causal_attention",
    "full_attention",
    "masked_attention",
    "recurrent",
    "recurrent_batch",
    "convolved",
]


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_right_at_every_length(name):
    f, axes, example = PROGRAMS[name]

    def gradients(x, second, valid):
        def total(x):
            given = [] if second is None else [second]
            out = f(x, *given, **({"valid": valid} if valid_for(f, axes, (x,)) else {}))
            return sum([wf.sin(y).sum() for y in optree.tree_leaves(out) if y.dtype == wf.float64])

        made = (total(x) + (W * W).sum() + B.sum()).backward()
        return wf.value_and_grad(total)(x), [g for p in (W, B) if (g := made.get(p)) is not None]

    named = dict(zip(("x", "second"), axes.values(), strict=False))
    compiled, rng = wf.compile(gradients, dynamic=named), np.random.default_rng(1)
    for n in LENGTHS:
        args = (*example(n, rng), None)[:2]
        W.grad = B.grad = KERNEL.grad = None
        found = compiled(*args)
        W.grad = B.grad = KERNEL.grad = None
        same(found, gradients(*args, wf.ones(n, dtype=bool)), 1e-8)
    W.grad = B.grad = KERNEL.grad = None
    assert len(compiled._made) == 1, compiled.recompilations


@pytest.mark.parametrize("name", GRADIENTS[:4])
def test_a_call_can_be_differentiated_from_outside(name):
    f, axes, example = PROGRAMS[name]
    compiled, rng = wf.compile(f, dynamic=axes), np.random.default_rng(1)
    for n in LENGTHS:
        x, *rest = example(n, rng)
        expected = wf.grad(lambda x, r=rest, n=n: f(x, *r, **valid_for(f, axes, (x,))))(x)
        same(wf.grad(lambda x, r=rest: compiled(x, *r))(x), expected)
    templates = [t for ts in compiled._templates.values() for t in ts]
    assert [len(t._pullbacks) for t in templates] == [1]


def test_numpy_agrees():
    @wf.compile(dynamic={"x": 0})
    def f(x):
        return x.mean(0), x.var(0), x[::-1], wf.cumulative_sum(x, axis=0), x.T @ x

    for n in (3, 7, 20):
        x = np.random.default_rng(n).standard_normal((n, 4))
        expected = x.mean(0), x.var(0), x[::-1], x.cumsum(0), x.T @ x
        for a, b in zip(f(x), expected, strict=True):
            np.testing.assert_allclose(np.asarray(a), b, 1e-12, 1e-12)


# -- models ----------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads, self.first, self.second = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        b, t, d = x.shape
        parts = wf.split(self.qkv(self.first(x)), 3, axis=-1)
        q, k, v = [wf.swapaxes(y.reshape(b, t, self.heads, -1), 1, 2) for y in parts]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(wf.swapaxes(y, 1, 2).reshape(b, t, d))
        return x + self.drop(self.down(F.gelu(self.up(self.second(x)))))


class Language(nn.Module):
    """A small causal transformer."""

    def __init__(self, words: int = 11, width: int = 8):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(64, width)
        self.block, self.head = Block(width, 2), nn.Linear(width, words)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(wf.arange(tokens.shape[1]))
        return self.head(self.block(x))


def language() -> Language:
    wf.random.seed(3)
    return Language().to("float64")


def tokens(n: int, seed: int, batch: int = 3):
    return wf.tensor(np.random.default_rng(seed).integers(0, 11, (batch, n)))


def test_a_growing_sequence_has_one_program_a_bucket():
    model = language().eval()
    compiled = wf.compile(model, dynamic={"tokens": 1})
    with wf.no_grad():
        for n in range(1, 20):
            same(compiled(tokens(n, n)), model(tokens(n, n)))
    assert len(compiled._programs._made) == 2
    assert "became" in compiled.recompilations[0]


@pytest.mark.parametrize("way", ["masked", "mean", "next token"])
def test_steps_on_batches_of_varying_length_train_as_eager_mode_does(way):
    def stepped(model, optimizer):
        def step(tokens, targets, valid):
            optimizer.zero_grad()
            logits = model(tokens)
            if way == "next token":
                logits, targets = logits[:, :-1], tokens[:, 1:]
            losses = F.cross_entropy(
                logits.reshape(-1, 11), targets.reshape(-1), reduction="none"
            ).reshape(targets.shape)
            if way == "masked":
                loss = wf.where(valid, losses, 0.0).sum() / (valid.sum() * tokens.shape[0])
            else:
                loss = losses.mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    models = language(), language()
    steps = [stepped(m, wf.optim.AdamW(m.parameters(), lr=1e-3, eps=1e-3)) for m in models]
    compiled = wf.compile(steps[1], dynamic={"tokens": 1, "targets": 1})
    for k, n in enumerate((5, 9, 13, 16, 7, 20, 30, 24, 5, 32)):
        args = tokens(n, k), tokens(n, 100 + k)
        found, expected = [], []
        for f, more, out in (
            (steps[0], (wf.ones(n, dtype=bool),), expected),
            (compiled, (), found),
        ):
            wf.random.seed(k)  # dropout
            out.append(f(*args, *more))
        same(found, expected)
    for p, q in zip(*[m.parameters() for m in models], strict=True):
        same(q, p, 1e-8)
    assert len(compiled._made) == 2, compiled.recompilations


def test_the_last_batch_of_an_epoch_has_the_program_of_the_others():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 3))
    model = model.to("float64")
    other = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 3))
    other = other.to("float64")
    other.load_state_dict(model.state_dict())

    def loss(model, x, y):
        return F.cross_entropy(model(x), y)

    compiled = wf.compile(lambda x, y: loss(model, x, y), dynamic={"x": 0, "y": 0}, buckets=(32,))
    for n in (32, 32, 7, 32, 19):
        x, y = lines(n, n), wf.tensor(np.random.default_rng(n).integers(0, 3, n))
        for f, of in ((compiled, model), (lambda x, y: loss(other, x, y), other)):
            of.zero_grad()
            f(x, y).backward()
        for (name, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
            same(p.grad, q.grad), name
        same(model.state_dict(), other.state_dict())  # running statistics
    assert len(compiled._made) == 1, compiled.recompilations


# -- random functions ------------------------------------------------------------------------------


def compared_all(seeds) -> list[str]:
    return [
        compare.compared(generate.function(seed, 2 + seed % 5), compare.MODES[seed % 4], seed)
        for seed in seeds
    ]


@pytest.mark.parametrize("start", range(0, 4000, 250) if SOAK else [0])
def test_random_functions_equal_eager_mode_or_are_refused(start, monkeypatch):
    with compare.interpreted(monkeypatch):
        found = compared_all(range(start, start + (250 if SOAK else 40)))
    assert found.count("equal") > 0.8 * len(found)


@pytest.mark.parametrize("seed", range(7000, 7200 if SOAK else 7006))
def test_random_functions_as_native_code(seed):
    mode = compare.MODES[seed % 4]
    compare.compared(generate.function(seed, 3), mode, seed, (5, 9, 16))


def _unmasked(patch) -> None:
    patch.setattr(Lift, "mask_padding", lambda self, x, fill, axes=None: x)


def _one_too_long(patch) -> None:
    valid = Lift.valid

    def longer(self, span):
        actual = self.actual
        self.actual = LengthTrace(actual.length + 1, actual.graph)
        try:
            return valid(self, span)
        finally:
            self.actual = actual

    patch.setattr(Lift, "valid", longer)


def _literals_of_the_bucket(patch) -> None:
    patch.setattr(Lift, "_literal", lambda self, k, j, large, *_: large.inputs[j])


def _zeros_everywhere(patch) -> None:
    run = Lift.run
    patch.setattr(
        Lift, "run", lambda self, inputs, rule_of, zeros=False: run(self, inputs, rule_of, True)
    )


def _carries_go_on(patch) -> None:
    patch.setattr(
        loops,
        "_keep_carries",
        lambda inside, body, loop: body.inputs.insert(loop.carries + loop.xs, inside.step),
    )


def _count_of_the_bucket(patch) -> None:
    patch.setattr(
        moments, "_count", lambda lift, spans, shape, axes: np.prod([shape[a] for a in axes])
    )


def _ends_of_the_bucket(patch) -> None:
    part = slices._part
    patch.setattr(slices, "_part", lambda *args: part(*args)._replace(moved=None))


def _padding_is_seen(patch) -> None:
    patch.setattr(products, "_mask_keys", lambda lift, q, k, mask, causal: mask)


def _flipped_as_it_is(patch) -> None:
    patch.setitem(rules.RULES, "flip", rules.by_element)


def _joined_anyhow(patch) -> None:
    def anyhow(spans, old, new):
        made = reshape_spans(spans, old, new)
        return made and tuple([s and Span(1, s.offset, s.factor) for s in made])

    patch.setattr(moves, "reshape_spans", anyhow)


# Faults, with a program that shows each.
FAULTS = {
    _unmasked: "plain_mean",
    _one_too_long: "plain_mean",
    _literals_of_the_bucket: "divided_by_its_length",
    _zeros_everywhere: "recurrent_batch",
    _carries_go_on: "recurrent",
    _count_of_the_bucket: "plain_mean",
    _ends_of_the_bucket: "neighbours",
    _padding_is_seen: "full_attention",
    _flipped_as_it_is: "turned",
    _joined_anyhow: "joined_top",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault, monkeypatch):
    with monkeypatch.context() as patch:
        fault(patch)
        with pytest.raises(AssertionError):
            test_a_program_of_a_bucket_is_right_at_every_length(FAULTS[fault])
        if SOAK:
            with compare.interpreted(monkeypatch), pytest.raises(AssertionError):
                compared_all(range(400))


# -- what is refused -------------------------------------------------------------------------------


REFUSED = {
    "sort": (lambda x: wf.sort(x, axis=0), "sort at .*goes along the dynamic axis"),
    "median": (lambda x: wf.median(x, axis=0), "dynamic axis"),
    "topk": (lambda x: wf.topk(x, 2, axis=0), "topk at .*test_dynamic.py"),
    "twice": (lambda x: wf.concat([x, x], axis=0), "of which only one may be dynamic"),
    "joined": (lambda x: (x[:, None] * x[None]).reshape(-1), "makes an axis of length 144"),
    "inverse": (lambda x: wf.linalg.inv(x @ x.T), "inv at .*nothing is known"),
    "fft": (lambda x: wf.fft.fft(x, axis=0), "dynamic axis"),
    "power": (lambda x: x ** (1.0 / x.shape[0]), "depends on the length"),
    "strided convolution": (
        lambda x: F.conv1d(x.T[None], wf.ones((2, 4, 3), dtype="float64"), stride=2),
        "axis of length|move by more than one",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_padding_would_change_is_refused(name):
    f, message = REFUSED[name]
    compiled = wf.compile(f, dynamic={"x": 0})
    with pytest.raises(errors.PaddingError, match=message):
        compiled(lines(6))
        compiled(lines(9))


def test_python_that_does_something_else_at_some_lengths_gets_programs_of_its_own():
    @wf.compile(dynamic={"x": 0})
    def f(x):
        return x * 2.0 if x.shape[0] > 7 else x.sum(0)

    for n in (9, 5, 12, 5, 16, 6):
        same(f(lines(n)), f.__wrapped__(lines(n)))
    assert len(f._made) == 3
    assert "length 5, at which the function does something else" in f.recompilations[0]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: sum([x[k] for k in range(x.shape[0])]),
        lambda x: x[: x.shape[0] // 2].sum(0),
        lambda x: x[::2].sum(0),
        lambda x: x + wf.ones(x.shape[0] // 2, dtype="float64").sum(),
    ],
)
def test_what_is_another_program_at_every_length_uses_the_programs_up(f):
    f = wf.compile(f, dynamic={"x": 0}, max_variants=3)
    with pytest.raises(errors.VariantsExhausted, match="does something else"):
        for n in range(4, 9):
            same(f(lines(n)), f.__wrapped__(lines(n)))


def test_a_table_that_is_too_short_for_the_bucket():
    table = lines(20)
    f = wf.compile(lambda x: x + table[: x.shape[0]], dynamic={"x": 0})
    same(f(lines(7)), lines(7) + table[:7])
    with pytest.raises(errors.PaddingError, match=r"length 32 of its bucket.*buckets="):
        f(lines(18))
    f = wf.compile(lambda x: x + table[: x.shape[0]], dynamic={"x": 0}, buckets=(20,))
    same(f(lines(18)), lines(18) + table[:18])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dynamic": {"y": 0}}, "'y', which is no parameter of f; it has x"),
        ({"dynamic": {}}, "names no argument"),
        ({"dynamic": {"x": "first"}}, "expected an axis"),
        ({"dynamic": {"x": 0}, "buckets": (32, 16)}, "ascending order"),
        ({"dynamic": {"x": 0}, "buckets": ()}, "ascending order"),
        ({"buckets": (16,)}, "without dynamic"),
    ],
)
def test_wrong_options_are_refused(options, message):
    def f(x):
        return x

    with pytest.raises(errors.ArgumentError, match=message):
        wf.compile(f, **options)


def test_wrong_calls_are_refused():
    f = wf.compile(lambda x, y: x + y, dynamic={"x": 0, "y": 0}, buckets=(8,))
    with pytest.raises(errors.ShapeError, match="x has 3, y has 4"):
        f(lines(3), lines(4))
    with pytest.raises(errors.ArgumentError, match="length 9, above the largest"):
        f(lines(9), lines(9))
    with pytest.raises(errors.ShapeError, match="length 0"):
        f(lines(0), lines(0))
    with pytest.raises(errors.ArgumentError, match="no length"):
        f(1.0, 2.0)
    with pytest.raises(errors.AxisError, match="dynamic axis 2 of argument 'x'"):
        wf.compile(lambda x: x, dynamic={"x": 2})(lines(3))


def test_a_shape_too_many_is_told_of_dynamic():
    @wf.compile(max_variants=2)
    def f(x, y):
        return x.sum() + y

    with pytest.raises(errors.VariantsExhausted, match=r"dynamic=\{'x': 0\}"):
        for n in range(3, 7):
            f(lines(n), 2.0)


def test_short_calls_of_a_slice_with_a_length_of_its_own():
    f = wf.compile(lambda x: x[-4:].sum(0), dynamic={"x": 0})
    for n in range(1, 12):
        same(f(lines(n)), f.__wrapped__(lines(n)))
    assert len(f._made) == 4  # three lengths are shorter than the slice


def test_indices_of_the_dynamic_axis_end_where_the_call_does():
    @wf.compile(dynamic={"x": 1})
    def last(x, ends):
        return x[wf.arange(3), ends], x[:, ends[0]]

    for n in (4, 7, 16):
        x = wf.tensor(np.random.default_rng(n).standard_normal((3, n, 2)))
        for ends in ([0, 1, n - 1], [-1, -n, 2]):
            same(last(x, np.array(ends)), last.__wrapped__(x, np.array(ends)))
        for ends in ([0, 0, n], [0, -n - 1, 0], [n, 0, 0]):
            for f in (last, last.__wrapped__):
                with pytest.raises(errors.IndexingError):
                    f(x, np.array(ends))
    assert len(last._made) == 1


# -- how it is called ------------------------------------------------------------------------------


def test_valid_is_given_where_the_function_asks_for_it():
    @wf.compile(dynamic={"x": 0})
    def f(x, *, valid):
        return valid, valid.sum()

    found, count = f(lines(5))
    assert found.shape == (5,) and count.item() == 5
    assert wf.vmap(lambda x: f(x)[1])(wf.stack([lines(5)] * 3)).tolist() == [5, 5, 5]
    same(wf.compile(lambda x: f(x)[1] * x)(lines(3)), 3 * lines(3))


def test_methods_keywords_numpy_and_static_arguments():
    class Model:
        def __init__(self):
            self.scale = 2.0

        @wf.compile(dynamic={"x": 0}, static_argnames="how")
        def f(self, x, how="sum", *, shift=0.5):
            return getattr(x * self.scale + shift, how)(0)

    model = Model()
    for n in (3, 6, 9):
        x = np.asarray(lines(n))
        np.testing.assert_allclose(np.asarray(model.f(x)), (x * 2 + 0.5).sum(0))
        np.testing.assert_allclose(np.asarray(model.f(x=x, how="max")), (x * 2 + 0.5).max(0))
        np.testing.assert_allclose(np.asarray(model.f(x, shift=n)), (x * 2 + n).sum(0))
    model.scale = 3.0
    for n in (3, 6, 10):  # a length that was there before, and a new one
        x = np.asarray(lines(n))
        np.testing.assert_allclose(np.asarray(model.f(x)), (x * 3 + 0.5).sum(0))


def test_gradients_of_padded_arguments_add_up():
    def step(x):
        (x * x).mean().backward()

    compiled = wf.compile(step, dynamic={"x": 0})
    for n in (5, 9):
        grads = []
        for f in (step, compiled):
            x = wf.tensor(np.asarray(lines(n)), requires_grad=True)
            f(x)
            f(x)
            grads.append(x.grad)
        same(*grads)


def test_state_is_changed_in_place():
    total, compiled = wf.zeros(4, dtype="float64"), None
    held = total

    def f(x):
        total.copy_(total + x.sum(0))
        return total * 1.0

    compiled, expected = wf.compile(f, dynamic={"x": 0}), np.zeros(4)
    for n in (4, 8, 4, 16):
        expected = expected + np.asarray(lines(n)).sum(0)
        np.testing.assert_allclose(np.asarray(compiled(lines(n))), expected)
        np.testing.assert_allclose(np.asarray(held), expected)
    assert len(compiled._made) == 1


def test_arguments_are_left_alone_and_results_have_memory_of_their_own():
    f = wf.compile(lambda x: (x * 1.0, x), dynamic={"x": 0})
    x = lines(5)
    y, z = f(x)
    assert z is x and y.numpy().flags.c_contiguous
    kept = np.array(y)
    f(lines(5, 7))
    np.testing.assert_array_equal(np.asarray(y), kept)
    column = wf.tensor(np.asarray(lines(5))[:, ::-1])
    same(f(column)[0], column)


def test_the_same_tensor_twice():
    f = wf.compile(lambda x, y: x + y, dynamic={"x": 0, "y": 0})
    x = lines(5)
    same(f(x, x), 2 * x)
    same(f(x, lines(5, 1)), x + lines(5, 1))
    g = wf.compile(lambda x, y: x.sum() + y.sum(), dynamic={"x": 0})
    with pytest.raises(errors.ArgumentError, match="given twice"):
        g(x, x)


def test_explain_tells_of_buckets_and_axes():
    f = wf.compile(lambda x: x.sum(0), dynamic={"x": 0})
    f(lines(5))
    f(lines(20))
    told = str(f.explain())
    assert "f32" not in told and "float64[16, 4]" in told and "float64[32, 4]" in told
    assert "for calls of up to 16 along 'x' axis 0" in told
    assert str(f.graph) and f.kernels


def test_copies_and_pickles_compile_anew():
    f = pickle.loads(pickle.dumps(wf.compile(wf.sum, dynamic={"x": 0})))
    same(f(lines(5)), lines(5).sum())
    same(f.alike(wf.max)(lines(6)), lines(6).max())


def test_threads():
    f = wf.compile(lambda x: wf.softmax(x @ W, axis=0).sum(1), dynamic={"x": 0})
    wrong = []

    def run(first: int):
        for n in range(first, 20, 3):
            a, b = f(lines(n, first)), f.__wrapped__(lines(n, first))
            if not np.allclose(np.asarray(a.detach()), np.asarray(b.detach())):
                wrong.append(n)

    workers = [threading.Thread(target=run, args=(k,)) for k in (2, 3, 4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


# -- spans -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "span", [Span(), Span(1, -1, 1), Span(3, 0, 1), Span(1, 2, 2), Span(2, 1, 3)]
)
def test_padding_is_cut_off_again(span):
    spans = (None, span)
    x = np.arange(2.0 * span.size(5)).reshape(2, -1) + 1
    large = pad_array(x, spans, 5, 8)
    assert large.shape == (2, span.size(8)) and large.sum() == x.sum()
    np.testing.assert_array_equal(cut(large, spans, 5, 8), x)


def test_spans_of_reshapes():
    assert reshape_spans((None, Span()), (3, 16), [Span(1, 0, 3)]) == (Span(3, 0, 1),)
    assert reshape_spans((Span(), None), (16, 3), [Span(1, 0, 3)]) == (Span(1, 0, 3),)
    assert reshape_spans((Span(3, 0, 1),), (48,), [3, Span()]) == (None, Span())
    assert reshape_spans((Span(3, 0, 1),), (48,), [Span(), 3]) is None
    assert reshape_spans((Span(), Span()), (16, 16), [Span(1, 0, 1), Span()]) == (Span(), Span())
    assert reshape_spans((Span(), None, Span()), (16, 2, 16), [Span(), Span(1, 0, 2)]) == (
        Span(),
        Span(2, 0, 1),
    )
