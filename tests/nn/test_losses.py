"""Losses beside PyTorch's: values, gradients, reductions, memory, infinities."""

from math import inf

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors
from weft.backend.shared import crossentropy as chunks

from .alike import Constant, F, T, agree, same, saved_bytes

rng = np.random.default_rng(8)
DEVICES = ("cpu", "torch")
REDUCTIONS = ("none", "mean", "sum")


def normal(*shape):
    return rng.normal(size=shape)


def signs(*shape):
    return rng.choice([-1, 1], shape)


X, Y, P = normal(3, 4), normal(3, 4), rng.uniform(0.05, 0.95, (3, 4))

# name, arguments, options
CASES = [
    ("mse_loss", (X, Y), {}),
    ("mse_loss", (X, Y), {"weight": rng.uniform(0.1, 2.0, (3, 4))}),
    ("l1_loss", (X, Y), {}),
    ("l1_loss", (X, Y), {"weight": rng.uniform(0.1, 2.0, (3, 4))}),
    ("huber_loss", (X, Y), {"delta": 0.7}),
    ("huber_loss", (X, Y), {"weight": rng.uniform(0.1, 2.0, (3, 4))}),
    ("smooth_l1_loss", (X, Y), {"beta": 0.4}),
    ("smooth_l1_loss", (X, Y), {"beta": 0.0}),
    ("binary_cross_entropy", (P, rng.uniform(size=(3, 4))), {}),
    (
        "binary_cross_entropy",
        (P, rng.uniform(size=(3, 4))),
        {"weight": Constant(np.arange(1.0, 5.0))},
    ),
    ("binary_cross_entropy_with_logits", (X, P), {}),
    ("binary_cross_entropy_with_logits", (X, P), {"weight": Constant(np.arange(1.0, 5.0))}),
    ("binary_cross_entropy_with_logits", (X, P), {"pos_weight": Constant(np.arange(1.0, 5.0))}),
    ("kl_div", (X, P), {}),
    ("kl_div", (X, Y), {"log_target": True}),
    ("hinge_embedding_loss", (X, signs(3, 4)), {"margin": 0.8}),
    ("soft_margin_loss", (X, signs(3, 4)), {}),
    ("margin_ranking_loss", (X, Y, signs(3, 4)), {"margin": 0.3}),
    ("cosine_embedding_loss", (X, Y, np.array([1, -1, 1])), {"margin": 0.2}),
    ("cosine_embedding_loss", (X[0], Y[0], np.array(-1)), {"margin": -0.9}),
    ("triplet_margin_loss", (X, Y, normal(3, 4)), {"margin": 2.0}),
    ("triplet_margin_loss", (X, Y, normal(3, 4)), {"margin": 2.0, "swap": True, "p": 3.0}),
    ("triplet_margin_loss", (X, Y, normal(3, 4)), {"p": 1.0, "eps": 1e-2}),
    ("poisson_nll_loss", (X, rng.uniform(0, 5, (3, 4))), {"full": True}),
    ("poisson_nll_loss", (P, rng.uniform(0, 5, (3, 4))), {"log_input": False, "eps": 0.1}),
    ("gaussian_nll_loss", (X, Y, P), {"full": True}),
    ("gaussian_nll_loss", (X, Y, P[:, :1]), {"eps": 0.5}),
    ("gaussian_nll_loss", (X, Y, P[:, 0]), {}),
]


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")  # of PyTorch's kl_div
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_beside_torch(case, device, reduction):
    name, args, options = case
    agree(name, *args, reduction=reduction, device=device, **options)


def test_batchmean():
    agree("kl_div", X, P, reduction="batchmean")


def test_hinge():
    x = wf.tensor([[0.5, 2.0, -1.0]], requires_grad=True)
    loss = F.hinge_loss(x, wf.tensor([[1.0, 1.0, 1.0]]), reduction="sum")
    assert loss.item() == 0.5 + 0 + 2
    assert loss.backward()[x].tolist() == [[-1.0, 0.0, -1.0]]


