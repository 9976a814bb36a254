"""Autocast on every path of an operation, and under every transformation."""

import numpy as np
import pytest

import weft as wf
from weft.ops.contract import matmul as matmul_rule
from weft.ops.elementwise import exp as exp_rule

from .devices import DEVICES, host

F = wf.nn.functional


def matrices(device="cpu", dtype="float32", grad=True):
    rng = np.random.default_rng(0)
    x = wf.tensor(rng.standard_normal((5, 3)), dtype=dtype, device=device)
    w = wf.tensor(rng.standard_normal((3, 4)), dtype=dtype, device=device, requires_grad=grad)
    return x, w


def drawn(rng, shape, device):
    return wf.tensor(rng.standard_normal(shape), dtype="float32", device=device)


def net(x, w):
    return wf.exp(wf.tanh(x @ w)).sum()


def by_hand(x, w, low):
    """What autocast makes of `net`."""
    return wf.exp(wf.tanh(x.to(low) @ w.to(low)).to("float32")).sum()


# -- values, gradients and transformations ------------------------------------------------------


@pytest.mark.parametrize("low", ["bfloat16", "float16"])
@pytest.mark.parametrize("device", DEVICES)
class TestTransformations:
    def test_backward(self, device, low):
        x, w = matrices(device)
        with wf.amp.autocast(low):
            y = x @ w
            loss = net(x, w)
        assert y.dtype.name == low and loss.dtype == wf.float32
        found, wanted = loss.backward()[w], by_hand(x, w, low).backward()[w]
        assert found.dtype == wf.float32 and found.tolist() == wanted.tolist()

    def test_backward_inside_the_block_is_the_same(self, device, low):
        x, w = matrices(device)
        with wf.amp.autocast(low):
            inside = net(x, w).backward()[w]
        assert inside.tolist() == by_hand(x, w, low).backward()[w].tolist()

    def test_rules_without_a_pull_back(self, device, low):
        """Their pull-back records the push-forward: autocast has no part in it."""
        x = wf.tensor([[2.0, 1.0], [1.0, 3.0]], device=device, requires_grad=True)
        with wf.amp.autocast(low):
            inside = wf.linalg.expm(x @ x).sum().backward()[x]
        low_product = (x.to(low) @ x.to(low)).to("float32")
        assert inside.tolist() == wf.linalg.expm(low_product).sum().backward()[x].tolist()

    def test_second_order(self, device, low):
        x, w = matrices(device)

        def penalty(loss):
            g = loss.backward(create_graph=True)[w]
            return (g * g).sum().backward()[w]

        with wf.amp.autocast(low):
            inside = penalty(net(x, w))
        assert inside.dtype == wf.float32
        with wf.amp.autocast(low):
            loss = net(x, w)
        assert penalty(loss).tolist() == inside.tolist()

    def test_functions(self, device, low):
        x, w = matrices(device, grad=False)
        v = wf.ones_like(w)
        with wf.amp.autocast(low):
            g = wf.grad(lambda w: net(x, w))(w)
            y, t = wf.jvp(lambda w: net(x, w), (w,), (v,))
            value, pull = wf.vjp(lambda w: net(x, w), w)
            hv = wf.hvp(lambda w: net(x, w), (w,), (v,))[1]
            z, push = wf.linearize(lambda w: net(x, w), w)
            pushed = push(v)
            pulled = pull(wf.ones_like(value))[0]
        expected = wf.grad(lambda w: by_hand(x, w, low))(w)
        assert g.tolist() == pulled.tolist() == expected.tolist()
        assert y.item() == z.item() == value.item() == by_hand(x, w, low).item()
        by_jvp = wf.jvp(lambda w: by_hand(x, w, low), (w,), (v,))[1].item()
        assert t.item() == by_jvp and t.dtype == wf.float32
        assert pushed.item() == pytest.approx(by_jvp, rel=1e-6) and pushed.dtype == wf.float32
        assert hv.dtype == wf.float32
        by_hvp = wf.hvp(lambda w: by_hand(x, w, low), (w,), (v,))[1]
        np.testing.assert_array_equal(host(hv), host(by_hvp))

    def test_vmap_and_per_sample_gradients(self, device, low):
        x, w = matrices(device, grad=False)
        with wf.amp.autocast(low):
            rows = wf.vmap(lambda r: r @ w)(x)
            each = wf.vmap(wf.grad(lambda w, r: net(r, w)), in_axes=(None, 0))(w, x)
        assert rows.dtype.name == low
        assert rows.tolist() == (x.to(low) @ w.to(low)).tolist()
        assert each.dtype == wf.float32 and each.shape == (5, 3, 4)
        for g, r in zip(each, x, strict=True):
            one = wf.grad(lambda w, r=r: by_hand(r, w, low))(w)
            eps = {"bfloat16": 2**-8, "float16": 2**-11}[low]
            np.testing.assert_allclose(host(g), host(one), rtol=4 * eps, atol=4 * eps)

    @pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
    def test_jacobians(self, device, low, mode):
        x, w = matrices(device, grad=False)

        def f(w):
            return wf.exp(x @ w).sum(0)

        with wf.amp.autocast(low):
            found = wf.jacobian(f, mode=mode, verify=True)(w)
            hessian = wf.hessian(lambda w: f(w).sum())(w)
        assert found.dtype == hessian.dtype == wf.float32

        def hand(w):
            return wf.exp((x.to(low) @ w.to(low)).to("float32")).sum(0)

        eps = {"bfloat16": 2**-8, "float16": 2**-11}[low]
        expected = host(wf.jacobian(hand, mode=mode)(w))
        scale = np.abs(expected).max()
        np.testing.assert_allclose(host(found), expected, rtol=0, atol=eps * scale)
        expected = host(wf.hessian(lambda w: hand(w).sum())(w))
        np.testing.assert_allclose(
            host(hessian), expected, rtol=0, atol=4 * eps * np.abs(expected).max()
        )

    def test_a_jacobian_through_a_cut_is_multiplied_in_full(self, device, low):
        rng = np.random.default_rng(4)
        narrow, wide = drawn(rng, (2, 40), device), drawn(rng, (40, 2), device)
        x = drawn(rng, (40,), device)

        def f(x):
            """Without products that autocast would cast."""
            return (wide * wf.sin((narrow * x).sum(1))).sum(1)

        with wf.amp.autocast(low):
            found = wf.jacobian(f, mode="mixed")(x)
        assert found.tolist() == wf.jacobian(f, mode="mixed")(x).tolist()

    def test_tangents_of_tracked_tensors_have_the_values_dtype(self, device, low):
        """The rule of erf has an exponential, which autocast alone would compute in float32."""
        x, w = matrices(device)
        with wf.amp.autocast(low):
            y, push = wf.linearize(lambda w: wf.special.erf(x @ w), w)
            pushed = push(wf.ones_like(w))
            both = wf.jvp(lambda w: wf.special.erf(x @ w), (w,), (wf.ones_like(w),))
        assert (
            y.dtype == pushed.dtype == both[0].dtype == both[1].dtype == wf.ones(0, dtype=low).dtype
        )
        assert pushed.tolist() == both[1].tolist()

    def test_a_mask_has_the_gradient_of_its_own_dtype(self, device, low):
        q = drawn(np.random.default_rng(5), (1, 1, 3, 4), device)
        mask = wf.zeros((3, 3), device=device, requires_grad=True)
        with wf.amp.autocast(low):
            y = F.scaled_dot_product_attention(q, q, q, mask)
        for options in ({"retain_graph": True}, {"create_graph": True}):
            assert y.sum().backward(**options)[mask].dtype == wf.float32

    def test_tape_jacobian(self, device, low):
        x, w = matrices(device)
        with wf.amp.autocast(low), wf.GradientTape(persistent=True) as tape:
            tape.watch(w)
            y = wf.exp(x @ w).sum(0)
            inside = tape.jacobian(y, w)
        assert inside.dtype == wf.float32
        assert inside.tolist() == tape.jacobian(y, w).tolist()

    def test_checkpoint_replays_under_the_settings_of_the_first_run(self, device, low):
        x, w = matrices(device)

        def layer(w):
            return wf.exp(F.dropout(wf.tanh(x @ w), 0.5))

        wf.random.seed(1)
        with wf.amp.autocast(low):
            loss = wf.checkpoint(layer, w).sum()
        found = loss.backward()[w]  # outside of the block
        wf.random.seed(1)
        with wf.amp.autocast(low):
            expected = layer(w).sum()
        assert found.tolist() == expected.backward()[w].tolist()
        wf.random.seed(1)
        plain = wf.checkpoint(layer, w).sum()
        with wf.amp.autocast(low):  # and the other way round
            found = plain.backward()[w]
        wf.random.seed(1)
        assert found.tolist() == layer(w).sum().backward()[w].tolist()

    def test_recurrent_networks(self, device, low):
        rng = np.random.default_rng(2)
        shapes = [(8, 3), (8, 2), (8,), (8,)]
        params = [
            wf.tensor(rng.standard_normal(s), dtype="float32", device=device, requires_grad=True)
            for s in shapes
        ]
        x = wf.tensor(rng.standard_normal((4, 1, 3)), dtype="float32", device=device)
        zeros = wf.zeros((1, 1, 2), device=device)
        with wf.amp.autocast(low):
            out, _, _ = F.lstm(x, (zeros, zeros), params)
            loss = (out * out).sum()
        assert out.dtype.name == low
        grads = loss.backward()
        assert all(grads[p].dtype == wf.float32 for p in params)
        half = [p.to(low) for p in params]
        expected, _, _ = F.lstm(x.to(low), (zeros.to(low), zeros.to(low)), half)
        assert out.tolist() == expected.tolist()


