"""Figures of gradients against NumPy in double precision, over dtypes, layouts and magnitudes."""

import os
from xml.etree import ElementTree

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft.profile import Counter, grad_stats, magnitudes

SOAK = bool(os.environ.get("WEFT_SOAK"))
KINDS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


def random_gradient(rng: np.random.Generator, kind: str) -> wf.Tensor:
    """Of any size, layout and magnitude, with zeros, subnormal numbers, NaN and infinity."""
    shape = tuple(rng.integers(0 if rng.random() < 0.1 else 1, 40, rng.integers(0, 4)))
    info = wf.finfo(kind)
    low, high = np.log10(info.smallest_subnormal), np.log10(info.max)
    middle, width = rng.uniform(low, high), rng.choice([0.0, 1.0, 5.0, 100.0])

    def numbers():
        exponents = (middle + width * rng.standard_normal(shape)).clip(low, high - 0.4)
        return rng.choice([-1.0, 1.0], shape) * 10.0**exponents

    x = np.asarray(numbers() + 1j * numbers() if "complex" in kind else numbers())
    for value, share in ((0.0, 0.2), (np.nan, 0.05), (np.inf, 0.05), (-np.inf, 0.05)):
        if rng.random() < 0.4:
            x[rng.random(shape) < share] = value
    with np.errstate(all="ignore"):
        x = wf.asarray(x).to(kind).numpy()
    if x.ndim and rng.random() < 0.5:
        x = x.T if rng.random() < 0.5 else x[::-2]
    elif rng.random() < 0.2:
        x = np.broadcast_to(x, (3, *x.shape))
    return wf.asarray(x)


def expected(g: wf.Tensor, kind: str) -> dict[str, float]:
    """The same by NumPy, at a scale at which nothing overflows."""
    wide = np.asarray(g.numpy()).astype("complex128" if "complex" in kind else "float64").ravel()
    finite = wide[np.isfinite(wide)]
    size = np.abs(finite)
    some = size[size > 0]
    scale = 2.0 ** np.floor(np.log2(size.max())) if some.size else 1.0
    near = finite / scale if scale >= 1e-300 else finite * 2.0**1000 / (scale * 2.0**1000)
    with np.errstate(over="ignore"):
        return {
            "size": wide.size,
            "nans": int(np.isnan(wide).sum()),
            "infs": int((np.isinf(wide) & ~np.isnan(wide)).sum()),
            "zeros": int((size == 0).sum()),
            "subnormal": int((some < wf.finfo(kind).smallest_normal).sum()),
            "norm": scale * np.sqrt((np.abs(near) ** 2).sum()) if finite.size else np.nan,
            "smallest": some.min() if some.size else np.nan,
            "largest": size.max() if size.size else np.nan,
            "mean": scale * near.mean() if finite.size else np.nan,
            "std": scale * near.std() if finite.size else np.nan,
        }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(60 if SOAK else 8))
def test_against_numpy(monkeypatch, kind, seed):
    monkeypatch.setattr(magnitudes, "_PART", 37)  # many parts
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    for _ in range(10):
        g = random_gradient(rng, kind)
        got, want = grad_stats(g)["gradient"], expected(g, kind)
        largest = want["largest"] if np.isfinite(want["largest"]) else 1.0
        for name in ("size", "nans", "infs", "zeros", "subnormal", "smallest", "largest"):
            np.testing.assert_equal(getattr(got, name), want[name], err_msg=name)
        if not g.size:
            continue
        close = dict(rtol=1e-12, atol=1e-13 * largest)
        np.testing.assert_allclose(got.norm, want["norm"], rtol=1e-12)
        np.testing.assert_allclose(got.mean, want["mean"], **close)
        np.testing.assert_allclose(got.std, want["std"], **close)
        check_histogram(g, got)


def check_histogram(g, got):
    size = np.abs(np.asarray(g.numpy()).astype(np.complex128))
    size = size[np.isfinite(np.asarray(g.numpy()).astype(np.complex128)) & (size > 0)]
    if not size.size:
        assert got.histogram.size == got.edges.size == 0
        return
    logs = np.log10(size).clip(-324, 308.9999)
    count, edges = np.histogram(logs, got.edges)
    assert got.histogram.sum() == size.size and got.histogram[0] and got.histogram[-1]
    np.testing.assert_array_equal(got.histogram, count)
    np.testing.assert_array_equal(got.edges, edges)


@pytest.mark.parametrize("seed", range(5))
def test_totals_are_those_of_one_array(seed):
    rng = np.random.default_rng(seed)
    many = [random_gradient(rng, "float32") for _ in range(6)]
    whole = np.concatenate([np.asarray(g.numpy()).ravel() for g in many])
    total, want = grad_stats(many).total, grad_stats(wf.asarray(whole))["gradient"]
    for name in ("size", "nans", "infs", "zeros", "subnormal", "smallest", "largest"):
        np.testing.assert_equal(getattr(total, name), getattr(want, name))
    np.testing.assert_allclose(total.norm, want.norm, rtol=1e-12)
    np.testing.assert_allclose(total.mean, want.mean, rtol=1e-10, atol=1e-12 * want.largest)
    np.testing.assert_allclose(total.std, want.std, rtol=1e-10)
    np.testing.assert_array_equal(total.histogram, want.histogram)


