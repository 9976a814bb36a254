"""PyTorch's own samples of its modules, in ours: forward, all gradients, running statistics."""

import warnings
from itertools import product

import numpy as np
import pytest
import torch

import weft as wf

from .beside_torch import close
from .modules_of_torch import compare, listed, ours, pair, tolerance
from .modules_of_torch import tensors as tensors_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_modules import module_db

INFOS = {i.name.removeprefix("nn."): i for i in module_db if "." not in i.name.removeprefix("nn.")}
NAMES = sorted(n for n in INFOS if hasattr(wf.nn, n))
# What PyTorch has samples of and we have no layer for.
ABSENT = {
    *("FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d", "LPPool3d"),
    *("LazyConv1d", "LazyConv2d", "LazyConv3d", "LocalResponseNorm"),
    *("LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d"),
    *("LinearCrossEntropyLoss", "MultiLabelMarginLoss", "MultiMarginLoss"),
    *("MultiLabelSoftMarginLoss", "Transformer", "TransformerDecoderLayer"),
}


def samples(name: str, dtype: torch.dtype, training: bool):
    """PyTorch's samples of a module, those for this device and dtype."""
    torch.manual_seed(0)
    info = INFOS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = info.module_inputs_func(
            info, device="cpu", dtype=dtype, requires_grad=True, training=training
        )
    return listed(made)


def test_what_is_absent_is_known():
    assert set(INFOS) - set(NAMES) == ABSENT


def is_left_out(name: str, call) -> bool:
    """Samples of what we do not have, or decided otherwise."""
    args, kwargs = call.called
    if kwargs.pop("proj_size", 0) or call.made[1].pop("proj_size", 0):
        return True
    if name in ("Softmax", "Softmin", "LogSoftmax"):
        return args[0].ndim == 0  # an axis of a number, which has none
    if name in ("CrossEntropyLoss", "NLLLoss"):  # a mean over no targets: theirs is NaN, ours 0
        ignored = call.made[1].get("ignore_index")
        return ignored is not None and bool((args[1] == ignored).all())
    return False


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")  # of PyTorch's kl_div
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", [n for n in NAMES if n != "CTCLoss"])
def test_the_samples_of_torch(name, dtype, training):
    tried = 0
    for call in samples(name, dtype, training):
        if not is_left_out(name, call):
            mine, theirs = pair(name, *call.made, training, dtype)
            compare(mine, theirs, *call.called, tolerance(dtype))
            tried += 1
    assert tried


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_ctc_of_logits(dtype):
    """PyTorch's gradient is that of logits before a log-softmax; so it must be in front."""
    for call in samples("CTCLoss", dtype, True):
        mine, theirs = pair("CTCLoss", *call.made, True, dtype)
        ours_ = wf.nn.Module()
        ours_.forward = lambda x, *rest, loss=mine: loss(wf.nn.LogSoftmax(-1)(x), *rest)
        them = torch.nn.Module()
        them.forward = lambda x, *rest, loss=theirs: loss(x.log_softmax(-1), *rest)
        frames = call.called[0][0].shape[0]  # through whose logarithms the errors add up
        compare(ours_, them, *call.called, tolerance(dtype) * frames)


CONV = [
    dict(zip(("stride", "padding", "dilation", "groups", "bias"), options, strict=True))
    for options in product((1, 2), (0, 1, "same"), (1, 2), (1, 2), (True, False))
    if not (options[0] == 2 and options[1] == "same")
]
BORDERS = [
    {"padding_mode": m, "padding": p}
    for m in ("reflect", "replicate", "circular")
    for p in (2, "same", "valid")
]
SIZES = {1: (9,), 2: (7, 6), 3: (5, 4, 5)}