def test_divergence_with_impossible_outcomes_is_finite():
    """0·log 0 = 0, also beside log-probabilities of −∞."""
    x = wf.tensor([-inf, 0.0], requires_grad=True)
    loss = F.kl_div(x, wf.tensor([0.0, 1.0]), reduction="sum")
    assert loss.item() == 0.0
    assert loss.backward()[x].tolist() == [0.0, -1.0]


def test_binary_cross_entropy_ends_at_100():
    p = wf.tensor([0.0, 1.0, 0.0, 1.0], requires_grad=True)
    loss = F.binary_cross_entropy(p, wf.tensor([1.0, 0.0, 0.0, 1.0]), reduction="none")
    assert loss.tolist() == [100.0, 100.0, 0.0, 0.0]
    assert np.isfinite(loss.sum().backward()[p].numpy()).all()


def test_logits_beyond_exp():
    x = wf.tensor([1e4, -1e4], requires_grad=True)
    loss = F.binary_cross_entropy_with_logits(x, wf.tensor([0.0, 1.0]), reduction="sum")
    assert loss.item() == 2e4
    assert loss.backward()[x].tolist() == [1.0, -1.0]


# -- classes -----------------------------------------------------------------------------------

# logits, classes
TARGETS = [((5, 4), (5,)), ((4,), ()), ((2, 4, 3), (2, 3)), ((2, 4, 3, 2), (2, 3, 2))]


@pytest.fixture(params=["one chunk", "small chunks"])
def chunking(request, monkeypatch):
    if request.param == "small chunks":
        monkeypatch.setattr(chunks, "CHUNK", dict.fromkeys(chunks.CHUNK, 8))


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("weighted", [False, True])
def test_means_over_more_lines_than_float16_counts(name, weighted):
    x, t = normal(70_000, 3).astype(np.float16), rng.integers(0, 3, 70_000)
    weight = rng.uniform(0.5, 2.0, 3).astype(np.float16) if weighted else None
    logits = wf.tensor(x, requires_grad=True)
    given = None if weight is None else wf.tensor(weight)
    loss = getattr(F, name)(logits, wf.tensor(t), given)
    wide = torch.tensor(x.astype(np.float64), requires_grad=True)
    given = None if weight is None else torch.tensor(weight.astype(np.float64))
    expected = getattr(T, name)(wide, torch.tensor(t), given)
    unit = 2.0**-10
    assert loss.dtype == wf.float16 and loss.item() == pytest.approx(expected.item(), rel=unit)
    expected.backward()
    found = loss.backward()[logits].to("float64").numpy()
    # Gradients of so many lines are subnormal: they are multiples of 2⁻²⁴.
    np.testing.assert_allclose(found, wide.grad.numpy(), rtol=4 * unit, atol=2.0**-23)


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint64"])
def test_classes_of_any_integer(name, dtype):
    """There may be more classes than the dtype has numbers."""
    x, t = normal(6, 300), np.array([0, 1, 100, 127, 5, 1])
    found = getattr(F, name)(wf.tensor(x), wf.tensor(t.astype(dtype)), ignore_index=1)
    expected = getattr(T, name)(torch.tensor(x), torch.tensor(t), ignore_index=1)
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shapes", TARGETS)
def test_cross_entropy_of_classes(shapes, device, reduction, chunking):
    x, t = normal(*shapes[0]), np.asarray(rng.integers(0, 4, shapes[1]))
    weight = rng.uniform(0.5, 2.0, 4)
    for options in (
        {},
        {"label_smoothing": 0.2},
        {"ignore_index": 2} if t.ndim else {},
        {"ignore_index": 2, "label_smoothing": 0.3} if t.ndim else {},
    ):
        agree("cross_entropy", x, t, reduction=reduction, device=device, **options)
        options["weight"] = Constant(weight)
        agree("cross_entropy", x, t, reduction=reduction, device=device, **options)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(5, 4), (4,), (2, 4, 3)])
