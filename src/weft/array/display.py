"""How a tensor looks in a terminal and in a notebook."""

from html import escape

import numpy as np

from ..backend.device import as_numpy
from ..core import dtypes
from ..core.node import Leaf, Node


def _values(x) -> str:
    a = as_numpy(x._data)
    if a.dtype == dtypes.bfloat16:
        a = a.astype(np.float32)
    prefix = len("tensor(")
    return np.array2string(a, separator=", ", prefix=" " * prefix, threshold=1000, edgeitems=3)


def _details(x) -> list[str]:
    """What the numbers do not show already."""
    out = []
    plain = (dtypes.float32, dtypes.int64, dtypes.bool_, dtypes.complex64)
    if x.dtype not in plain:
        out.append(f"dtype={x.dtype}")
    if x.size == 0 and x.shape != (0,):
        out.append(f"shape={x.shape}")
    if x.device != "cpu":
        out.append(f"device={x.device!r}")
    if x._node.__class__ is Leaf:
        out.append("requires_grad=True")
    elif x._node.__class__ is Node:
        out.append(f"made_by={x._node.name}")
    return out


def text(x) -> str:
    return f"tensor({', '.join([_values(x), *_details(x)])})"


def html(x) -> str:
    """A notebook's view: the facts in one line, then the numbers."""
    facts = [f"shape {x.shape}", str(x.dtype), x.device, *_details(x)]
    line = " · ".join(dict.fromkeys(escape(f) for f in facts if not f.startswith("dtype=")))
    return f"<div><b>Tensor</b> <small>{line}</small><pre>{escape(_values(x))}</pre></div>"