def test_torch_arrays():
    g = wf.rand(1000, device="torch", dtype="bfloat16")
    got, want = grad_stats(g).total, grad_stats(g.to("cpu")).total
    assert (got.norm, got.mean, got.std) == (want.norm, want.mean, want.std)


def test_large_arrays_are_not_copied():
    g = wf.rand(4_000_000)
    with Counter() as counter:
        grad_stats(g)
    assert counter.peak < 4_000_000


def network() -> wf.nn.Module:
    wf.random.seed(0)
    layers = []
    for _ in range(14):
        layers += [wf.nn.Linear(16, 16), wf.nn.Sigmoid()]
    return wf.nn.Sequential(*layers, wf.nn.Linear(16, 1))


class TestReport:
    def test_modules_maps_and_compiled_steps(self):
        model, x = network(), wf.rand((8, 16))
        grads = model(x).square().mean().backward()
        own, mapped = grad_stats(model), grad_stats(grads, model)
        assert list(own) == list(mapped) == [n for n, _ in model.named_parameters()]
        assert [s.norm for s in own.values()] == [s.norm for s in mapped.values()]
        assert set(grad_stats(grads)) == {f"id {p.id}" for p in model.parameters()}

        @wf.compile
        def step(x):
            loss = model(x).square().mean()
            loss.backward()
            return loss.detach()

        model.zero_grad()
        step(x)
        for name, s in grad_stats(model).items():
            np.testing.assert_allclose(s.norm, own[name].norm, rtol=1e-4)

    def test_what_vanishes_and_explodes(self):
        model = network()
        model(wf.rand((8, 16))).square().mean().backward()
        report = grad_stats(model)
        gone = report.vanishing()
        assert "0.weight" in gone and "28.weight" not in gone and report.exploding() == []
        sizes = [s.rms for s in report.values()]
        assert all(report[n].rms <= 1e-8 or report[n].rms < 1e-5 * max(sizes) for n in gone)
        model[28].bias.grad = wf.tensor([1e6])
        model[26].bias.grad = wf.full(16, float("nan"))
        assert grad_stats(model).exploding() == ["26.bias", "28.bias"]
        assert grad_stats(model).vanishing() == gone  # one that explodes is no measure
        assert grad_stats(model).nonfinite() == ["26.bias"]

    def test_half_types_underflow(self):
        tiny = wf.tensor([1e-7, 2e-7, 1.0], dtype="float16")
        report = grad_stats({"w": tiny})
        assert report["w"].subnormal == 2 and report.vanishing() == ["w"]
        assert grad_stats({"w": tiny.to("float32")})["w"].subnormal == 0

    def test_the_table(self):
        text = str(grad_stats({"w": wf.ones((2, 3)), "b": None, "c": wf.tensor([float("nan")])}))
        head, w, c, b, total = text.splitlines()
        assert head.split()[:3] == ["parameter", "elements", "norm"]
        assert w.split()[:3] == ["w", "6", "2.45e+00"] and c.endswith("not finite")
        assert b.split() == ["b", "no", "gradient"] and total.split()[1] == "7"

    @pytest.mark.parametrize("seed", range(5))
    def test_pictures_are_well_formed(self, tmp_path, seed):
        rng = np.random.default_rng(seed)
        many = {f"<{k}> & é": random_gradient(rng, "float64") for k in range(5)} | {"none": None}
        path = grad_stats(many).plot(tmp_path / "flow.svg")
        root = ElementTree.parse(path).getroot()
        texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
        assert set(many) <= set(texts)
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        for box in root.iter("{http://www.w3.org/2000/svg}rect"):
            assert 0 <= float(box.get("x", 0)) <= width and 0 <= float(box.get("y", 0)) <= height


class TestBadInput:
    def test_no_gradients(self):
        with pytest.raises(errors.MissingGradient, match=r"run backward\(\) first"):
            grad_stats(wf.nn.Linear(2, 2))

    def test_integers_and_other_things(self):
        with pytest.raises(errors.DTypeError, match=r"a\.0 has dtype int64"):
            grad_stats({"a": [wf.tensor([1])]})
        with pytest.raises(errors.DTypeError, match="a is a str"):
            grad_stats({"a": "b"})
        with pytest.raises(errors.ArgumentError, match="names= goes with a GradientMap"):
            grad_stats([wf.ones(3)], {"a": wf.ones(3)})

    def test_while_tracing(self):
        with pytest.raises(errors.StagingError, match="grad_stats"):
            wf.compile(lambda x: grad_stats([x]).total.norm * x)(wf.ones(3))
        with pytest.raises(errors.InterchangeError, match="inside vmap"):
            wf.vmap(lambda x: x * grad_stats([x]).total.norm)(wf.ones((3, 2)))

    def test_only_svg(self, tmp_path):
        with pytest.raises(errors.ArgumentError, match=r"ends in \.svg"):
            grad_stats([wf.ones(3)]).plot(tmp_path / "flow.png")
