"""Recurrent networks, and their cells for single steps."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import TYPE_CHECKING, Any, Literal

from .. import errors
from ..arrays.arguments import as_tensor
from ..arrays.make import zeros
from . import functional as F
from . import init
from .making import one_of, parameter, probability, sizes
from .module import Module

if TYPE_CHECKING:
    from ..arrays.parameter import Parameter
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike, Device, DTypeLike


class _Recurrent(Module):
    """Weights by layer and direction: weight_ih_l0, …, weight_hh_l1_reverse, bias_ih_l0, …"""

    gates: int
    states: int  # the number of tensors of a state

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
        device: Device | None,
        dtype: DTypeLike | None,
    ):
        super().__init__()
        name = type(self).__name__
        sizes(name, input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.bidirectional = bidirectional
        self.dropout: float = probability(name, dropout)
        directions, rows = 1 + bidirectional, self.gates * hidden_size
        for layer in range(num_layers):
            width = directions * hidden_size if layer else input_size
            shapes: dict[str, tuple[int, ...]] = {
                "weight_ih": (rows, width),
                "weight_hh": (rows, hidden_size),
            }
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)} if bias else {}
            for direction in ("", "_reverse")[:directions]:
                for what, shape in shapes.items():
                    made = parameter(shape, device, dtype)
                    self.register_parameter(f"{what}_l{layer}{direction}", made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values: uniform in ±1/√hidden_size.

        >>> import weft as wf
        >>> layer = wf.nn.GRU(3, 5)
        >>> layer.reset_parameters()
        >>> all(wf.max(wf.abs(p)).item() <= 5**-0.5 for p in layer.parameters())
        True
        """
        bound = 1 / sqrt(self.hidden_size)
        for p in self.parameters(recurse=False):
            init.uniform_(p, -bound, bound)

    def _run(self, function: Callable[..., Any], input: ArrayLike, hx: Any) -> Any:
        x = as_tensor(input)
        self._check(x)
        state = self._zeros(x) if hx is None else hx
        params = list(self._parameters.values())
        how = self.bias, self.num_layers, self.dropout, self.training, self.bidirectional
        return function(x, state, params, *how, self.batch_first)

    def _check(self, x: Tensor) -> None:
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            order = "(N, T, in)" if self.batch_first else "(T, N, in)"
            raise errors.ShapeError(
                f"{type(self).__name__}: input of shape {x.shape}, expected {order} or (T, in), "
                f"in = {self.input_size}"
            )

    def _zeros(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """The state to begin with."""
        rows = self.num_layers * (1 + self.bidirectional)
        batch = () if x.ndim == 2 else (x.shape[0 if self.batch_first else 1],)
        made = zeros((rows, *batch, self.hidden_size), dtype=x.dtype, device=x.device)
        return made if self.states == 1 else (made, made)

    def extra_repr(self) -> str:
        shown = f"{self.input_size}, {self.hidden_size}"
        usual: dict[str, Any] = {"num_layers": 1, "bias": True, "batch_first": False}
        usual |= {"dropout": 0.0, "bidirectional": False}
        for name, default in usual.items():
            if getattr(self, name) != default:
                shown += f", {name}={getattr(self, name)}"
        return shown


class RNN(_Recurrent):
    """h ← tanh(W_ih·x + b_ih + W_hh·h + b_hh) over (T, N, in): the outputs and the last states.

    input_size, hidden_size  the widths of x and h
    num_layers               so many networks, each over the outputs of the one before
    nonlinearity             "tanh" or "relu"
    bias                     whether there are biases
    batch_first              inputs and outputs are (N, T, …)
    dropout                  of the outputs between layers, in training
    bidirectional            also from the end to the beginning; outputs are beside each other
    device, dtype            of the parameters, which begin uniform in ±1/√hidden_size

    `forward(x, h)` begins with a state; without it with zeros.

    >>> import weft as wf
    >>> y, h = wf.nn.RNN(3, 5, bidirectional=True)(wf.ones((7, 4, 3)))
    >>> y.shape, h.shape
    ((7, 4, 10), (2, 4, 5))
    """

    gates: int = 1
    states: int = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: Literal["tanh", "relu"] = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
    ):
        how = num_layers, bias, batch_first, dropout, bidirectional, device, dtype
        super().__init__(input_size, hidden_size, *how)
        self.nonlinearity: str = one_of("RNN", "nonlinearity", nonlinearity, ("tanh", "relu"))

    def forward(self, input: ArrayLike, hx: ArrayLike | None = None) -> tuple[Tensor, Tensor]:
        function = F.rnn_tanh if self.nonlinearity == "tanh" else F.rnn_relu
        return self._run(function, input, hx)