# -- which arguments are cast -------------------------------------------------------------------


class TestArguments:
    @pytest.mark.parametrize("dtype", ["float64", "complex64", "complex128", "int32"])
    def test_what_is_left_alone(self, dtype):
        x = wf.ones((2, 2), dtype=dtype)
        with wf.amp.autocast("bfloat16"):
            assert (x @ x).dtype.name == dtype
            assert wf.einsum("ij,jk->ik", x, x).dtype.name == dtype
            if dtype != "int32":
                assert wf.exp(x).dtype.name == dtype
                assert x.sum().dtype.name == dtype

    def test_beside_double_precision_nothing_loses_digits(self):
        a, b = wf.tensor([[1 / 3]]), wf.ones((1, 1), dtype="float64")
        with wf.amp.autocast("bfloat16"):
            assert (a @ b).item() == a.item() and (a @ b).dtype == wf.float64
            assert (b @ a).item() == a.item()

    def test_integers_beside_floats_go_along(self):
        with wf.amp.autocast("float16"):
            assert (wf.ones((1, 1)) @ wf.ones((1, 1), dtype="int32")).dtype == wf.float16

    def test_the_wider_wins_elsewhere(self):
        x = wf.ones((2, 2))
        with wf.amp.autocast("bfloat16"):
            y = x @ x
            assert (y + x).dtype == wf.float32 and (y + y).dtype == wf.bfloat16
            assert wf.concat([y, x]).dtype == wf.float32
            assert wf.stack([y, y]).dtype == wf.bfloat16
            assert wf.where(x > 0, y, x).dtype == wf.float32
            assert (y * 2.0).dtype == wf.relu(y).dtype == y.T.dtype == wf.bfloat16

    def test_numpy_arrays_and_scalars_among_the_arguments(self):
        x = np.ones((2, 2), np.float32)
        with wf.amp.autocast("bfloat16"):
            assert wf.matmul(x, x).dtype == wf.bfloat16
            assert (wf.asarray(x) @ x).dtype == wf.bfloat16
            assert wf.exp(1.0).dtype == wf.float32
            assert wf.pow(wf.ones(2, dtype="bfloat16"), 2).dtype == wf.float32

    def test_the_other_half_type_is_cast(self):
        x = wf.ones((2, 2), dtype="float16")
        with wf.amp.autocast("bfloat16"):
            assert (x @ x).dtype == wf.bfloat16

    def test_raw_arrays_of_rules_are_not_touched(self):
        x = np.ones((2, 2), np.float32)
        with wf.amp.autocast("bfloat16"):
            assert matmul_rule(x, x).dtype == np.float32
            assert exp_rule(x.astype(wf.bfloat16)).dtype == wf.bfloat16

    def test_out_keeps_its_dtype(self):
        x, out = wf.ones((2, 2)), wf.zeros((2, 2))
        with wf.amp.autocast("bfloat16"):
            wf.exp(x, out=out)
        assert out.dtype == wf.float32

    def test_an_explicit_dtype_is_obeyed(self):
        x = wf.ones(3, dtype="bfloat16")
        with wf.amp.autocast("bfloat16"):
            assert x.sum(dtype="bfloat16").dtype == wf.bfloat16
            assert x.sum(dtype="float64").dtype == wf.float64
            assert x.to("float16").dtype == wf.float16

    def test_linear_algebra_of_several_rows(self):
        a, b = wf.tensor([[2.0, 1.0], [1.0, 3.0], [0.5, 1.0]]), wf.tensor([1.0, 2.0, 1 / 3])
        with wf.amp.autocast("bfloat16"):
            found = wf.linalg.lstsq(a, b)[0]
            power = wf.linalg.matrix_power(a[:2], 3)
        assert found.tolist() == wf.linalg.lstsq(a, b)[0].tolist()
        assert power.tolist() == wf.linalg.matrix_power(a[:2], 3).tolist()

    def test_adaptive_pools_average_exactly(self):
        x = wf.tensor(np.random.default_rng(0).standard_normal((1, 1, 7)), dtype="float32")
        with wf.amp.autocast("bfloat16"):
            found = F.adaptive_avg_pool1d(x, 3)
        assert found.tolist() == F.adaptive_avg_pool1d(x, 3).tolist()