def volumes(axes: int, channels: int, batch: bool = True) -> torch.Tensor:
    torch.manual_seed(1)
    shape = (*(2,) * batch, channels, *SIZES[axes])
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_convolutions_in_every_combination(axes):
    kernel = (3, 2, 2)[:axes]
    for options in CONV + BORDERS:
        how = options | {"kernel_size": kernel}
        mine, theirs = pair(f"Conv{axes}d", (4, 6), how, True, torch.float64)
        for batch in (True, False):
            compare(mine, theirs, (volumes(axes, 4, batch),), {}, tolerance(torch.float64))


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_transposed_convolutions_in_every_combination(axes):
    kernel = (3, 2, 2)[:axes]
    grid = product((1, 2), (0, 1), (0, 1), (1, 2), (1, 2), (True, False))
    names = ("stride", "padding", "output_padding", "groups", "dilation", "bias")
    for options in grid:
        how = dict(zip(names, options, strict=True)) | {"kernel_size": kernel}
        if how["output_padding"] < max(how["stride"], how["dilation"]):
            mine, theirs = pair(f"ConvTranspose{axes}d", (4, 6), how, True, torch.float64)
            compare(mine, theirs, (volumes(axes, 4),), {}, tolerance(torch.float64))


def test_the_size_of_a_transposed_convolution_can_be_asked_for():
    mine, theirs = pair("ConvTranspose2d", (4, 6, 3), {"stride": 3}, True, torch.float64)
    for size in ((22, 19), (21, 18)):
        compare(mine, theirs, (volumes(2, 4),), {"output_size": size}, tolerance(torch.float64))
    with pytest.raises(wf.errors.ArgumentError, match=r"output_size \(30, 19\) .* \(21, 18\) to"):
        mine(wf.ones((2, 4, 7, 6)), output_size=(30, 19))


MORE = [
    ("Flatten", (), {}, (2, 3, 4, 5)),
    ("Flatten", (0, 1), {}, (2, 3, 4)),
    ("Unflatten", (1, (2, -1)), {}, (3, 6, 2)),
    ("Identity", (54,), {"unused": 1}, (2, 3)),
    ("PixelShuffle", (2,), {}, (2, 8, 3, 3)),
    ("PixelUnshuffle", (2,), {}, (2, 2, 4, 6)),
    ("Upsample", (), {"scale_factor": 2}, (2, 3, 4, 5)),
    ("Upsample", ((7, 3),), {"mode": "bilinear", "align_corners": True}, (2, 3, 4, 5)),
    (
        "Upsample",
        (None, 1.7, "bilinear"),
        {"recompute_scale_factor": True},
        (2, 3, 4, 5),
    ),
    ("Unfold", (2,), {"padding": 1, "stride": 2}, (2, 3, 6, 6)),
    ("Fold", ((5, 5), 2), {}, (2, 12, 16)),
    ("Hardsigmoid", (), {}, (4, 5)),
    ("Dropout2d", (0.5,), {}, (2, 3, 4, 4)),
    ("BatchNorm1d", (3,), {"momentum": None}, (5, 3)),
    ("BatchNorm2d", (3,), {"track_running_stats": False}, (5, 3, 2, 2)),
    ("InstanceNorm2d", (3,), {"affine": True, "track_running_stats": True}, (3, 4, 4)),
    ("LayerNorm", ((3, 4),), {"bias": False}, (2, 3, 4)),
    ("RNN", (3, 4, 2, "relu"), {"bidirectional": True, "batch_first": True}, (2, 5, 3)),
]


@pytest.mark.parametrize("case", MORE, ids=lambda c: c[0])
def test_what_torch_has_no_samples_of(case):
    name, args, kwargs, shape = case
    torch.manual_seed(2)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    # PyTorch's slope of hardsigmoid is 1/6 rounded to float32 in every dtype.
    rtol = tolerance(torch.float32 if name == "Hardsigmoid" else torch.float64)
    for training in (True, False) if "Dropout" not in name else (False,):
        mine, theirs = pair(name, args, kwargs, training, torch.float64)
        for _ in range(2):  # running statistics follow both
            compare(mine, theirs, (x,), {}, rtol)