def test_cross_entropy_of_probabilities(shape, device, reduction, chunking):
    x, q = normal(*shape), rng.uniform(size=shape)
    for options in ({}, {"label_smoothing": 0.2}):
        agree("cross_entropy", x, q, reduction=reduction, device=device, **options)
        options["weight"] = Constant(rng.uniform(0.5, 2.0, 4))
        agree("cross_entropy", x, q, reduction=reduction, device=device, **options)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shapes", TARGETS)
def test_nll(shapes, device, reduction):
    x, t = normal(*shapes[0]), np.asarray(rng.integers(0, 4, shapes[1]))
    weight = rng.uniform(0.5, 2.0, 4)
    for options in ({}, {"ignore_index": 2} if t.ndim else {}):
        agree("nll_loss", x, t, reduction=reduction, device=device, **options)
        options["weight"] = Constant(weight)
        agree("nll_loss", x, t, reduction=reduction, device=device, **options)


def test_cross_entropy_by_a_weight_and_by_targets():
    """PyTorch gives class weights no gradient; here finite differences confirm one."""
    x, t = wf.tensor(normal(3, 4)), wf.tensor([0, 2, 2])
    w = wf.tensor(rng.uniform(0.5, 2.0, 4))
    wf.check_grads(lambda x, w: F.cross_entropy(x, t, w, label_smoothing=0.1), (x, w), order=2)
    wf.check_grads(F.cross_entropy, (x, wf.tensor(rng.uniform(size=(3, 4)))), order=2)
    wf.check_grads(lambda x: F.cross_entropy(x, t), (x,), order=2, modes=("fwd", "rev"))


def test_what_cross_entropy_keeps_and_makes():
    """The logits and a number a line are kept; the backward pass makes one array of their size."""
    import tracemalloc

    n, classes = 4096, 2000  # large beside the chunks that eight threads hold
    x = wf.tensor(rng.normal(size=(n, classes)).astype(np.float32), requires_grad=True)
    t = wf.tensor(rng.integers(0, classes, n))
    kept = saved_bytes(lambda: F.cross_entropy(x, t))
    assert kept - x.nbytes <= n * (4 + 4 + 8 + 8 + 4)  # lse, losses, classes, masks
    loss = F.cross_entropy(x, t)
    tracemalloc.start()
    loss.backward()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.3 * x.nbytes
    before = wf.memory_stats().bytes
    tracemalloc.start()
    loss = F.cross_entropy(x, t)
    assert tracemalloc.get_traced_memory()[1] < 0.3 * x.nbytes
    tracemalloc.stop()
    assert wf.memory_stats().bytes - before < 1.05 * x.nbytes


def test_a_vocabulary_of_fifty_thousand_words():
    """Beside the logits there is one array of their size, their gradient, and that only once."""
    import tracemalloc

    x = wf.tensor(rng.normal(size=(1024, 50_257)).astype(np.float32), requires_grad=True)
    t = rng.integers(0, 50_257, 1024)
    tracemalloc.start()
    loss = F.cross_entropy(x, wf.tensor(t))
    forward = tracemalloc.get_traced_memory()[1]
    grad = loss.backward()[x]
    both = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert forward < 0.1 * x.nbytes and both < 1.1 * x.nbytes
    other = torch.tensor(x.detach().numpy(), requires_grad=True)
    T.cross_entropy(other, torch.tensor(t)).backward()
    np.testing.assert_allclose(grad.numpy(), other.grad.numpy(), rtol=1e-5, atol=0)


def test_no_target_counts():
    x = wf.tensor(normal(3, 4), requires_grad=True)
    loss = F.cross_entropy(x, wf.tensor([-100, -100, -100]))
    assert loss.item() == 0.0
    assert (loss.backward()[x].numpy() == 0).all()


def test_impossible_classes():
    x = wf.tensor([[0.0, -inf, 1.0], [-inf, 2.0, -inf]], requires_grad=True)
    loss = F.cross_entropy(x, wf.tensor([2, 1]), reduction="none")
    expected = T.cross_entropy(
        torch.tensor(x.detach().numpy()), torch.tensor([2, 1]), reduction="none"
    )
    np.testing.assert_allclose(loss.detach().numpy(), expected.numpy(), rtol=1e-6)
    assert np.isfinite(loss.sum().backward()[x].numpy()).all()
    spread = F.cross_entropy(x, wf.tensor([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]))
    assert np.isfinite(spread.item())


