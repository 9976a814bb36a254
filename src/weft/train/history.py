"""What happened during training, step by step: columns of numbers."""

from collections.abc import Mapping
from math import nan
from typing import Any

import numpy as np

from .. import errors
from ..core.differences import differences


class Series:
    """Rows of named numbers, kept by column; what a row does not have is NaN there.

    >>> from weft.train.history import Series
    >>> series = Series()
    >>> series.append({"step": 1, "loss": 0.5})
    >>> series.append({"step": 2, "loss": 0.25, "accuracy": 1.0})
    >>> series["loss"], series["accuracy"], len(series)
    ([0.5, 0.25], [nan, 1.0], 2)
    """

    def __init__(self) -> None:
        self._columns: dict[str, list] = {}
        self._rows = 0

    def append(self, row: Mapping[str, float]) -> None:
        """Add a row."""
        for name in row:
            self._columns.setdefault(name, [nan] * self._rows)
        for name, column in self._columns.items():
            column.append(row.get(name, nan))
        self._rows += 1

    @property
    def names(self) -> list[str]:
        """The columns there are."""
        return list(self._columns)

    def __getitem__(self, name: str) -> list[float]:
        if name not in self._columns:
            raise errors.MissingParameter(
                f"History: no column {name!r}, only {', '.join(self._columns) or 'no rows yet'}"
            )
        return list(self._columns[name])

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __len__(self) -> int:
        return self._rows

    def row(self, index: int) -> dict[str, float]:
        """One row; −1 is the last."""
        return {name: column[index] for name, column in self._columns.items()}

    def rows(self, step: int) -> list[dict[str, float]]:
        """The rows of a step, which are the last ones, without what they do not have."""
        found: list[dict[str, float]] = []
        for index in range(self._rows - 1, -1, -1):
            row = self.row(index)
            if row["step"] != step:
                break
            found.insert(0, {name: value for name, value in row.items() if value == value})
        return found

    def __repr__(self) -> str:
        return f"Series({self._rows} rows of {', '.join(self._columns)})"

    def state_dict(self) -> dict[str, np.ndarray]:
        """The columns as arrays, of integers or of floats."""
        return {name: np.asarray(column) for name, column in self._columns.items()}

    def load_state_dict(self, saved: Mapping[str, np.ndarray]) -> None:
        """Go on from a `state_dict`."""
        lengths = {len(column) for column in saved.values()}
        if len(lengths) > 1:
            raise errors.StateMismatch(
                f"History: columns of lengths {sorted(lengths)}, expected one length"
            )
        self._columns = {name: np.asarray(column).tolist() for name, column in saved.items()}
        self._rows = lengths.pop() if lengths else 0


class History:
    """What a `Trainer` records; `history["loss"]` is a column of `train`.

    train       a row for each step: step, epoch, loss, grad_norm (before clipping), lr, metrics
    validation  a row for each validation: step, epoch, loss, metrics
    skipped     a row for each step that was not applied: step (the number it would have had),
                epoch, batch, loss, grad_norm, overflow (1 if the loss scale was too large)

    >>> import weft as wf
    >>> history = wf.train.History()
    >>> len(history), history.validation
    (0, Series(0 rows of ))
    """

    PARTS = ("train", "validation", "skipped")

    def __init__(self) -> None:
        self.train: Series = Series()
        self.validation: Series = Series()
        self.skipped: Series = Series()

    def __getitem__(self, name: str) -> list[float]:
        return self.train[name]

    def __len__(self) -> int:
        return len(self.train)

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(getattr(self, part))} {part}" for part in self.PARTS)
        return f"History({counts})"

    def state_dict(self) -> dict[str, Any]:
        """All rows, as arrays.

        >>> import weft as wf
        >>> sorted(wf.train.History().state_dict())
        ['skipped', 'train', 'validation']
        """
        return {part: getattr(self, part).state_dict() for part in self.PARTS}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`.

        saved  what `state_dict()` gave

        >>> import weft as wf
        >>> history = wf.train.History()
        >>> history.load_state_dict(history.state_dict())
        """
        differences({part: {} for part in self.PARTS}, saved).refuse("History.load_state_dict")
        for part in self.PARTS:
            getattr(self, part).load_state_dict(saved[part])
