"""Recurrent networks over a sequence, with PyTorch's layout of weights.

`params` is a flat list: for each layer, and in it for each direction, W_ih (gates, in), W_hh
(gates, hidden) and, with biases, b_ih and b_hh. LSTM has the gates i, f, g, o; GRU r, z, n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ... import errors
from ...arrays.arguments import as_tensor
from ...core.autocast import HALF, computed_in
from ...core.record import record
from ...ops.contract import matmul
from ...ops.elementwise import relu as _relu
from ...ops.elementwise import tanh as _tanh
from ...ops.recur import gru_cell as _gru_cell
from ...ops.recur import lstm_cell as _lstm_cell
from ...ops.structural import concat, mT, permute, reshape, stack, unstack
from ...transform.control.loops import scan
from .dropout import dropout as _dropout
from .layers import linear

if TYPE_CHECKING:
    from ...arrays.tensor import Tensor
    from ...arrays.types import ArrayLike


@record
class CellKind:
    """A recurrent network: (x's gates, state, W_hhᵀ, b_hh) -> state, a tuple of tensors."""

    name: str
    gates: int
    states: int
    step: Callable[..., Any]


def _lstm_step(x, state, recurrent, bias):
    h, c = state
    z = x + matmul(h, recurrent)
    return _lstm_cell(z if bias is None else z + bias, c)[:2]


def _gru_step(x, state, recurrent, bias):
    (h,) = state
    y = matmul(h, recurrent)
    return (_gru_cell(x, y if bias is None else y + bias, h)[0],)


def _simple_step(activation: Callable[..., Any]):
    def step(x, state, recurrent, bias):
        z = x + matmul(state[0], recurrent)
        return (activation(z if bias is None else z + bias),)

    return step


_LSTM = CellKind("lstm", 4, 2, _lstm_step)
_GRU = CellKind("gru", 3, 1, _gru_step)
_TANH = CellKind("rnn_tanh", 1, 1, _simple_step(_tanh))
_RELU = CellKind("rnn_relu", 1, 1, _simple_step(_relu))


@computed_in(HALF, "lstm_cell")
def lstm(
    input: ArrayLike,
    hx: tuple[ArrayLike, ArrayLike],
    params: Sequence[ArrayLike],
    has_biases: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,
    train: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Long short-term memory over a sequence: the outputs, the last h and the last c.

    input          (T, N, in), or (T, in) without a batch
    hx             (h, c), each (layers·directions, N, hidden), or (layers·directions, hidden)
    params         w_ih, w_hh, and with biases b_ih, b_hh, of each direction of each layer in
                   turn
    has_biases     whether there are biases
    num_layers     how many layers lie above each other
    dropout        the probability of dropout between layers, if `train`
    train          whether anything is dropped
    bidirectional  whether each layer also runs backwards
    batch_first    whether input and output are (N, T, …)

    i, f, g, o = W_ih·x + b_ih + W_hh·h + b_hh; c ← σ(f)·c + σ(i)·tanh(g); h ← σ(o)·tanh(c).

    >>> import weft as wf
    >>> states = (wf.zeros((1, 1, 2)), wf.zeros((1, 1, 2)))
    >>> params = [wf.zeros((8, 3)), wf.zeros((8, 2))]
    >>> out, h, c = wf.nn.functional.lstm(wf.ones((5, 1, 3)), states, params, has_biases=False)
    >>> out.shape, h.shape, c.shape
    ((5, 1, 2), (1, 1, 2), (1, 1, 2))
    """
    how = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
    return _run(_LSTM, input, tuple(hx), params, *how)


@computed_in(HALF, "gru_cell")
def gru(
    input: ArrayLike,
    hx: ArrayLike,
    params: Sequence[ArrayLike],
    has_biases: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,
    train: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
) -> tuple[Tensor, Tensor]:
    """Gated recurrent units over a sequence: the outputs and the last states.

    input          (T, N, in), or (T, in) without a batch
    hx             h (layers·directions, N, hidden), or (layers·directions, hidden)
    params         w_ih, w_hh, and with biases b_ih, b_hh, of each direction of each layer in
                   turn
    has_biases     whether there are biases
    num_layers     how many layers lie above each other
    dropout        the probability of dropout between layers, if `train`
    train          whether anything is dropped
    bidirectional  whether each layer also runs backwards
    batch_first    whether input and output are (N, T, …)

    r and z are σ(W_ih·x + b_ih + W_hh·h + b_hh), n = tanh(W_in·x + b_in + r·(W_hn·h + b_hn));
    h ← (1 − z)·n + z·h.

    >>> import weft as wf
    >>> params = [wf.zeros((6, 3)), wf.zeros((6, 2))]
    >>> x, h = wf.ones((5, 1, 3)), wf.ones((1, 1, 2))
    >>> out, h = wf.nn.functional.gru(x, h, params, has_biases=False)
    >>> h.tolist()
    [[[0.03125, 0.03125]]]
    """
    how = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
    return _run(_GRU, input, (hx,), params, *how)


@computed_in(HALF)
def rnn_tanh(
    input: ArrayLike,
    hx: ArrayLike,
    params: Sequence[ArrayLike],
    has_biases: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,
    train: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
) -> tuple[Tensor, Tensor]:
    """h ← tanh(W_ih·x + b_ih + W_hh·h + b_hh) over a sequence: the outputs and the last states.

    input          (T, N, in), or (T, in) without a batch
    hx             h (layers·directions, N, hidden), or (layers·directions, hidden)
    params         w_ih, w_hh, and with biases b_ih, b_hh, of each direction of each layer in
                   turn
    has_biases     whether there are biases
    num_layers     how many layers lie above each other
    dropout        the probability of dropout between layers, if `train`
    train          whether anything is dropped
    bidirectional  whether each layer also runs backwards
    batch_first    whether input and output are (N, T, …)

    >>> import weft as wf
    >>> params = [wf.zeros((2, 3)), wf.zeros((2, 2))]
    >>> x, h = wf.ones((5, 3)), wf.ones((1, 2))
    >>> out, h = wf.nn.functional.rnn_tanh(x, h, params, has_biases=False)
    >>> out.shape, h.tolist()
    ((5, 2), [[0.0, 0.0]])
    """
    how = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
    return _run(_TANH, input, (hx,), params, *how)


@computed_in(HALF)
def rnn_relu(
    input: ArrayLike,
    hx: ArrayLike,
    params: Sequence[ArrayLike],
    has_biases: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,
    train: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
) -> tuple[Tensor, Tensor]:
    """h ← max(W_ih·x + b_ih + W_hh·h + b_hh, 0) over a sequence: the outputs and the last states.

    input          (T, N, in), or (T, in) without a batch
    hx             h (layers·directions, N, hidden), or (layers·directions, hidden)
    params         w_ih, w_hh, and with biases b_ih, b_hh, of each direction of each layer in
                   turn
    has_biases     whether there are biases
    num_layers     how many layers lie above each other
    dropout        the probability of dropout between layers, if `train`
    train          whether anything is dropped
    bidirectional  whether each layer also runs backwards
    batch_first    whether input and output are (N, T, …)

    >>> import weft as wf
    >>> params = [wf.eye(2), wf.eye(2)]
    >>> x, h = wf.ones((5, 2)), wf.zeros((1, 2))
    >>> out, h = wf.nn.functional.rnn_relu(x, h, params, has_biases=False)
    >>> h.tolist()
    [[5.0, 5.0]]
    """
    how = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
    return _run(_RELU, input, (hx,), params, *how)


@computed_in(HALF)
def lstm_cell(
    input: ArrayLike,
    hx: tuple[ArrayLike, ArrayLike],
    w_ih: ArrayLike,
    w_hh: ArrayLike,
    b_ih: ArrayLike | None = None,
    b_hh: ArrayLike | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of long short-term memory: (h, c) from x and (h, c).

    input       x (N, in) or (in,)
    hx          (h, c), each (N, hidden) or (hidden,)
    w_ih, w_hh  weights (4·hidden, in) and (4·hidden, hidden), the rows of i, f, g and o
    b_ih, b_hh  biases (4·hidden,); None: none

    i, f, g, o = W_ih·x + b_ih + W_hh·h + b_hh; c ← σ(f)·c + σ(i)·tanh(g); h ← σ(o)·tanh(c).

    >>> import weft as wf
    >>> state = (wf.zeros(1), wf.full(1, 4.0))
    >>> h, c = wf.nn.functional.lstm_cell([1.0], state, wf.zeros((4, 1)), wf.zeros((4, 1)))
    >>> c.tolist()
    [2.0]
    """
    return _one_step(_LSTM, input, tuple(hx), w_ih, w_hh, b_ih, b_hh)


@computed_in(HALF)
def gru_cell(
    input: ArrayLike,
    hx: ArrayLike,
    w_ih: ArrayLike,
    w_hh: ArrayLike,
    b_ih: ArrayLike | None = None,
    b_hh: ArrayLike | None = None,
) -> Tensor:
    """One step of a gated recurrent unit: h from x and h.

    input       x (N, in) or (in,)
    hx          h (N, hidden) or (hidden,)
    w_ih, w_hh  weights (3·hidden, in) and (3·hidden, hidden), the rows of r, z and n
    b_ih, b_hh  biases (3·hidden,); None: none

    r and z are σ(W_ih·x + b_ih + W_hh·h + b_hh), n = tanh(W_in·x + b_in + r·(W_hn·h + b_hn));
    h ← (1 − z)·n + z·h.

    >>> import weft as wf
    >>> wf.nn.functional.gru_cell([1.0], [4.0], wf.zeros((3, 1)), wf.zeros((3, 1))).tolist()
    [2.0]
    """
    return _one_step(_GRU, input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


@computed_in(HALF, "rnn_tanh")
def rnn_tanh_cell(
    input: ArrayLike,
    hx: ArrayLike,
    w_ih: ArrayLike,
    w_hh: ArrayLike,
    b_ih: ArrayLike | None = None,
    b_hh: ArrayLike | None = None,
) -> Tensor:
    """One step h ← tanh(W_ih·x + b_ih + W_hh·h + b_hh).

    input       x (N, in) or (in,)
    hx          h (N, hidden) or (hidden,)
    w_ih, w_hh  weights (hidden, in) and (hidden, hidden)
    b_ih, b_hh  biases (hidden,); None: none

    >>> import weft as wf
    >>> wf.nn.functional.rnn_tanh_cell([1.0], [0.0], [[0.0]], [[1.0]]).tolist()
    [0.0]
    """
    return _one_step(_TANH, input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


@computed_in(HALF, "rnn_relu")
def rnn_relu_cell(
    input: ArrayLike,
    hx: ArrayLike,
    w_ih: ArrayLike,
    w_hh: ArrayLike,
    b_ih: ArrayLike | None = None,
    b_hh: ArrayLike | None = None,
) -> Tensor:
    """One step h ← max(W_ih·x + b_ih + W_hh·h + b_hh, 0).

    input       x (N, in) or (in,)
    hx          h (N, hidden) or (hidden,)
    w_ih, w_hh  weights (hidden, in) and (hidden, hidden)
    b_ih, b_hh  biases (hidden,); None: none

    >>> import weft as wf
    >>> wf.nn.functional.rnn_relu_cell([1.0], [2.0], [[3.0]], [[1.0]]).tolist()
    [5.0]
    """
    return _one_step(_RELU, input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


def _one_step(kind: CellKind, x, state, w_ih, w_hh, b_ih, b_hh):
    x, state = as_tensor(x), tuple(as_tensor(s) for s in state)
    w_hh = as_tensor(w_hh)
    _check_weights(kind, 0, as_tensor(w_ih), w_hh, x.shape[-1] if x.shape else 0)
    b_hh = None if b_hh is None else as_tensor(b_hh)
    return kind.step(linear(x, w_ih, b_ih), state, mT(w_hh), b_hh)


def _run(
    kind: CellKind,
    x,
    state,
    params,
    has_biases,
    num_layers,
    dropout,
    train,
    bidirectional,
    batch_first,
):
    x, state = as_tensor(x), tuple(as_tensor(s) for s in state)
    directions, alone = 1 + bool(bidirectional), x.ndim == 2
    weights = _group_weights(kind, params, has_biases, num_layers * directions)
    if alone:
        x, batch_first = reshape(x, (x.shape[0], 1, x.shape[1])), False
        state = tuple(reshape(s, (*s.shape[:1], 1, *s.shape[1:])) for s in state)
    elif batch_first:
        x = permute(x, (1, 0, 2))
    _check(kind, x, state, weights)
    starts, ends = list(zip(*(unstack(s, 0) for s in state), strict=True)), []
    for layer in range(num_layers):
        outputs = []
        for d in range(directions):
            k = layer * directions + d
            last, ys = _pass(kind, x, starts[k], weights[k], bool(d))
            ends.append(last)
            outputs.append(ys)
        x = outputs[0] if directions == 1 else concat(outputs, 2)
        if dropout and layer + 1 < num_layers:
            x = _dropout(x, dropout, train)
    last = [stack(list(part), 0) for part in zip(*ends, strict=True)]
    if alone:
        x = reshape(x, (x.shape[0], x.shape[2]))
        last = [reshape(s, (s.shape[0], s.shape[2])) for s in last]
    return permute(x, (1, 0, 2)) if batch_first else x, *last


def _pass(kind: CellKind, x, start: tuple, weights, reverse: bool):
    """One direction of one layer: the last state, and the outputs."""
    w_ih, w_hh, b_ih, b_hh = weights
    recurrent = mT(w_hh)
    # The part that does not depend on the state is computed for all steps in one product.
    early = b_hh is not None and kind.name != "gru"
    gates = linear(x, w_ih, b_ih + b_hh if early else b_ih)
    bias = None if early else b_hh

    def step(state, z):
        state = kind.step(z, state, recurrent, bias)
        return state, state[0]

    return scan(step, start, gates, reverse=reverse)


def _group_weights(kind: CellKind, params, has_biases: bool, passes: int) -> list[tuple]:
    """(W_ih, W_hh, b_ih, b_hh) of each direction of each layer."""
    params, each = [as_tensor(p) for p in params], 4 if has_biases else 2
    if len(params) != each * passes:
        raise errors.ArgumentError(
            f"{kind.name}: {len(params)} parameters, expected {each} for each of {passes} passes "
            "(layers times directions)"
        )
    groups = [params[k : k + each] for k in range(0, len(params), each)]
    return [(*g, *(None,) * (4 - each)) for g in groups]


def _check(kind: CellKind, x, state: tuple, weights: list[tuple]) -> None:
    if x.ndim != 3 or not x.shape[0]:
        raise errors.ShapeError(
            f"{kind.name}: input of shape {x.shape}; expected (T, N, in) with T ≥ 1, or (N, T, in) "
            "with batch_first=True"
        )
    hidden = weights[0][1].shape[-1]
    expected = (len(weights), x.shape[1], hidden)
    if len(state) != kind.states or any(s.shape != expected for s in state):
        shown = ", ".join(str(s.shape) for s in state)
        raise errors.ShapeError(
            f"{kind.name}: states of shape {shown}; expected {kind.states} of {expected}: "
            "(layers·directions, N, hidden)"
        )
    per_layer = 1 if len(weights) == 1 or weights[1][0].shape != weights[0][0].shape else 2
    _check_weights(kind, 0, weights[0][0], weights[0][1], x.shape[-1])
    for k, (w_ih, w_hh, *_) in enumerate(weights[per_layer:]):
        _check_weights(kind, k + per_layer, w_ih, w_hh, w_ih.shape[-1])


def _check_weights(kind: CellKind, k: int, w_ih, w_hh, width: int) -> None:
    hidden = w_hh.shape[-1] if w_hh.shape else 0
    if w_ih.shape != (kind.gates * hidden, width) or w_hh.shape != (kind.gates * hidden, hidden):
        raise errors.ShapeError(
            f"{kind.name}: weights {w_ih.shape} and {w_hh.shape} of pass {k}; expected "
            f"({kind.gates}·hidden, {width}) and ({kind.gates}·hidden, hidden)"
        )
