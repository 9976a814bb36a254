"""The ranks that train one model together, as each of them sees the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from json import dumps, loads
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .. import errors
from ..arrays import random
from .parts import Part

if TYPE_CHECKING:
    from ..dist.member import Member

Value = TypeVar("Value")
# The bytes that each rank's facts have room in; larger ones are sent a second time.
_ROOM = 1016


class Ranks:
    """The group of a run; without one, or with one of a single process, nothing is sent.

    Facts that ranks tell each other are plain data, as JSON.

    group    the processes that train together; None: this one alone
    stopped  why the run stops, once all ranks know that one of them asked for it
    """

    _guarded = ("group", "stopped", "_failure", "_known")  # the group's name and size do not change

    def __init__(self, group: Member | None = None):
        self.group = None if group is None or group.size == 1 else group
        self.rank: int = 0 if self.group is None else self.group.rank
        self.size: int = 1 if self.group is None else self.group.size
        self.stopped: str | None = None
        self._failure: Exception | None = None  # of what only this rank does
        self._known: Exception | None = None  # an error that all ranks know of

    @property
    def alone(self) -> bool:
        """Whether no other process takes part."""
        return self.group is None

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes files and speaks to people."""
        return self.rank == 0

    @cached_property
    def part(self) -> Part | None:
        """This rank's part of batches; None: all of them."""
        return None if self.alone else Part(self.rank, self.size)

    def begin(self) -> None:
        """Forget what earlier runs have left."""
        self.stopped = self._failure = self._known = None

    # Facts and failures

    def together(self, what: str, action: Callable[[], Any]) -> list[Any]:
        """What an action gives on each rank: plain data; if it fails on any, all ranks raise.

        what    that is done, for messages; the same on all ranks
        action  done by each rank
        """
        if self.group is None:
            return [action()]
        value, failure = None, self._failure
        try:
            value = action() if failure is None else None
        except Exception as e:  # told to the others, and raised below
            failure = e
        found = self._exchange({"what": what, "value": value, "failure": _describe(failure)})
        _refuse_other_places([facts["what"] for facts in found])
        if failure is not None:
            self._failure, self._known = None, failure
            raise failure
        for r, facts in enumerate(found):
            if facts["failure"] is not None:
                self._known = _failure_of(r, what, *facts["failure"])
                raise self._known
        return [facts["value"] for facts in found]

    def from_first(self, what: str, action: Callable[[], Any]) -> Any:
        """What an action of rank 0 gives; the others wait for it, and raise if it fails."""
        return self.together(what, action if self.first else lambda: None)[0]

    def agree(self, what: str, facts: dict[str, Any]) -> None:
        """Raise on all ranks unless all have the same facts, naming the first that differs."""
        if self.group is not None:
            same_facts(what, self.together(what, lambda: facts))

    def note_failure(self, error: Exception) -> None:
        """Keep an error of what only this rank does until the ranks meet: then all raise."""
        self._failure = self._failure or error

    def announce(self, error: BaseException) -> None:
        """Tell ranks that wait for this one why it does not come."""
        failed = isinstance(error, Exception) and not isinstance(error, errors.DistributedError)
        if self.group is None or not failed or error is self._known:
            return
        try:  # ranks that fail alike say the same, and may go on
            self.group.agree(f"failed: {type(error).__name__}: {_message(error)}").wait()
        except errors.DistributedError:
            return  # the others were about to do something else, and know now

    def _exchange(self, facts: dict[str, Any]) -> list[dict[str, Any]]:
        """The facts of all ranks, in their order."""
        data = dumps(facts).encode()
        sent, longest = self._gather(data, _ROOM)
        if longest > _ROOM:
            sent, _ = self._gather(data, longest)
        return [loads(x) for x in sent]

    def _gather(self, data: bytes, room: int) -> tuple[list[bytes], int]:
        """What of each rank's bytes there is room for, and the length of the longest."""
        packed = len(data).to_bytes(8, "little") + data[:room].ljust(room, b" ")
        rows = self.group.all_gather(np.frombuffer(packed, np.uint8))  # type: ignore[union-attr]
        found = [np.asarray(row).tobytes() for row in rows]
        lengths = [int.from_bytes(row[:8], "little") for row in found]
        return [row[8 : 8 + n] for row, n in zip(found, lengths, strict=True)], max(lengths)

    # Random numbers

    @contextmanager
    def own_streams(self) -> Iterator[None]:
        """A block whose draws differ between ranks; those of rank 0 are a single process's."""
        with random.folded(self.rank):
            yield

    def meet_streams(self, positions: list[dict[str, int]]) -> None:
        """Go on, on each rank, behind what any rank has drawn.

        positions  of the streams of all ranks, by their names
        """
        if self.alone:
            return
        state = random.get_state()
        for name in positions[0]:
            state[name] = max(found[name] for found in positions)
        random.set_state(state)


def _refuse_other_places(found: list[str]) -> None:
    """Raise unless all ranks exchange facts for the same purpose."""
    if len(set(found)) > 1:
        listed = "; ".join([f"rank {r}: {what}" for r, what in enumerate(found)])
        raise errors.RanksDiffer(
            f"Trainer: the ranks are at different places of the run: {listed}. All ranks must call "
            "save(), evaluate() and fit() alike, also in callbacks"
        )


def positions() -> dict[str, int]:
    """Where this rank's streams are."""
    return {n: p for n, p in random.get_state().items() if n.split(".")[-1] == "position"}


def same_facts(what: str, found: list[dict[str, Any]]) -> None:
    """Raise unless all ranks have the same facts."""
    for name in dict.fromkeys(name for facts in found for name in facts):
        values = [facts.get(name) for facts in found]
        other = next((r for r, value in enumerate(values) if value != values[0]), None)
        if other is not None:
            came = _difference(values[0], values[other])
            raise errors.RanksDiffer(
                f"{what}: {name} differs: rank 0 has {came[0]}, rank {other} has {came[1]}; all "
                "ranks must train the same model on the same data with the same settings"
            )


def _difference(a: Any, b: Any, place: str = "") -> tuple[str, str]:
    """What differs in two facts, within tables at the first place that does."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys((*a, *b)):
            if key not in a or key not in b:
                has = [f"{place}{key}" if key in x else f"no {place}{key}" for x in (a, b)]
                return has[0], has[1]
            if a[key] != b[key]:
                return _difference(a[key], b[key], f"{place}{key} ")
    return f"{place}{a!s:.200}", f"{place}{b!s:.200}"


def _message(error: BaseException) -> str:
    return error.message if isinstance(error, errors.WeftError) else str(error)


def _describe(failure: Exception | None) -> list[str] | None:
    return None if failure is None else [type(failure).__name__, _message(failure)]


def _failure_of(rank: int, what: str, kind: str, message: str) -> Exception:
    """The error of another rank; of its own class if that is one of Weft's."""
    found = getattr(errors, kind, None) if kind in vars(errors) else None
    if isinstance(found, type) and issubclass(found, errors.WeftError):
        return found(f"{message} (on rank {rank})")
    return errors.DistributedError(f"{what}: rank {rank} has failed: {kind}: {message}")


ALONE = Ranks()
