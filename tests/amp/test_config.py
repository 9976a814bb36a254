"""AmpConfig: every field changes what a tape does; names of operations; loss scales."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from tests.table.rows import load

import weft as wf
from weft import errors
from weft.amp import AmpConfig, Dynamic, LossScale, LossScaler, PrecisionMode, Static
from weft.amp.config import MADE_OF, rows_named
from weft.core.autocast import FUNCTIONS
from weft.ops.table import whole

from .devices import DEVICES, host

F = wf.nn.functional


def dtypes_under(config) -> dict[str, str]:
    """What some operations give inside a tape's block."""
    x = wf.ones((2, 2))
    with wf.GradientTape(amp=config):
        found = {
            "matmul": x @ x,
            "einsum": wf.einsum("ij,jk->ik", x, x),
            "softmax": wf.softmax(x.to("float16"), -1),
            "tanh": wf.tanh(x),
            "mse_loss": F.mse_loss(x.to("float16"), x.to("float16")),
        }
    return {name: y.dtype.name for name, y in found.items()}


TABLES = {
    "matmul": "float16",
    "einsum": "float16",
    "softmax": "float32",
    "tanh": "float32",
    "mse_loss": "float32",
}


class TestFields:
    def test_the_default_goes_by_the_table(self):
        assert dtypes_under(AmpConfig()) == TABLES

    def test_enabled(self):
        off = AmpConfig(enabled=False)
        assert dtypes_under(off) == TABLES | {
            "matmul": "float32",
            "einsum": "float32",
            "softmax": "float16",
            "mse_loss": "float16",
        }
        assert wf.GradientTape(amp=off).loss_scale == 1.0
        with wf.amp.autocast("bfloat16"):  # of which a config that is off says nothing
            assert dtypes_under(off)["matmul"] == "bfloat16"

    @pytest.mark.parametrize("spelled", [str.lower, str, PrecisionMode])
    def test_precision_mode(self, spelled):
        for mode in PrecisionMode:
            config = AmpConfig(precision_mode=spelled(mode.value))
            assert config.precision_mode is mode
            assert dtypes_under(config)["matmul"] == mode.value
        assert PrecisionMode.Float16 is PrecisionMode("float16")
        assert PrecisionMode.BFloat16 is PrecisionMode("bfloat16")

    def test_loss_scaler(self):
        for scaler, value in ((Dynamic(8.0), 8.0), (Static(32.0), 32.0), (None, 1.0)):
            assert wf.GradientTape(amp=AmpConfig(loss_scaler=scaler)).loss_scale == value

    def test_autocast_ops(self):
        found = dtypes_under(AmpConfig(autocast_ops=["softmax", "tanh", "mse_loss"]))
        half = dict.fromkeys(("softmax", "tanh", "mse_loss"), "float16")
        assert found == TABLES | half

    def test_keep_fp32_ops(self):
        config = AmpConfig(keep_fp32_ops=("matmul", "tanh"))
        assert dtypes_under(config) == TABLES | {"matmul": "float32"}
        with wf.GradientTape(amp=config):
            assert wf.tanh(wf.ones(2, dtype="float16")).dtype == wf.float32

    def test_the_documents_own(self):
        config = AmpConfig(
            enabled=True,
            precision_mode=PrecisionMode.Float16,
            loss_scaler=LossScaler.Dynamic(
                init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000
            ),
            autocast_ops=["matmul", "conv2d"],
            keep_fp32_ops=["softmax", "layer_norm"],
        )
        tape = wf.GradientTape.with_amp_config(config)
        x, w = wf.ones((1, 1, 3, 3)), wf.ones((1, 1, 2, 2))
        with tape:
            assert F.conv2d(x, w).dtype == wf.float16
            assert F.conv2d(x, w, wf.zeros(1)).dtype == wf.float16
            assert F.layer_norm(x.to("float16"), (3,)).dtype == wf.float32
        assert config.loss_scaler == Dynamic() and tape.loss_scale == 65536.0

    def test_frozen_and_strict(self):
        with pytest.raises(FrozenInstanceError):
            AmpConfig().enabled = False
        with pytest.raises(TypeError, match="loss_scale"):
            AmpConfig(loss_scale=2.0)
        assert AmpConfig() == AmpConfig() and hash(AmpConfig()) == hash(AmpConfig())

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"precision_mode": "half"}, "precision_mode: 'half', expected one of 'float32'"),
            ({"loss_scaler": 1024.0}, r"loss_scaler=1024.0, expected wf.amp.Dynamic\(…\)"),
            ({"autocast_ops": ["matmull"]}, "no operation 'matmull'; is it 'matmul'"),
            ({"keep_fp32_ops": ["layernorm"]}, "no operation 'layernorm'; is it 'layer_norm'"),
            ({"autocast_ops": ["zzzzzz"]}, r"no operation 'zzzzzz' \(at"),
            ({"autocast_ops": "matmul"}, "'matmul', expected a list of names"),
            (
                {"autocast_ops": ["conv2d"], "keep_fp32_ops": ["convolution"]},
                "convolution named in autocast_ops and in keep_fp32_ops",
            ),
        ],
    )
    def test_mistakes(self, fields, message):
        with pytest.raises(errors.ArgumentError, match=message):
            AmpConfig(**fields)

    def test_a_tape_takes_nothing_else(self):
        with pytest.raises(errors.DTypeError, match=r"amp is a str, expected a wf\.AmpConfig"):
            wf.GradientTape(amp="float16")