LOSSES = [
    ("TripletMarginLoss", {"margin": 0.5, "swap": True, "p": 3.0}, 3),
    ("TripletMarginLoss", {"eps": 0.1, "reduction": "none"}, 3),
    ("CosineSimilarity", {"dim": -1, "eps": 0.5}, 2),
    ("PairwiseDistance", {"p": 1.5, "eps": 0.1, "keepdim": True}, 2),
]


@pytest.mark.parametrize("case", LOSSES, ids=lambda c: c[0])
def test_losses_of_several_inputs(case):
    name, kwargs, count = case
    torch.manual_seed(3)
    xs = [torch.randn(4, 5, dtype=torch.float64, requires_grad=True) for _ in range(count)]
    compare(*pair(name, (), kwargs, True, torch.float64), tuple(xs), {}, tolerance(torch.float64))


def attention_masks(source: int):
    torch.manual_seed(4)
    seen = torch.rand(4, source) < 0.3
    seen[:, 0] = False  # every query sees something
    late = torch.zeros(3, source, dtype=torch.bool)
    late[1, -2:] = True
    numbers = torch.randn(6, 4, source, dtype=torch.float64, requires_grad=True)
    return [
        {},
        {"attn_mask": seen},
        {"attn_mask": numbers},
        {"key_padding_mask": late},
        {"attn_mask": numbers, "key_padding_mask": late.double() * -2.0},
        {"attn_mask": seen, "key_padding_mask": late, "need_weights": False},
        {"need_weights": False},
        {"average_attn_weights": False},
    ]


@pytest.mark.filterwarnings("ignore:Support for mismatched")
@pytest.mark.parametrize(
    "options",
    [{}, {"add_bias_kv": True}, {"add_zero_attn": True, "bias": False}, {"kdim": 5, "vdim": 3}],
    ids=str,
)
@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_between_sequences(options, batch_first):
    how = options | {"batch_first": batch_first}
    mine, theirs = pair("MultiheadAttention", (8, 2), how, True, torch.float64)
    widths = (8, options.get("kdim", 8), options.get("vdim", 8))
    for call in attention_masks(6):
        shapes = [(4, 3, widths[0]), *((6, 3, w) for w in widths[1:])]
        shapes = [(n, t, w) if batch_first else (t, n, w) for t, n, w in shapes]
        xs = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
        compare(mine, theirs, tuple(xs), call, tolerance(torch.float64))


def test_causal_attention_needs_no_mask_of_its_own():
    mine, theirs = pair("MultiheadAttention", (8, 2), {"batch_first": True}, True, torch.float64)
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    late = torch.zeros(3, 5, dtype=torch.bool)
    late[0, 3:] = True
    for need, padding in product((True, False), (None, late)):
        expected = theirs(
            x,
            x,
            x,
            attn_mask=mask,
            key_padding_mask=None if padding is None else padding.double() * -1e300,
            need_weights=need,
        )[0]
        mine_x = ours(x)
        y = mine(
            mine_x,
            mine_x,
            mine_x,
            is_causal=True,
            need_weights=need,
            key_padding_mask=ours(padding),
        )[0]
        close(y.detach().numpy(), expected.detach().numpy(), tolerance(torch.float64))


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_causal_block(norm_first, activation):
    options = {"activation": activation, "norm_first": norm_first, "batch_first": True}
    mine, theirs = pair("TransformerEncoderLayer", (8, 2, 16), options, True, torch.float64)
    x = torch.randn(3, 5, 8, dtype=torch.float64, requires_grad=True)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    compare(mine, theirs, (x,), {"src_mask": mask}, tolerance(torch.float64))
    expected = theirs(x, src_mask=mask).detach().numpy()
    mine.is_causal = True
    close(mine(ours(x)).detach().numpy(), expected, tolerance(torch.float64))
    free = theirs(x).detach().numpy()
    close(mine(ours(x), is_causal=False).detach().numpy(), free, tolerance(torch.float64))


