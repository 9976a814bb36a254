"""Torch's ops that make tensors and convert them, in Weft's spelling."""

import weft as wf

CASTS = {
    "bfloat16": "bfloat16",
    "bool": "bool",
    "byte": "uint8",
    "cdouble": "complex128",
    "cfloat": "complex64",
    "char": "int8",
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "int": "int32",
    "long": "int64",
    "short": "int16",
}


def cast_to(dtype):
    def cast(x, memory_format=None):
        return x.astype(dtype)

    return cast


def to(x, *args, memory_format=None):
    """A device, a dtype or a tensor to follow, and flags about copying."""
    for a in args:
        if isinstance(a, wf.Tensor):
            return x.astype(a.dtype)
        if isinstance(a, str) and a != "cpu":
            return x.astype(a)
    return x


def _number_dtype(start, dtype):
    """Torch makes floats and integers of bare numbers as Weft does."""
    return {} if dtype is None else {"dtype": dtype}


def arange(start, end=None, step=1, *, dtype=None, device=None):
    return wf.arange(start, end, step, **_number_dtype(start, dtype))


def linspace(start, end, steps, *, dtype=None, device=None):
    return wf.linspace(start, end, steps, dtype=dtype)


def eye(n, m=None, *, dtype=None, device=None, requires_grad=False):
    return wf.eye(n, m, dtype=dtype)


def full(shape, value, *, dtype=None, device=None):
    return wf.full(shape, value, dtype=dtype)


def filled(name):
    def make(shape, *, dtype=None, device=None):
        return getattr(wf, name)(shape, dtype=dtype)

    return make


def filled_like(name):
    def make(x, *args, dtype=None, device=None):
        return getattr(wf, name)(x, *args, dtype=dtype)

    return make


def scalar_tensor(value, *, dtype=None, device=None, requires_grad=False):
    return wf.tensor(value, dtype=dtype)


SPELLINGS = {
    **{name: cast_to(dtype) for name, dtype in CASTS.items()},
    **{name: filled_like(name) for name in ("full_like", "ones_like", "zeros_like")},
    "arange": arange,
    "eye": eye,
    "full": full,
    "linspace": linspace,
    "ones": filled("ones"),
    "scalar_tensor": scalar_tensor,
    "to": to,
    "zeros": filled("zeros"),
}
