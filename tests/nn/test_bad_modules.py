"""What is wrong with modules, layers and states is said, with what was expected."""

import numpy as np
import pytest

import weft as wf

nn, errors = wf.nn, wf.errors


def small():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def test_all_that_differs_is_in_one_error_and_nothing_is_copied():
    model = small()
    state = {n: x.numpy() + 1 for n, x in model.state_dict().items()}
    before = {n: x.tolist() for n, x in model.state_dict().items()}
    state["0.weight"] = np.zeros((4, 5))
    state["1.bias"] = np.zeros(4) * 1j
    state["1.num_batches_tracked"] = np.array(1.5)
    state["1.running_mean"] = "none"
    state["2.weight"] = state.pop("0.bias")
    state["extra"] = np.zeros(1)
    with pytest.raises(errors.StateMismatch) as caught:
        model.load_state_dict(state)
    text = caught.value.message
    for part in (
        "not one of Sequential, nothing was copied",
        "missing: 0.bias",
        "unexpected: 2.weight, extra",
        "0.weight: shape (4, 5), the module has (4, 3)",
        "1.bias: complex128, which float32 cannot hold",
        "1.num_batches_tracked: float64, which int64 cannot hold",
        "1.running_mean: a str, expected an array",
    ):
        assert part in text
    assert {n: x.tolist() for n, x in model.state_dict().items()} == before
    with pytest.raises(errors.StateMismatch, match="shape") as caught:
        model.load_state_dict(state, strict=False)
    assert "missing" not in caught.value.message


class Unbegun(nn.Module):
    def __init__(self):
        self.layer = nn.Linear(2, 2)


class Late(nn.Module):
    def __init__(self, how):
        how(self)


def test_assigning_before_the_beginning():
    for kind in (TypeError, AttributeError, errors.ModuleError):
        with pytest.raises(
            kind, match=r"Unbegun: assigning 'layer' .* call super\(\).__init__\(\)"
        ):
            Unbegun()
    with pytest.raises(errors.ModuleError, match="Late: registering 'b' before"):
        Late(lambda m: m.register_buffer("b", wf.ones(2)))
    with pytest.raises(errors.ModuleError, match="Late: calling it before"):
        Late(lambda m: None)(1)


class Silent(nn.Module):
    pass


NAMES = [
    (lambda: Silent()(wf.ones(2)), errors.ModuleError, "Silent has no forward; define"),
    (lambda: nn.ModuleList([nn.ReLU()])(1), errors.ModuleError, "ModuleList has no forward"),
    (lambda: Silent().anything, AttributeError, "'Silent' object has no attribute 'anything'"),
    (lambda: setattr(small()[0], "weight", 3), errors.ModuleError, "parameters, got a int"),
    (lambda: setattr(small(), "0", wf.ones(2)), errors.ModuleError, "one of its modules"),
    (lambda: setattr(small()[1], "running_mean", [0]), errors.ModuleError, "got a list"),
    (
        lambda: setattr(Silent(), "p", wf.ParameterDict()),
        errors.ModuleError,
        "use wf.nn.ParameterDict",
    ),
    (lambda: Silent().register_parameter("p", wf.ones(2)), errors.DTypeError, "a wf.Parameter"),
    (lambda: Silent().register_buffer("b", np.ones(2)), errors.DTypeError, "wf.asarray"),
    (lambda: Silent().add_module("m", 3), errors.DTypeError, "is a int, expected a wf.nn.Module"),
    (lambda: Silent().add_module("a.b", nn.ReLU()), errors.ArgumentError, "without dots"),
    (
        lambda: Silent().add_module("apply", nn.ReLU()),
        errors.ArgumentError,
        "attribute 'apply' already",
    ),
    (lambda: small().get_submodule("1.x"), KeyError, "1 has no module 'x', only none"),
    (lambda: small().get_parameter("0.scale"), KeyError, "weight, bias"),
    (lambda: small().get_buffer("0.weight"), KeyError, "not among the buffers of 0"),
    (lambda: small().freeze("encoder*"), errors.ArgumentError, "'encoder.' matches no parameter"),
    (lambda: small().to("int64"), errors.DTypeError, "expected a floating-point dtype"),
    (lambda: small().train("yes"), errors.DTypeError, "expected True or False"),
    (lambda: small()[2], IndexError, "index 2 is out of range for 2"),
    (lambda: nn.ModuleDict()["a"], KeyError, "no module 'a', only none"),
    (
        lambda: nn.functional_call(small(), {"0.w": wf.ones(1)}, wf.ones((2, 3))),
        errors.StateMismatch,
        "'0.w' in the state, which Sequential does not hold; it has 0.weight",
    ),
]


