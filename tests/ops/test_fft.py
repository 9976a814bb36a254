"""Fourier transforms: values by NumPy, gradients by torch.autograd, for every length and norm."""

import numpy as np
import pytest
import torch

import weft as wf

DEVICES = ("cpu", "torch")
NORMS = ("backward", "ortho", "forward")
RNG = np.random.default_rng(2)


def draw(shape, complex_):
    x = RNG.standard_normal(shape)
    return x + 1j * RNG.standard_normal(shape) if complex_ else x


def host(t):
    return t.detach().to("cpu").numpy()


def check(name, a, ours, theirs, device):
    """`ours` and `theirs` are the options in NumPy's and in torch's words."""
    x = wf.tensor(a, requires_grad=True, device=device)
    y = getattr(wf.fft, name)(x, **ours)
    expected = getattr(np.fft, name)(a, **ours)
    np.testing.assert_allclose(host(y), expected, 1e-12, 1e-12)
    w = np.exp(1j * np.arange(expected.size)).reshape(expected.shape)
    w = w if np.iscomplexobj(expected) else w.real
    g = wf.sum(wf.real(y * wf.asarray(w, device=device))).backward()[x]
    leaf = torch.tensor(a, requires_grad=True)
    z = getattr(torch.fft, name)(leaf, **theirs) * torch.tensor(w)
    (z.real if z.is_complex() else z).sum().backward()
    np.testing.assert_allclose(host(g), leaf.grad.resolve_conj().numpy(), 1e-11, 1e-11)


ONE = {"fft": True, "ifft": True, "rfft": False, "irfft": True, "hfft": True, "ihfft": False}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [None, 3, 4, 7, 8])
@pytest.mark.parametrize("name", ONE)
def test_one_axis(name, n, norm, device):
    for shape, axis in (((5,), -1), ((4,), 0), ((2, 5), 1), ((4, 3), 0)):
        a = draw(shape, ONE[name])
        check(
            name,
            a,
            {"n": n, "axis": axis, "norm": norm},
            {"n": n, "dim": axis, "norm": norm},
            device,
        )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["fft", "ifft"])
def test_real_arguments_of_complex_transforms(name, device):
    check(name, draw((2, 5), False), {}, {}, device)


SEVERAL = {"fftn": True, "ifftn": True, "rfftn": False, "irfftn": True}
SEVERAL |= {"fft2": True, "ifft2": True, "rfft2": False, "irfft2": True}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", SEVERAL)
def test_several_axes(name, norm, device):
    for s, axes in ((None, (0, 1)), ((3, 5), (1, 2)), ((4, 2), (2, 0)), ((2, 6), (0, -1))):
        a = draw((2, 3, 4), SEVERAL[name])
        ours, theirs = {"axes": axes, "norm": norm}, {"dim": axes, "norm": norm}
        if s is not None:
            ours["s"] = theirs["s"] = s
        check(name, a, ours, theirs, device)


@pytest.mark.parametrize("device", DEVICES)
def test_shifts(device):
    for shape in ((4,), (5,), (2, 3), (3, 4)):
        for axes in (None, 0, (0,)):
            theirs = {} if axes is None else {"dim": axes}
            for name in ("fftshift", "ifftshift"):
                check(name, draw(shape, True), {"axes": axes}, theirs, device)


def test_precision_is_kept():
    for dtype, expected in ((wf.float32, wf.complex64), (wf.float64, wf.complex128)):
        x = wf.ones(4, dtype=dtype)
        assert wf.fft.fft(x).dtype == wf.fft.rfft(x).dtype == expected
        assert wf.fft.irfft(wf.fft.rfft(x)).dtype == dtype


MISTAKES = [
    (lambda: wf.fft.fft(wf.ones(3), n=0), "fft: a length of 0"),
    (lambda: wf.fft.fft(wf.ones(3), norm="orthogonal"), "norm 'orthogonal'"),
    (lambda: wf.fft.fft(wf.ones(3), axis=1), "axis 1 is out of range"),
    (lambda: wf.fft.rfft(wf.ones(3) * 1j), "rfft: got complex64"),
    (lambda: wf.fft.fft(wf.ones((2, 0))), "is empty along"),
    (lambda: wf.fft.irfft(wf.ones(1)), "give s or n"),
    (lambda: wf.fft.fftn(wf.ones((2, 2)), s=(2,), axes=(0, 1)), "1 lengths for 2 axes"),
]


ODD_AXES = [
    ({"axes": 1}, r"axes=1, expected a sequence of axes: \(1,\)"),
    ({"axes": 1.5}, "axes=1.5, expected a sequence"),
    ({"axes": np.int64(1)}, "expected a sequence of axes"),
    ({"axes": ("x",)}, "axis 'x', expected an integer"),
    ({"s": 3}, r"s=3, expected a sequence of lengths: \(3,\)"),
    ({"s": (3, "x")}, "a length of 'x', expected an integer"),
    ({"s": (3, 2.5)}, "a length of 2.5, expected an integer"),
    ({"s": (3, 0)}, "a length of 0, expected at least 1"),
]
NO_AXES = [({"axes": ()}, "got no axes"), ({"s": (), "axes": ()}, "got no axes")]
MISTAKES += [
    (lambda name=name, given=given: getattr(wf.fft, name)(wf.ones((3, 4)), **given), message)
    for name in SEVERAL
    for given, message in [*ODD_AXES, *(NO_AXES if "r" in name else ())]
]
MISTAKES += [
    (lambda name=name: getattr(wf.fft, name)(wf.ones((3, 4)), axes=1.5), "expected a sequence")
    for name in ("fftshift", "ifftshift")
]


@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_mistakes_are_explained(call, message):
    with pytest.raises(wf.errors.WeftError, match=message):
        call()