def test_an_ignored_line_of_nan_gives_no_gradient():
    x = wf.tensor([[np.nan, 1.0], [0.5, 1.0]], requires_grad=True)
    loss = F.cross_entropy(x, wf.tensor([-100, 1]))
    assert np.isfinite(loss.item())
    g = loss.backward()[x].numpy()
    assert (g[0] == 0).all() and np.isfinite(g).all()


@pytest.mark.parametrize("device", DEVICES)
def test_half_precision_is_summed_in_single(device):
    x = wf.tensor(rng.normal(size=(4, 3000)), device=device)
    t = wf.tensor([0, 5, 7, 2999], device=device)
    wide = F.cross_entropy(x, t).item()
    assert F.cross_entropy(x.to("float16"), t).item() == pytest.approx(wide, rel=2.0**-9)


# -- alignments --------------------------------------------------------------------------------


def log_probs(t, n, c):
    return normal(t, n, c)


def through_softmax(f, *rest, **options):
    return lambda x: f.ctc_loss(f.log_softmax(x, dim=-1), *rest, **options)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("blank", [0, 2])
def test_ctc(reduction, device, blank):
    labels = np.array([[1, 1, 3], [3, 1, 0], [1, 3, 3]])
    frames, counts = [7, 6, 5], [3, 2, 1]
    mine = (wf.tensor(labels, device=device), wf.tensor(frames, device=device), counts)
    theirs = (torch.tensor(labels), torch.tensor(frames), torch.tensor(counts))
    options = {"blank": blank, "reduction": reduction}
    if blank:
        options["zero_infinity"] = True
    same(
        through_softmax(F, *mine, **options),
        through_softmax(T, *theirs, **options),
        log_probs(7, 3, 4),
        device=device,
    )


def test_ctc_of_joined_labels_and_of_one_sequence():
    joined = np.array([1, 1, 3, 3, 1, 1])
    same(
        through_softmax(F, wf.tensor(joined), [7, 6, 5], [3, 2, 1]),
        through_softmax(T, torch.tensor(joined), (7, 6, 5), (3, 2, 1)),
        log_probs(7, 3, 4),
    )
    same(
        through_softmax(F, wf.tensor([1, 2]), wf.tensor(6), wf.tensor(2)),
        through_softmax(T, torch.tensor([1, 2]), torch.tensor(6), torch.tensor(2)),
        normal(6, 4),
    )
    same(
        through_softmax(F, wf.zeros((2, 0), dtype="int64"), [4, 3], [0, 0], reduction="sum"),
        through_softmax(T, torch.zeros((2, 0), dtype=torch.int64), (4, 3), (0, 0), reduction="sum"),
        log_probs(4, 2, 3),
    )


def test_ctc_of_sequences_that_are_too_short():
    x = wf.tensor(normal(2, 1, 3), requires_grad=True)
    loss = F.ctc_loss(wf.log_softmax(x, axis=-1), wf.tensor([[1, 1]]), [2], [2])
    assert loss.item() == inf
    assert (loss.backward()[x].numpy() == 0).all()
    loss = F.ctc_loss(wf.log_softmax(x, axis=-1), wf.tensor([[1, 1]]), [2], [2], zero_infinity=True)
    assert loss.item() == 0.0
    assert (loss.backward()[x].numpy() == 0).all()


def test_ctc_keeps_the_log_probabilities_only():
    x = wf.tensor(normal(50, 4, 20), requires_grad=True)
    labels = wf.tensor(rng.integers(1, 20, (4, 10)))
    kept = saved_bytes(lambda: F.ctc_loss(x, labels, [50] * 4, [10] * 4))
    assert kept < x.nbytes + 4 * 21 * 8 + 500


def test_ctc_twice():
    x = wf.tensor(normal(4, 2, 3))
    labels = wf.tensor([[1, 2], [2, 0]])
    wf.check_grads(lambda x: F.ctc_loss(x, labels, [4, 3], [2, 1]), (x,), order=2)