def test_embeddings_are_shortened():
    options = {"max_norm": 0.7, "norm_type": 3.0, "padding_idx": -1}
    mine, theirs = pair("Embedding", (6, 4), options, True, torch.float64)
    assert not mine.weight.detach().numpy()[-1].any()
    i = torch.tensor([[0, 2, 5], [2, 2, 3]])
    compare(mine, theirs, (i,), {}, tolerance(torch.float64))
    close(mine.weight.detach().numpy(), theirs.weight.detach().numpy(), 1e-12)
    table = np.random.default_rng(0).standard_normal((5, 3))
    frozen = wf.nn.Embedding.from_pretrained(table)
    assert not frozen.weight.requires_grad and frozen.weight.tolist() == table.tolist()
    assert wf.nn.Embedding.from_pretrained(table, freeze=False).weight.requires_grad


def test_a_model_has_the_names_of_torchs():
    def build(nn):
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Flatten(2),
            nn.Linear(16, 12),
            nn.TransformerEncoder(
                nn.TransformerEncoderLayer(12, 3, 24, 0.0, batch_first=True), 2, nn.LayerNorm(12)
            ),
            nn.ModuleDict({"rnn": nn.LSTM(12, 5, 2, bidirectional=True)})["rnn"],
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = build(torch.nn).double()
    mine = build(wf.nn).double()
    assert list(mine.state_dict()) == list(theirs.state_dict())
    for ours_, them in (
        (mine.parameters(), theirs.parameters()),
        (mine.buffers(), theirs.buffers()),
    ):
        assert [p.shape for p in ours_] == [tuple(p.shape) for p in them]
    assert [n for n, _ in mine.named_modules()][:8] == [n for n, _ in theirs.named_modules()][:8]
    mine.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    compare(mine, theirs, (x,), {}, 4 * tolerance(torch.float64))


ON_TORCH = [
    ("Linear", (4, 3), {}, (2, 4)),
    ("Conv2d", (4, 6, 3), {"padding_mode": "circular", "padding": 1}, (2, 4, 5, 5)),
    ("BatchNorm2d", (4,), {"momentum": None}, (2, 4, 5, 5)),
    ("LSTM", (4, 3), {"num_layers": 2, "bidirectional": True}, (5, 2, 4)),
    ("GRUCell", (4, 3), {}, (2, 4)),
    ("TransformerEncoderLayer", (4, 2, 8, 0.0), {"is_causal": True}, (5, 2, 4)),
    ("LoRALinear", (4, 3, 2), {}, (5, 4)),
]


@pytest.mark.parametrize("case", ON_TORCH, ids=lambda c: c[0])
def test_layers_are_the_same_on_torch(case):
    name, args, options, shape = case
    here = getattr(wf.nn, name)(*args, dtype="float64", **options)
    there = getattr(wf.nn, name)(*args, dtype="float64", device="torch", **options)
    assert {x.device for x in (*there.parameters(), *there.buffers())} == {"torch"}
    there.load_state_dict(here.state_dict())
    x = np.random.default_rng(0).standard_normal(shape)
    found = []
    for model in (here, there):
        given = wf.tensor(x, device=next(model.parameters()).device, requires_grad=True)
        y = tensors_of(model(given))[0]
        grads = (y * y).sum().backward()
        tracked = [given, *(p for p in model.parameters() if p.requires_grad)]
        found.append([y.detach(), *(grads[p] for p in tracked), *model.buffers()])
    for a, b in zip(*found, strict=True):
        assert b.device == "torch"
        unit = torch.float32 if a.dtype == wf.float32 else torch.float64  # an adapter's gradient
        close(b.to("cpu").numpy(), a.numpy(), tolerance(unit))
