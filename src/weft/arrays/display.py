"""How a tensor looks in a terminal and in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import errors
from ..backend.device import as_numpy
from ..core import dtypes
from ..core.box import BOXES, readable
from ..core.node import Leaf, Node
from ..core.value import read

if TYPE_CHECKING:
    from .tensor import Tensor

_SUMMARISED = 1000  # elements; of larger tensors the corners are shown


def _values(x, prefix: str) -> str:
    a = as_numpy(x._data)
    if a.dtype == dtypes.bfloat16:
        a = a.astype(np.float32)
    return np.array2string(a, separator=", ", prefix=prefix, threshold=_SUMMARISED, edgeitems=3)


def _graph_state(x) -> list[str]:
    if x._node.__class__ is Leaf:
        return ["requires_grad=True"]
    return [f"made_by={x._node.name}"] if x._node.__class__ is Node else []


def _details(x) -> list[str]:
    """Dtype, device and the like, where the numbers do not show them."""
    out = []
    plain = (dtypes.float32, dtypes.int64, dtypes.bool_, dtypes.complex64)
    if x.dtype not in plain or (x.size == 0 and x.dtype != dtypes.float32):
        out.append(f"dtype={x.dtype}")
    if x.size > _SUMMARISED or (x.size == 0 and x.shape != (0,)):
        out.append(f"shape={x.shape}")
    if x.device != "cpu":
        out.append(f"device={x.device!r}")
    return out + _graph_state(x)


def text(x: Tensor) -> str:
    x = read(x)
    if x._data.__class__ in BOXES:
        return x._data.text()
    return f"tensor({', '.join([_values(x, 'tensor('), *_details(x)])})"


def format_number(x: Tensor, spec: str) -> str:
    """`f"{x:.3f}"` of one element is that of its number."""
    if not spec:
        return repr(x)
    if x.size != 1:
        raise errors.ShapeError(
            f"format: {spec!r} is for one number, and the tensor has the shape {x.shape}"
        )
    return format(readable(read(x), "format()").item(), spec)


def html(x: Tensor) -> str:
    """A notebook's view: the facts in one line, then the numbers."""
    from html import escape  # of no use outside of notebooks

    if x._data.__class__ in BOXES:
        return f"<pre>{escape(x._data.text())}</pre>"
    facts = [f"shape {x.shape}", str(x.dtype), x.device, *_graph_state(x)]
    line = " · ".join(map(escape, facts))
    numbers = escape(_values(x, ""))
    return f"<div><b>{type(x).__name__}</b> <small>{line}</small><pre>{numbers}</pre></div>"
