"""Autocast's blocks: nested, as decorators, in threads and tasks; custom operations in them."""

import asyncio
import threading

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft.core.settings import current

from .test_autocast import by_hand, matrices, net


def product_dtype() -> str:
    return (wf.ones((2, 2)) @ wf.ones((2, 2))).dtype.name


class TestBlocks:
    def test_modes(self):
        for mode in ("float16", wf.float16, np.float16, wf.PrecisionMode.FLOAT16):
            with wf.amp.autocast(mode):
                assert product_dtype() == "float16"
        with wf.amp.autocast():
            assert product_dtype() == "bfloat16"
        with wf.amp.autocast("float32"):
            assert product_dtype() == "float32"

    @pytest.mark.parametrize("mode", ["half", "float64", "cpu", wf.int32, None, 16])
    def test_other_modes_are_refused(self, mode):
        with pytest.raises(errors.ArgumentError, match="expected one of 'float32', 'float16'"):
            wf.amp.autocast(mode)

    def test_nesting(self):
        with wf.amp.autocast("bfloat16"):
            with wf.amp.autocast("float16"):
                assert product_dtype() == "float16"
                with wf.amp.autocast(enabled=False):
                    assert product_dtype() == "float32"
                    assert not wf.amp.is_autocast_enabled()
                assert product_dtype() == "float16"
            assert product_dtype() == "bfloat16" and wf.amp.is_autocast_enabled()
        assert product_dtype() == "float32" and not wf.amp.is_autocast_enabled()

    def test_one_block_many_times(self):
        block = wf.amp.autocast("float16")
        for _ in range(2):
            with block, block:
                assert product_dtype() == "float16"
        assert product_dtype() == "float32"

    def test_the_settings_come_back_after_an_error(self):
        before = current.get()
        with pytest.raises(errors.ShapeError), wf.amp.autocast("float16"):
            wf.ones((2, 3)) @ wf.ones((2, 3))
        assert current.get() is before

    def test_decorator(self):
        assert wf.amp.autocast("float16")(product_dtype)() == "float16"
        assert wf.amp.autocast("float16", enabled=False)(product_dtype)() == "float32"

    def test_generators_are_cast_in_their_own_steps_only(self):
        @wf.amp.autocast("float16")
        def steps():
            yield product_dtype()
            yield product_dtype()

        found = []
        for inside in steps():
            found += [inside, product_dtype()]
        assert found == ["float16", "float32"] * 2

    def test_threads_have_their_own(self):
        found = []
        with wf.amp.autocast("float16"):
            thread = threading.Thread(target=lambda: found.append(product_dtype()))
            thread.start()
            thread.join()
        assert found == ["float32"]

    def test_tasks_have_their_own(self):
        async def task(mode, turn, other):
            with wf.amp.autocast(mode):
                turn.set()
                await other.wait()
                return product_dtype()

        @wf.amp.autocast("float16")
        async def decorated():
            await asyncio.sleep(0)
            return product_dtype()

        async def main():
            a, b = asyncio.Event(), asyncio.Event()
            both = (task("float16", a, b), task("bfloat16", b, a))
            return [*await asyncio.gather(*both), await decorated(), product_dtype()]

        assert asyncio.run(main()) == ["float16", "bfloat16", "float16", "float32"]

    def test_anomalies_and_saved_tensors_hooks_go_together_with_it(self):
        x, w = matrices()
        packed = []
        with (
            wf.amp.autocast("bfloat16"),
            wf.saved_tensors_hooks(lambda t: packed.append(t.dtype.name) or t, lambda t: t),
        ):
            loss = net(x, w)
        assert "bfloat16" in packed
        assert loss.backward()[w].tolist() == by_hand(x, w, "bfloat16").backward()[w].tolist()
        big = wf.full((1, 1), 1e30)
        with wf.amp.autocast("float16"), np.errstate(over="ignore"), wf.detect_anomaly():
            with pytest.raises(errors.AnomalyError, match="cast made the first NaN or infinity"):
                big @ big

    def test_no_grad(self):
        x, w = matrices()
        with wf.amp.autocast("bfloat16"), wf.no_grad():
            assert not (x @ w).requires_grad and (x @ w).dtype == wf.bfloat16

    def test_errors_name_the_operation_and_the_line(self):
        with wf.amp.autocast("bfloat16"):
            with pytest.raises(errors.ShapeError, match=r"matmul: \(2, 3\) @ \(2, 3\)") as e:
                wf.ones((2, 3)) @ wf.ones((2, 3))
        assert "test_blocks.py" in str(e.value)


# -- custom operations --------------------------------------------------------------------------


class TestCustomOperations:
    """They get their inputs as they are, and compute what they say."""

    @pytest.mark.parametrize("rule", ["vjp", "jvp"])
    def test_autocast_is_off_inside(self, rule):
        seen = []

        @wf.custom_op
        def product(a, b):
            seen.append(wf.amp.is_autocast_enabled())
            return a @ b

        if rule == "vjp":

            @product.def_vjp
            def back(g, inputs):
                a, b = inputs
                seen.append(wf.amp.is_autocast_enabled())
                return g @ b.T, a.T @ g
        else:

            @product.def_jvp
            def forward(tangents, inputs):
                (ta, tb), (a, b) = tangents, inputs
                seen.append(wf.amp.is_autocast_enabled())
                parts = [] if ta is None else [ta @ b]
                parts += [] if tb is None else [a @ tb]
                return parts[0] if len(parts) == 1 else parts[0] + parts[1]

        x, w = matrices()
        with wf.amp.autocast("bfloat16"):
            y = product(x, w)
            assert y.dtype == wf.float32
            loss = wf.exp(y).sum()
            g = loss.backward()[w]
            mapped = wf.vmap(lambda r: product(r.reshape((1, 3)), w))(x)
            t = wf.jvp(lambda w: product(x, w), (w,), (w,))[1]
        assert not any(seen) and seen
        assert g.tolist() == wf.exp(x @ w).sum().backward()[w].tolist()
        assert mapped.dtype == t.dtype == wf.float32

    def test_half_inputs_have_half_gradients(self):
        @wf.custom_op
        def double(a):
            return a * 2.0

        @double.def_vjp
        def back(g, inputs):
            return (g * 2.0,)

        x, w = matrices()
        with wf.amp.autocast("float16"):
            y = double(x @ w)
            loss = y.sum()
        assert y.dtype == wf.float16
        assert loss.backward()[w].dtype == wf.float32
