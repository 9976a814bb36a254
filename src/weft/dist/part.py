"""One rank's part of a sharded optimizer: an optimizer of pieces of the parameters."""

from typing import Any

from ..core.backends import BACKENDS
from ..core.value import wrap
from ..optim.averaged import SelfAveragingOptimizer
from ..optim.optimizer import Optimizer
from ..optim.parameters import ParameterEntry
from ..optim.state import Slot, take
from .gathering import write_range
from .shares import Piece


def cut(x: Any, piece: Piece) -> Any:
    """A piece of an array, in the array's own memory where it is contiguous."""
    return x if piece.whole else x.reshape(-1)[piece.start : piece.stop]


class Part:
    """An optimizer of the rule of another one, over pieces of its parameters.

    optimizer  has the states of the pieces, under the keys of the parameters
    pieces     by key
    entries    of the pieces, by key
    """

    def __init__(self, base: Optimizer):
        self._base = base
        own = self.optimizer = type(base)(base.config)
        own.takes_more = False
        if isinstance(base, SelfAveragingOptimizer) and isinstance(own, SelfAveragingOptimizer):
            own.is_averaged = base.is_averaged
        self.pieces: dict[str, Piece] = {}
        self.entries: dict[str, ParameterEntry] = {}
        self._params: dict[str, Any] = {}
        self._bound: dict[str, Any] = {}  # the parameters' arrays of which pieces are views

    def take_over(self, pieces: dict[str, Piece], states: dict[str, dict[str, Any]]) -> None:
        """Adopt other pieces, with their parts of the parameters' states."""
        base, own = self._base, self.optimizer
        by_key = {e.key: e for e in base.entries()}
        self.pieces, self._bound = pieces, {}
        self._params = {key: by_key[key].param for key in pieces}
        tensors = {key: wrap(cut(p._data, pieces[key])) for key, p in self._params.items()}
        own.param_groups.clear()
        own.read_groups()
        for group in base.param_groups:
            keys = [e.key for e in base.entries() if e.group is group and e.key in pieces]
            named = [(key, tensors[key]) for key in keys]
            own.add_param_group({**group, "params": named})
        self.entries = {e.key: e for e in own.entries()}
        own.state = {key: self.cut_state(key, states[key]) for key in pieces if key in states}

    def follow(self) -> None:
        """Adopt the settings of the groups as they are now."""
        base, own = self._base, self.optimizer
        base._check_groups()
        own._config = base._config
        for theirs, mine in zip(base._param_groups, own._param_groups, strict=True):
            mine.update({name: value for name, value in theirs.items() if name != "params"})

    def bind(self) -> None:
        """Let the pieces be the memory that the parameters have now, or a copy of it."""
        for key, p in self._params.items():
            raw, held = p._data, self._bound.get(key)
            if held is not raw:
                piece = self.entries[key].param._data = cut(raw, self.pieces[key])
                views = BACKENDS[type(raw)].lies_in(piece, raw)
                self._bound[key] = raw if views else None

    def write_back(self, keys: list[str]) -> None:
        """Write pieces that are copies into the parameters."""
        for key in keys:
            piece, p = self.entries[key].param, self._params[key]
            if piece.size and not BACKENDS[type(p._data)].lies_in(piece._data, p._data):
                write_range(p._data, self.pieces[key].start, piece._data.reshape(-1))

    def slots(self, key: str) -> dict[str, Slot]:
        """The arrays that the state of a piece may have."""
        entry = self.entries[key]
        settings = entry.group | self.optimizer.switched_on
        return self.optimizer.slots(settings, entry.param._data)

    def cut_state(self, key: str, whole: dict[str, Any]) -> dict[str, Any]:
        """The state of a piece, of that of the parameter: numbers and raw arrays."""
        found, slots, piece = {}, self.slots(key), self.pieces[key]
        for name, value in whole.items():
            raw = getattr(value, "_data", value)
            array = name in slots
            found[name] = take(wrap(cut(raw, piece)), slots[name]) if array else value
        return found
