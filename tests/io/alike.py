"""Whether two trees are the same to the bit."""

import struct

import numpy as np

import weft as wf


def same(a, b) -> bool:
    """Same types, same structure, same order of keys, same dtypes and shapes, same bytes."""
    if isinstance(a, wf.Tensor):
        return isinstance(b, wf.Tensor) and same(raw(a), raw(b))
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray | np.generic):
        return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    return a == b


def raw(x) -> np.ndarray:
    return x.detach().to("cpu").numpy()


def every_dtype(device: str = "cpu") -> dict:
    """A tensor of each dtype, with bits that arithmetic would not leave alone."""
    rng = np.random.default_rng(0)
    dtypes = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 "
    out = {}
    for name in (dtypes + "float64 complex64 complex128").split():
        dtype = wf.canonical_dtype(name)
        bits = rng.integers(0, 2 if name == "bool" else 256, 6 * dtype.itemsize, np.uint8)
        out[name] = wf.tensor(bits.view(dtype).reshape(2, 3), device=device)
    return out