class LSTM(_Recurrent):
    """Long short-term memory over (T, N, in): the outputs and the last (h, c).

    input_size, hidden_size  the widths of x and h
    num_layers               so many networks, each over the outputs of the one before
    bias                     whether there are biases
    batch_first              inputs and outputs are (N, T, …)
    dropout                  of the outputs between layers, in training
    bidirectional            also from the end to the beginning; outputs are beside each other
    device, dtype            of the parameters, which begin uniform in ±1/√hidden_size

    i, f, g, o = W_ih·x + b_ih + W_hh·h + b_hh; c ← σ(f)·c + σ(i)·tanh(g); h ← σ(o)·tanh(c).
    `forward(x, (h, c))` begins with a state; without it with zeros.

    >>> import weft as wf
    >>> y, (h, c) = wf.nn.LSTM(3, 5, num_layers=2)(wf.ones((7, 4, 3)))
    >>> y.shape, h.shape
    ((7, 4, 5), (2, 4, 5))
    """

    gates: int = 4
    states: int = 2

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
    ):
        how = num_layers, bias, batch_first, dropout, bidirectional, device, dtype
        super().__init__(input_size, hidden_size, *how)

    def forward(
        self, input: ArrayLike, hx: tuple[ArrayLike, ArrayLike] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y, h, c = self._run(F.lstm, input, hx)
        return y, (h, c)


class GRU(_Recurrent):
    """Gated recurrent units over (T, N, in): the outputs and the last states.

    input_size, hidden_size  the widths of x and h
    num_layers               so many networks, each over the outputs of the one before
    bias                     whether there are biases
    batch_first              inputs and outputs are (N, T, …)
    dropout                  of the outputs between layers, in training
    bidirectional            also from the end to the beginning; outputs are beside each other
    device, dtype            of the parameters, which begin uniform in ±1/√hidden_size

    r and z are σ(W_ih·x + b_ih + W_hh·h + b_hh), n = tanh(W_in·x + b_in + r·(W_hn·h + b_hn));
    h ← (1 − z)·n + z·h. `forward(x, h)` begins with a state; without it with zeros.

    >>> import weft as wf
    >>> y, h = wf.nn.GRU(3, 5)(wf.ones((7, 4, 3)))
    >>> y.shape, h.shape
    ((7, 4, 5), (1, 4, 5))
    """

    gates: int = 3
    states: int = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
    ):
        how = num_layers, bias, batch_first, dropout, bidirectional, device, dtype
        super().__init__(input_size, hidden_size, *how)

    def forward(self, input: ArrayLike, hx: ArrayLike | None = None) -> tuple[Tensor, Tensor]:
        return self._run(F.gru, input, hx)