class TestNames:
    def test_all_rows_are_known(self):
        assert set(whole()) == set(load())
        assert rows_named("", list(whole()))

    def test_spellings(self):
        assert rows_named("", ["sigmoid", "neg"]) == ["expit", "negative"]

    def test_functions_are_made_of_these_rows(self):
        """Of each function's rows at least one has a mark in its graph, and no others' columns."""
        x3 = {n: wf.ones((1, 1, *(3,) * n), requires_grad=True) for n in (1, 2, 3)}
        w3 = {n: wf.ones((1, 1, *(2,) * n)) for n in (1, 2, 3)}
        x, b = wf.ones((2, 4), requires_grad=True), wf.ones(4)
        h = wf.zeros((1, 1, 1))
        calls = {
            **{f"conv{n}d": (F.__dict__[f"conv{n}d"], x3[n], w3[n]) for n in x3},
            **{
                f"conv_transpose{n}d": (F.__dict__[f"conv_transpose{n}d"], x3[n], w3[n]) for n in x3
            },
            "linear": (F.linear, x, wf.ones((4, 4)), b),
            "layer_norm": (F.layer_norm, x, (4,), b, b),
            "group_norm": (F.group_norm, x, 2, b, b),
            "instance_norm": (F.instance_norm, x3[1]),
            "rms_norm": (F.rms_norm, x, (4,)),
            "scaled_dot_product_attention": (F.scaled_dot_product_attention, *(x3[2],) * 3),
            "lstm": (F.lstm, x3[1][..., :1], (h, h), [wf.ones((4, 1))] * 2, False),
            "gru": (F.gru, x3[1][..., :1], h, [wf.ones((3, 1))] * 2, False),
        }
        assert calls.keys() == MADE_OF.keys()
        for name, (f, *args) in calls.items():
            y = f(*args)
            y = y[0] if isinstance(y, tuple) else y
            made = {entry.op for entry in wf.graph_of(y)}
            assert made & set(MADE_OF[name]), (name, made)

    def test_functions_with_columns_are_in_the_namespace(self):
        for name in FUNCTIONS:
            known = name in F.__all__ or name in wf.linalg.__all__ or name in whole()
            assert known, name

    def test_the_column_of_a_row_is_that_of_the_functions_made_of_it(self):
        x, w = wf.ones((1, 1, 4)), wf.ones((1, 1, 3))
        h = wf.zeros((1, 1, 1))
        for names, dtype in (((), wf.float16), (("conv_transpose1d", "lstm"), wf.float32)):
            with wf.amp.autocast(AmpConfig(keep_fp32_ops=names)):
                assert F.conv_transpose1d(x, w, wf.zeros(1)).dtype == dtype
                out, _, _ = F.lstm(x[..., :1], (h, h), [wf.ones((4, 1))] * 2, False)
                assert out.dtype == dtype


# -- the tape's loss scale ----------------------------------------------------------------------


def tiny(device):
    """A loss whose gradient vanishes in float16 on its way back."""
    x = wf.tensor([[1.0]], device=device)
    w = wf.tensor([[1.0]], device=device, requires_grad=True)
    return x, w


def gradient_of(config, device, factor=1e-9):
    x, w = tiny(device)
    with wf.GradientTape(amp=config) as tape:
        loss = (x @ w).to("float32").sum() * factor
    return tape, tape.gradient(loss, w)


