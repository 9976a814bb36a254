"""Torch's Fourier transforms in Weft's spelling."""

import weft as wf

ONE = "fft ifft rfft irfft hfft ihfft".split()
TWO = "fft2 ifft2 rfft2 irfft2".split()
MANY = "fftn ifftn rfftn irfftn".split()


def along_one(name):
    def transform(x, n=None, dim=-1, norm=None):
        return getattr(wf.fft, name)(x, n=n, axis=dim, norm=norm or "backward")

    return transform


def _axes(dim):
    return (dim,) if isinstance(dim, int) else dim


def along_many(name, default):
    def transform(x, s=None, dim=default, norm=None):
        axes = _axes(dim)
        if axes is None and s is not None:
            axes = tuple(range(-len(s), 0))
        return getattr(wf.fft, name)(x, s=s, axes=axes, norm=norm or "backward")

    return transform


def shift(name):
    def move(x, dim=None):
        return getattr(wf.fft, name)(x, axes=_axes(dim))

    return move


SPELLINGS = {
    **{f"fft.{name}": along_one(name) for name in ONE},
    **{f"fft.{name}": along_many(name, (-2, -1)) for name in TWO},
    **{f"fft.{name}": along_many(name, None) for name in MANY},
    "fft.fftshift": shift("fftshift"),
    "fft.ifftshift": shift("ifftshift"),
}
