"""002 TenfloweRS Autograd: Comprehensive Guide, mixed precision.

Sections: 2. Mixed Precision Training; `AmpConfig`.
A tape casts what its block computes, so the document's program needs a `with`.
"""

import dataclasses

from expect import refusal

import weft as wf
from weft import GradientTape, errors
from weft.amp import AmpConfig, LossScaler, PrecisionMode
from weft.nn import functional as F

AMP_CONFIG = AmpConfig(
    enabled=True,
    precision_mode=PrecisionMode.Float16,
    loss_scaler=LossScaler.Dynamic(
        init_scale=65536.0,
        growth_factor=2.0,
        backoff_factor=0.5,
        growth_interval=2000,
    ),
    autocast_ops=["matmul", "conv2d"],
    keep_fp32_ops=["softmax", "layer_norm"],
)


def casts_where_safe():
    x, image = wf.randn((4, 4)), wf.randn((1, 1, 5, 5))
    with GradientTape.with_amp_config(AMP_CONFIG):
        made = (x.matmul(x), F.conv2d(image, wf.ones((1, 1, 3, 3))))
        kept = (F.softmax(made[0], -1), F.layer_norm(made[0], 4))
    assert [y.dtype for y in made] == [wf.float16] * 2
    assert [y.dtype for y in kept] == [wf.float32] * 2
    assert x.matmul(x).dtype == wf.float32, "after the block"


def scaling_prevents_underflow():
    """2⁻²⁶ is below the smallest float16, 2⁻²⁴; the sweep carries it times the loss scale."""
    grads = []
    for scaler in (None, LossScaler.Dynamic(init_scale=1024.0)):
        config = dataclasses.replace(AMP_CONFIG, loss_scaler=scaler)
        w = wf.tensor([[1.0]])
        with GradientTape.with_amp_config(config) as tape:
            tape.watch(w)
            loss = (wf.tensor([[2.0**-13]]).matmul(w) * 2.0**-13).sum()
        (grad,) = tape.gradient([loss], [w])
        assert grad.dtype == wf.float32 and not tape.overflowed
        grads.append(grad.item())
    assert grads == [0.0, 2.0**-26]


def an_overflow_backs_off():
    config = AmpConfig(loss_scaler=LossScaler.Dynamic(init_scale=65536.0, growth_interval=2))
    scales = []
    for size in (1.0, 16.0, 1e-3, 1e-3):
        w = wf.ones((2, 2))
        with GradientTape(amp=config) as tape:
            tape.watch(w)
            loss = (w.matmul(wf.full((2, 2), size))).sum()
        tape.gradient([loss], [w])
        scales.append((tape.overflowed, tape.loss_scale))
    assert scales == [(True, 32768.0), (True, 16384.0), (False, 16384.0), (False, 32768.0)]


def amp_config():
    fields = {f.name for f in dataclasses.fields(AmpConfig)}
    assert fields == {"enabled", "precision_mode", "loss_scaler", "autocast_ops", "keep_fp32_ops"}
    assert AmpConfig(precision_mode="bfloat16").precision_mode is PrecisionMode.BFloat16
    with refusal(TypeError, "bogus"):
        AmpConfig(bogus=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with refusal(errors.ArgumentError, "matmull", "matmul"):
        AmpConfig(autocast_ops=["matmull"])

    x = wf.ones((2, 2))
    for config, dtype in (
        (AmpConfig(), wf.float16),
        (AmpConfig(enabled=False), wf.float32),
        (AmpConfig(precision_mode="bfloat16"), wf.bfloat16),
        (AmpConfig(keep_fp32_ops=["matmul"]), wf.float32),
    ):
        with GradientTape(amp=config):
            assert x.matmul(x).dtype == dtype
    with GradientTape(amp=AmpConfig(autocast_ops=["exp"])):
        assert x.exp().dtype == wf.float16
    assert GradientTape(amp=AmpConfig()).loss_scale == 65536.0
    assert GradientTape(amp=AmpConfig(loss_scaler=None)).loss_scale == 1.0


def main():
    wf.random.seed(0)
    casts_where_safe()
    scaling_prevents_underflow()
    an_overflow_backs_off()
    amp_config()


if __name__ == "__main__":
    main()
