"""Summaries: operations as PyTorch counts them, bytes as the graph keeps them."""

import gc

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import weft as wf
from weft.core.node import Node
from weft.transform.modes.inspect import arrays_in

nn = wf.nn


def torch_flops(model, *args) -> int:
    with FlopCounterMode(display=False) as counter:
        model(*args)
    return counter.get_total_flops()


CONTRACTIONS = [
    ("Linear", (5, 7, False), (4, 3, 5)),
    ("Conv1d", (4, 6, 3, 2, 1, 1, 2, False), (2, 4, 9)),
    ("Conv2d", (4, 6, (3, 2), 1, 1, 2, 1, False), (2, 4, 9, 8)),
    ("Conv3d", (2, 4, 2, 1, 0, 1, 1, False), (2, 2, 4, 4, 4)),
    ("ConvTranspose2d", (4, 6, 3, 2, 0, 0, 2, False), (2, 4, 5, 5)),
]


@pytest.mark.parametrize("name, args, shape", CONTRACTIONS, ids=[c[0] for c in CONTRACTIONS])
def test_contractions_are_counted_as_by_torch(name, args, shape):
    found = nn.summary(getattr(nn, name)(*args), wf.randn(shape))
    assert found.flops == torch_flops(getattr(torch.nn, name)(*args), torch.randn(shape))
    assert found.flops > 0


def test_attention_is_counted_as_by_torch():
    def used(nn, x):
        return nn.functional.scaled_dot_product_attention(x, x, x)

    class Attend(nn.Module):
        def forward(self, x):
            return used(nn, x)

    shape = (2, 3, 5, 4)
    found = nn.summary(Attend(), wf.randn(shape))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        q = torch.randn(shape)
        s = torch.softmax(q @ q.mT, -1) @ q
    assert found.flops == counter.get_total_flops() and s.shape == shape


def test_other_rows_count_their_elements():
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Softmax(-1), nn.Flatten(0))
    s = nn.summary(model, wf.randn((3, 4)))
    assert [r.flops for r in s.rows] == [0, 3 * 8 * (2 * 4 + 1), 24, 24, 0]
    assert s.flops == sum(r.flops for r in s.rows)


class Net(nn.Module):
    """Modules in modules, one called twice and one never; work of its own."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
        self.tail = nn.Linear(4, 2)
        self.unused = nn.Linear(3, 3)
        self.tail.weight.requires_grad_(False)

    def forward(self, x):
        y = self.body(self.body(x))
        return self.tail(wf.exp(y)), None


def test_rows_say_what_each_module_is_and_does():
    s = nn.summary(Net(), wf.randn((6, 4)))
    assert [(r.name, r.class_name) for r in s.rows] == [
        ("", "Net"),
        ("body", "Sequential"),
        ("body.0", "Linear"),
        ("body.1", "BatchNorm1d"),
        ("body.2", "Dropout"),
        ("tail", "Linear"),
        ("unused", "Linear"),
    ]
    with pytest.raises(KeyError, match=r"no module 'head', only body, body\.0"):
        s["head"]
    assert s[""].output_shape == ((6, 2), None) and s["body"].output_shape == (6, 4)
    assert s["unused"].output_shape is None and s["unused"].flops == 0
    assert s[""].flops == 24 and s["body.0"].flops == 2 * 6 * 4 * 9
    assert (s["tail"].parameters, s["tail"].trainable) == (10, 2)
    assert s.parameters == sum(p.size for p in Net().parameters())
    assert s.trainable == s.parameters - 8


def test_shared_parameters_count_once():
    one, two = nn.Linear(3, 3), nn.Linear(3, 3)
    two.weight = one.weight
    s = nn.summary(nn.Sequential(one, two), wf.randn((2, 3)))
    assert s.parameters == 15 and s["1"].parameters == 3


@pytest.mark.parametrize(
    "build, shape",
    [
        (Net, (6, 4)),
        (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2)), (2, 3, 8, 8)),
        (lambda: nn.TransformerBlock(8, 2, 16, batch_first=True), (2, 5, 8)),
        (lambda: nn.GRU(4, 3, 2), (5, 2, 4)),
    ],
    ids=["net", "cnn", "transformer", "gru"],
)
def test_bytes_are_those_that_the_graph_keeps(build, shape, no_graphs):
    model, x = build(), wf.randn(shape)
    s = nn.summary(model, x)
    wf.random.seed(0)
    before = wf.memory_stats().bytes
    out = model(x)
    kept = wf.memory_stats().bytes - before
    own = {memory(p._data): p.nbytes for p in model.parameters()}
    saved = {memory(raw) for node in nodes() for raw in arrays_in(node.saved)}
    assert out is not None
    assert s.activation_bytes == kept - sum(n for at, n in own.items() if at in saved)


def memory(raw: np.ndarray) -> int:
    """Where the memory of an array is."""
    while raw.base is not None:
        raw = raw.base
    return id(raw)


def nodes() -> list[Node]:
    return [n for n in gc.get_objects() if type(n) is Node]


def test_checkpoints_keep_less():
    class Replayed(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return wf.checkpoint(self.inner, x)

    inner = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
    x = wf.randn((10, 8))
    assert nn.summary(Replayed(inner), x).activation_bytes == 10 * 8 * 4
    assert nn.summary(inner, x).activation_bytes > 2 * 10 * 8 * 4


def test_a_summary_changes_nothing():
    model, x = Net(), wf.randn((6, 4))
    seen = []
    model.register_forward_hook(lambda m, args, out: seen.append(out))
    state = {n: v.tolist() for n, v in model.state_dict().items()}
    before = wf.random.get_state()
    with wf.no_grad():
        s = nn.summary(model, x)
    assert s.activation_bytes > 0  # also where nothing would be recorded
    assert wf.random.get_state() == before
    assert {n: v.tolist() for n, v in model.state_dict().items()} == state
    assert len(seen) == 2 and len(model._forward_hooks) == 1 and not model.body._forward_hooks
    assert all(p.grad is None for p in model.parameters())


def test_the_table():
    text = str(nn.summary(Net(), wf.randn((6, 4))))
    lines = text.splitlines()
    assert lines[0].split() == [
        "layer",
        "output",
        "parameters",
        "trainable",
        "flops",
        "activations",
    ]
    assert lines[2].split()[:3] == ["Net", "6×2,", "None"]
    assert lines[4].startswith("    0: Linear") and "432" in lines[4]
    assert lines[-1].split()[:3] == ["total", "50", "42"]
    assert max(map(len, lines)) <= 100


def test_words_and_keywords_go_in():
    model = nn.Sequential(nn.Embedding(10, 4))
    assert nn.summary(model, wf.tensor([[1, 2, 3]])).rows[1].output_shape == (1, 3, 4)
    attention = nn.MultiheadAttention(4, 2)
    x = wf.randn((5, 2, 4))
    s = nn.summary(attention, x, x, x, need_weights=False)
    assert s[""].output_shape == ((5, 2, 4), None)