class _RecurrentCell(Module):
    """One step, with weights weight_ih, weight_hh, bias_ih and bias_hh."""

    gates: int
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        device: Device | None,
        dtype: DTypeLike | None,
    ):
        super().__init__()
        sizes(type(self).__name__, input_size=input_size, hidden_size=hidden_size)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = self.gates * hidden_size
        self.weight_ih: Parameter = parameter((rows, input_size), device, dtype)
        self.weight_hh: Parameter = parameter((rows, hidden_size), device, dtype)
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, parameter((rows,), device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values: uniform in ±1/√hidden_size.

        >>> import weft as wf
        >>> layer = wf.nn.GRUCell(3, 5)
        >>> layer.reset_parameters()
        >>> all(wf.max(wf.abs(p)).item() <= 5**-0.5 for p in layer.parameters())
        True
        """
        bound = 1 / sqrt(self.hidden_size)
        for p in self.parameters(recurse=False):
            init.uniform_(p, -bound, bound)

    def _weights(self) -> tuple[Parameter, Parameter, Parameter | None, Parameter | None]:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def _check_input(self, input: ArrayLike) -> Tensor:
        x = as_tensor(input)
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            raise errors.ShapeError(
                f"{type(self).__name__}: input of shape {x.shape}, expected (N, "
                f"{self.input_size}) or ({self.input_size},)"
            )
        return x

    def _zeros(self, x: Tensor) -> Tensor:
        return zeros((*x.shape[:-1], self.hidden_size), dtype=x.dtype, device=x.device)

    def extra_repr(self) -> str:
        shown = f"{self.input_size}, {self.hidden_size}"
        return shown if self.bias else f"{shown}, bias=False"


class RNNCell(_RecurrentCell):
    """One step h ← tanh(W_ih·x + b_ih + W_hh·h + b_hh); h is zeros if it is not given.

    input_size, hidden_size  the widths of x and h
    bias                     whether there are biases
    nonlinearity             "tanh" or "relu"
    device, dtype            of the parameters, which begin uniform in ±1/√hidden_size

    >>> import weft as wf
    >>> wf.nn.RNNCell(3, 5)(wf.ones((4, 3))).shape
    (4, 5)
    """

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: Literal["tanh", "relu"] = "tanh",
        device: Device | None = None,
        dtype: DTypeLike | None = None,
    ):
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity: str = one_of("RNNCell", "nonlinearity", nonlinearity, ("tanh", "relu"))

    def forward(self, input: ArrayLike, hx: ArrayLike | None = None) -> Tensor:
        x = self._check_input(input)
        step = F.rnn_tanh_cell if self.nonlinearity == "tanh" else F.rnn_relu_cell
        return step(x, self._zeros(x) if hx is None else hx, *self._weights())


class LSTMCell(_RecurrentCell):
    """One step of `LSTM`: (h, c) from x (N, in) and (h, c), zeros if it is not given.

    input_size, hidden_size  the widths of x and h
    bias                     whether there are biases
    device, dtype            of the parameters, which begin uniform in ±1/√hidden_size

    >>> import weft as wf
    >>> h, c = wf.nn.LSTMCell(3, 5)(wf.ones((4, 3)))
    >>> h.shape, c.shape
    ((4, 5), (4, 5))
    """

    gates = 4

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
    ):
        super().__init__(input_size, hidden_size, bias, device, dtype)

    def forward(
        self, input: ArrayLike, hx: tuple[ArrayLike, ArrayLike] | None = None
    ) -> tuple[Tensor, Tensor]:
        x = self._check_input(input)
        state = (self._zeros(x), self._zeros(x)) if hx is None else hx
        return F.lstm_cell(x, state, *self._weights())


class GRUCell(_RecurrentCell):
    """One step of `GRU`: h from x (N, in) and h (N, hidden), zeros if it is not given.

    input_size, hidden_size  the widths of x and h
    bias                     whether there are biases
    device, dtype            of the parameters, which begin uniform in ±1/√hidden_size

    >>> import weft as wf
    >>> wf.nn.GRUCell(3, 5)(wf.ones((4, 3))).shape
    (4, 5)
    """

    gates = 3

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
    ):
        super().__init__(input_size, hidden_size, bias, device, dtype)

    def forward(self, input: ArrayLike, hx: ArrayLike | None = None) -> Tensor:
        x = self._check_input(input)
        return F.gru_cell(x, self._zeros(x) if hx is None else hx, *self._weights())