@pytest.mark.parametrize("device", DEVICES)
class TestLossScale:
    def test_small_gradients_survive(self, device):
        _, without = gradient_of(AmpConfig(loss_scaler=None), device)
        assert without.tolist() == [[0.0]]
        for scaler in (Dynamic(), Static(65536.0)):
            tape, found = gradient_of(AmpConfig(loss_scaler=scaler), device)
            assert found.dtype == wf.float32 and not tape.overflowed
            np.testing.assert_allclose(host(found), 1e-9, rtol=2**-4)  # a subnormal's digits

    def test_the_scale_is_divided_out(self, device):
        """Powers of two change no digits."""
        config = AmpConfig(precision_mode="bfloat16", loss_scaler=Static(2.0**20))
        _, with_scale = gradient_of(config, device, 0.3)
        _, without = gradient_of(replace(config, loss_scaler=None), device, 0.3)
        assert with_scale.tolist() == without.tolist()

    def test_an_overflow_is_told_and_the_scale_backs_off(self, device):
        config = AmpConfig(loss_scaler=Dynamic(2.0**17, backoff_factor=0.25))
        tape, found = gradient_of(config, device, 1.0)
        assert tape.overflowed and not np.isfinite(host(found)).any()
        assert tape.loss_scale == 2.0**15
        tape, found = gradient_of(config, device, 1.0)  # another tape goes on from there
        assert not tape.overflowed and found.tolist() == [[1.0]]

    def test_growth(self, device):
        config = AmpConfig(loss_scaler=Dynamic(4.0, growth_factor=8.0, growth_interval=3))
        scales = [gradient_of(config, device, 1.0)[0].loss_scale for _ in range(6)]
        assert scales == [4.0, 4.0, 32.0, 32.0, 32.0, 256.0]

    def test_a_static_scale_stays(self, device):
        config = AmpConfig(loss_scaler=Static(2.0**17))
        tape, _ = gradient_of(config, device, 1.0)
        assert tape.overflowed and tape.loss_scale == 2.0**17

    def test_targets_sources_and_cotangents(self, device):
        x, w = tiny(device)
        other = wf.ones(1, device=device, requires_grad=True)
        with wf.GradientTape(amp=AmpConfig(loss_scaler=Static(8.0))) as tape:
            y = x @ w
            losses = [(y * 2.0).sum(), (y * 3.0).sum()]
        seeds = [wf.tensor(1.0, device=device, dtype=t.dtype) * k for k, t in enumerate(losses)]
        found = tape.gradient(losses, [w, other], seeds)
        assert found[0].tolist() == [[3.0]] and found[1] is None

    def test_second_order_on_a_persistent_tape(self, device):
        x = wf.tensor(3.0, device=device, requires_grad=True)
        with wf.GradientTape(persistent=True, amp=AmpConfig(loss_scaler=Static(64.0))) as tape:
            y = x**3
            first = tape.gradient(y, x)
        assert first.item() == 27.0 and tape.gradient(first, x).item() == 18.0

    def test_a_half_target_beyond_whose_range_the_scale_is(self, device):
        x = wf.tensor(1.0, device=device, dtype="float16", requires_grad=True)
        config = AmpConfig()
        with wf.GradientTape(amp=config) as tape:
            y = x * 2.0
        assert tape.gradient(y, x).item() == np.inf and tape.loss_scale == 32768.0
        with wf.GradientTape(amp=config) as tape:
            y = x * 0.5
        assert tape.gradient(y, x).item() == 0.5


class TestScales:
    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: Dynamic(0.0), "init_scale=0.0, expected a number > 0"),
            (lambda: Dynamic(True), "init_scale=True"),
            (lambda: Dynamic(np.inf), "init_scale=inf"),
            (lambda: Dynamic(growth_factor=1.0), "one above and one below 1"),
            (lambda: Dynamic(backoff_factor=1.0), "one above and one below 1"),
            (lambda: Dynamic(growth_interval=0), "growth_interval=0"),
            (lambda: Dynamic(growth_interval=1.5), "expected a whole number"),
            (lambda: Static(-1.0), "scale=-1.0"),
        ],
    )
    def test_mistakes(self, make, message):
        with pytest.raises(errors.ArgumentError, match=message):
            make()

    def test_the_running_scale_is_saved(self):
        config = AmpConfig(loss_scaler=Dynamic(4.0, growth_interval=3))
        config.scale.update(False)
        config.scale.update(False)
        saved = config.scale.state_dict()
        again = AmpConfig(loss_scaler=Dynamic(64.0, growth_interval=5))
        again.scale.load_state_dict(saved)
        again.scale.update(False)
        assert again.scale.value == 8.0 and again.loss_scaler.init_scale == 64.0
        with pytest.raises(errors.StateMismatch, match="missing: growth_factor"):
            again.scale.load_state_dict(LossScale(Static(2.0)).state_dict())