@pytest.mark.parametrize("call, kind, message", NAMES, ids=[m for *_, m in NAMES])
def test_names_and_parts(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_two_values_for_one_shared_tensor():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    state = {"0.weight": wf.ones((2, 2)), "1.weight": wf.zeros((2, 2))}
    with pytest.raises(errors.StateMismatch, match=r"'1\.weight' shares its tensor"):
        nn.functional_call(model, state, wf.ones(2))


SIZES = [
    (lambda: nn.Linear(-1, 2), "in_features=-1, expected an integer of 0 or more"),
    (lambda: nn.Linear(2, 2.5), "out_features=2.5"),
    (lambda: nn.Bilinear(2, 0, 2), "in2_features=0"),
    (lambda: nn.Conv2d(3, 4, 0), r"kernel_size\[0\]=0"),
    (lambda: nn.Conv2d(3, 4, (3, 3, 3)), "expected an integer, or 2 of them"),
    (lambda: nn.Conv2d(3, 4, 3, stride=-1), r"stride\[0\]=-1"),
    (lambda: nn.Conv2d(3, 4, 3, padding=-1), r"padding\[0\]=-1"),
    (lambda: nn.Conv2d(3, 4, 3, groups=2), "groups must divide both"),
    (lambda: nn.Conv2d(3, 4, 3, padding="some"), "expected 'valid' or 'same'"),
    (lambda: nn.Conv2d(3, 4, 3, 2, "same"), "use stride=1"),
    (lambda: nn.Conv2d(3, 4, 3, padding_mode="mirror"), "padding_mode='mirror', expected 'zeros'"),
    (lambda: nn.ConvTranspose2d(3, 4, 3, padding_mode="reflect"), "expected 'zeros'"),
    (lambda: nn.Embedding(0, 3), "num_embeddings=0"),
    (lambda: nn.Embedding(5, 3, padding_idx=5), "expected -5 to 4"),
    (lambda: nn.BatchNorm1d(-3), "num_features=-3"),
    (lambda: nn.GroupNorm(3, 4), "groups must divide"),
    (lambda: nn.LayerNorm((3, -1)), r"normalized_shape\[1\]=-1"),
    (lambda: nn.LSTM(3, 4, 0), "num_layers=0"),
    (lambda: nn.RNN(3, 4, nonlinearity="sin"), "expected 'tanh' or 'relu'"),
    (lambda: nn.MultiheadAttention(7, 2), "embed_dim=7 in 2 heads"),
    (lambda: nn.TransformerBlock(8, 2, activation="sin"), "expected 'relu' or 'gelu'"),
    (lambda: nn.PReLU(0), "num_parameters=0"),
    (lambda: nn.PixelShuffle(0), "upscale_factor=0"),
    (lambda: nn.GELU("fast"), "expected 'none' or 'tanh'"),
    (lambda: nn.Hardtanh(1, 0), "expected min_val < max_val"),
    (lambda: nn.Unflatten(0, (-1, -1)), "one of them -1"),
    (lambda: nn.ZeroPad2d((1, 2)), "expected an integer, or 4 of them"),
    (lambda: nn.MSELoss(reduction="most"), "MSELoss: reduction='most', expected 'none' or"),
    (lambda: nn.L1Loss(reduction="batchmean"), "reduction='batchmean'"),
]


@pytest.mark.parametrize("call, message", SIZES, ids=[m for _, m in SIZES])
def test_bad_arguments_of_layers(call, message):
    with pytest.raises(errors.ArgumentError, match=message):
        call()


@pytest.mark.parametrize("p", [-0.1, 1.1, "0.5", None, True])
@pytest.mark.parametrize(
    "make",
    [
        nn.Dropout,
        nn.Dropout2d,
        nn.AlphaDropout,
        lambda p: nn.LSTM(2, 2, dropout=p),
        lambda p: nn.MultiheadAttention(4, 2, dropout=p),
        lambda p: nn.TransformerBlock(4, 2, dropout=p),
    ],
)
def test_probabilities(make, p):
    with pytest.raises(errors.ArgumentError, match="expected a probability from 0 to 1"):
        make(p)


WIDTHS = [
    (lambda: nn.Linear(3, 2)(wf.ones((4, 5))), r"input \(4, 5\) .* weight \(2, 3\)"),
    (lambda: nn.Bilinear(3, 2, 1)(wf.ones((4, 3)), wf.ones((4, 3))), r"expected \(…, 3\) and"),
    (lambda: nn.Conv2d(3, 4, 3)(wf.ones((1, 2, 5, 5))), "2 channels"),
    (lambda: nn.BatchNorm1d(3)(wf.ones((4, 5))), "has 5 channels, expected 3"),
    (lambda: nn.BatchNorm2d(3)(wf.ones((4, 3))), "BatchNorm2d: .* expected 4 axes"),
    (lambda: nn.InstanceNorm1d(3, affine=True)(wf.ones((2, 4, 5))), "has 4 channels"),
    (lambda: nn.LSTM(3, 4)(wf.ones((5, 2, 4))), "LSTM: .* in = 3"),
    (lambda: nn.GRU(3, 4, batch_first=True)(wf.ones((5, 2, 2))), r"expected \(N, T, in\)"),
    (lambda: nn.GRUCell(3, 4)(wf.ones((5, 2))), r"expected \(N, 3\)"),
    (lambda: nn.MultiheadAttention(4, 2)(*[wf.ones((3, 2, 5))] * 3), r"of the widths \(4, 4, 4\)"),
    (
        lambda: nn.MultiheadAttention(4, 2)(*[wf.ones((3, 2, 4))] * 3, attn_mask=wf.ones((2, 2))),
        r"attn_mask of shape \(2, 2\), expected \(3, 3\) or \(4, 3, 3\)",
    ),
    (
        lambda: nn.MultiheadAttention(4, 2)(
            *[wf.ones((3, 2, 4))] * 3, key_padding_mask=wf.ones((3, 2))
        ),
        r"key_padding_mask of shape \(3, 2\), expected \(2, 3\)",
    ),
    (lambda: nn.Softmax2d()(wf.ones((2, 2))), "Softmax2d"),
    (lambda: nn.Embedding.from_pretrained(wf.ones(3)), r"expected \(rows, width\)"),
    (lambda: nn.Flatten(2, 1)(wf.ones((2, 3, 4))), "start_dim=2 comes after end_dim=1"),
    (lambda: nn.Unflatten(1, (2, -1))(wf.ones((2, 3))), "product must be 3"),
    (lambda: nn.ReflectionPad1d(1)(wf.ones(3)), "expected 2 axes"),
    (lambda: nn.Linear(3, 2).set_weights(wf.ones((3, 2))), r"expected \(2, 3\)"),
]


@pytest.mark.parametrize("call, message", WIDTHS, ids=[m for _, m in WIDTHS])
def test_inputs_that_do_not_fit(call, message):
    with pytest.raises((errors.ShapeError, errors.AxisError), match=message):
        call()


def test_statistics_of_a_batch_of_modules_cannot_be_followed():
    layer = nn.BatchNorm1d(3, affine=False)
    with pytest.raises(errors.BatchingError, match="running ones are shared"):
        wf.vmap(lambda x: layer(x))(wf.ones((2, 4, 3)))