# -- distances ---------------------------------------------------------------------------------


def test_distances():
    a, b = normal(3, 4, 2), normal(3, 4, 2)
    for dim in (0, 1, -1):
        agree("cosine_similarity", a, b, dim=dim)
        agree("normalize", a, dim=dim, p=3.0)
    agree("cosine_similarity", a, b[0], dim=1)
    agree("normalize", a)
    for p in (1.0, 2.0, 3.5, inf):
        agree("pairwise_distance", a, b, p=p, keepdim=True)
    agree("pairwise_distance", a[0, 0], b[0, 0])


def test_vectors_of_no_length():
    x = wf.zeros((2, 3), requires_grad=True)
    loss = F.normalize(x).sum() + F.cosine_similarity(x, wf.ones((2, 3))).sum()
    assert np.isfinite(loss.backward()[x].numpy()).all()


T3 = wf.ones((2, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: F.mse_loss(wf.ones((3, 1)), wf.ones(3)), "differ; reshape one of them"),
        (lambda: F.mse_loss(T3, T3, "average"), "expected 'none', 'mean' or 'sum'"),
        (lambda: F.l1_loss(T3, T3, weight=wf.ones(3)), "expected a weight for each loss"),
        (lambda: F.huber_loss(T3, T3, delta=0.0), "delta=0.0, expected a positive number"),
        (lambda: F.smooth_l1_loss(T3, T3, beta=-1.0), "beta=-1.0, expected 0 or more"),
        (lambda: F.triplet_margin_loss(T3, T3, T3, margin=0.0), "expected more than 0"),
        (lambda: F.cosine_embedding_loss(T3, T3, wf.ones(3)), "expected (N, D) and (N,)"),
        (lambda: F.gaussian_nll_loss(T3, T3, wf.ones(3)), "one number for each line"),
        (lambda: F.cross_entropy(T3, wf.tensor([0])), "expected a target of (2,)"),
        (lambda: F.cross_entropy(T3, wf.tensor([0, 3])), "class 3 of 3; expected 0 to 2"),
        (lambda: F.cross_entropy(T3, wf.tensor([0, -1])), "class -1 of 3; expected 0 to 2"),
        (lambda: F.cross_entropy(T3, wf.tensor([True, False])), "expected integer classes"),
        (lambda: F.cross_entropy(T3, wf.ones((3, 2))), "expected one shape, or integers"),
        (lambda: F.cross_entropy(T3, T3, ignore_index=1), "give them weight 0 instead"),
        (lambda: F.cross_entropy(T3, wf.tensor([0, 1]), wf.ones(2)), "one for each class"),
        (lambda: F.cross_entropy(T3, wf.tensor([0, 1]), label_smoothing=2.0), "from 0 to 1"),
        (lambda: F.cross_entropy(T3, wf.tensor([0, 1]), reduction="all"), "expected 'none'"),
        (lambda: F.nll_loss(T3, wf.tensor([0, 3])), "classes from 0 to 3; expected 0 to 2"),
        (lambda: F.nll_loss(T3, wf.tensor([0, -1])), "classes from -1 to 0; expected 0 to 2"),
        (lambda: F.ctc_loss(wf.ones((4, 1, 3)), wf.tensor([[1]]), [5], [1]), "expected 1 to 4"),
        (lambda: F.ctc_loss(wf.ones((4, 1, 3)), wf.tensor([[1]]), [4], [2]), "expected 0 to 1"),
        (lambda: F.ctc_loss(wf.ones((4, 1, 3)), wf.tensor([[5]]), [4], [1]), "labels from 5 to 5"),
        (lambda: F.ctc_loss(wf.ones((4, 1, 3)), wf.tensor([[1]]), [4], [1], 3), "blank 3 of 3"),
        (lambda: F.ctc_loss(wf.ones((4, 2, 3)), wf.tensor([1]), [4, 4], [1, 1]), "the sum 2"),
    ],
)
def test_arguments_that_make_no_sense(call, message):
    with pytest.raises(errors.WeftError, match=message.replace("(", r"\(").replace(")", r"\)")):
        call()
