"""Tables of embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import errors
from ..arrays.arguments import as_tensor
from ..arrays.inplace import copy_
from ..arrays.parameter import Parameter
from ..ops.elementwise import where
from ..transform.modes.backward import no_grad
from . import functional as F
from . import init
from .making import parameter, sizes
from .module import Module

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike, Device, DTypeLike


class Embedding(Module):
    """The rows of a table that integers name, (…) to (…, embedding_dim).

    num_embeddings  how many rows the table has
    embedding_dim   how long they are
    padding_idx     a row that is zero at first and gets no gradient; negative ones count from
                    the end
    max_norm        rows that are used and longer are first shortened to it, in place
    norm_type       the p of that norm
    device, dtype   of the table

    >>> import weft as wf
    >>> wf.nn.Embedding(10, 3)(wf.tensor([[1, 2, 4, 5]])).shape
    (1, 4, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
    ):
        super().__init__()
        sizes("Embedding", num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise errors.ArgumentError(
                f"Embedding: padding_idx={padding_idx} of {num_embeddings} rows; expected "
                f"-{num_embeddings} to {num_embeddings - 1}"
            )
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        row = None if padding_idx is None else padding_idx % num_embeddings
        self.padding_idx: int | None = row
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.weight: Parameter = parameter((num_embeddings, embedding_dim), device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values: standard normal, 0 in the row of `padding_idx`.

        >>> import weft as wf
        >>> layer = wf.nn.Embedding(4, 2, padding_idx=0)
        >>> layer.reset_parameters()
        >>> layer.weight[0].tolist()
        [0.0, 0.0]
        """
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                copy_(self.weight, self.weight.detach().at[self.padding_idx].set(0.0))

    @classmethod
    def from_pretrained(
        cls, embeddings: ArrayLike, freeze: bool = True, **options: Any
    ) -> Embedding:
        """A layer with this table (a copy of it).

        embeddings  the table (num_embeddings, embedding_dim)
        freeze      whether it is left as it is in training
        options     `padding_idx`, `max_norm` and `norm_type`, as of the class

        >>> import weft as wf
        >>> layer = wf.nn.Embedding.from_pretrained([[1.0, 2.0], [3.0, 4.0]])
        >>> layer(wf.tensor([1])).tolist(), layer.weight.requires_grad
        ([[3.0, 4.0]], False)
        """
        table = as_tensor(embeddings)
        if table.ndim != 2:
            raise errors.ShapeError(
                f"from_pretrained: a table of shape {table.shape}, expected (rows, width)"
            )
        rows, width = table.shape
        made = cls(rows, width, **options, device=table.device, dtype=table.dtype)
        made.weight = Parameter(table.detach(), requires_grad=not freeze)
        return made

    def forward(self, input: ArrayLike) -> Tensor:
        if self.max_norm is not None:
            self._shorten(as_tensor(input), self.max_norm)
        return F.embedding(input, self.weight, self.padding_idx)

    def _shorten(self, i: Tensor, longest: float) -> None:
        """Scale the indexed rows whose norm exceeds `max_norm`."""
        with no_grad():
            table, rows = self.weight.detach(), i.reshape(-1)
            used = table[rows]
            length = (abs(used) ** self.norm_type).sum(-1, keepdims=True) ** (1 / self.norm_type)
            short = used * (longest / (length + 1e-7))  # rounding must not exceed max_norm again
            copy_(self.weight, table.at[rows].set(where(length > longest, short, used)))

    def extra_repr(self) -> str:
        shown = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            shown += f", padding_idx={self.padding_idx}"
        return shown if self.max_norm is None else f"{shown}, max_norm={self.max_norm}"
