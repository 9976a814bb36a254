"""One program of views and writes in NumPy and in Weft, side by side."""

import numpy as np

import weft as wf
from weft import errors

from .programs import draw

REFUSED = (errors.ViewAssignment, errors.TemporaryAssignment)
_MISTAKES = (ValueError, IndexError, TypeError, FloatingPointError)


def values(scope: dict) -> dict[str, np.ndarray]:
    return {
        n: np.array(scope[n].tolist())
        for n in scope
        if n not in ("np", "snapshot", "__builtins__", "row")
    }


class Run:
    """Statement by statement: all names have NumPy's values, or the write is refused.

    Tensors are values: a view that was taken before its base was assigned to keeps what it had.
    That is the one difference to NumPy; the reference makes a copy of such a view.

    done       the statements that were run
    reference  the same, and these copies
    """

    def __init__(self, seed: int, start=lambda x: wf.tensor(x) * 1.0):
        rng = np.random.default_rng(seed)
        self.x = rng.uniform(-2.0, 2.0, (4, 4))
        self.ours = {"np": np, "a": start(self.x)}
        self.theirs = {"np": np, "snapshot": snapshot, "a": self.x * 1.0}
        self.family = {"a": "a"}  # by name: the first of those that lie in one memory
        self.serials, self.ancestors = {"a": 0}, {0: frozenset()}  # of tensors
        self.stale: set[str] = set()
        self.done: list[str] = []
        self.reference: list[str] = []
        self.refused = self.writes = 0
        for target, source, text in draw(rng, 14):
            if source in self.theirs and self.is_valid(text):
                self.step(target, source, text)

    @property
    def names(self) -> list[str]:
        return list(values(self.theirs))

    def is_valid(self, text: str) -> bool:
        """Whether NumPy can do it."""
        trial = {"np": np} | {n: alike(self.theirs[n]) for n in self.names}
        try:
            with np.errstate(all="raise"):
                exec(text, trial)
        except (*_MISTAKES, NameError):
            return False
        return True

    def step(self, target: str, source: str, text: str) -> None:
        before = values(self.ours)
        writes = not target and not text.startswith("del")
        self.writes += writes
        try:
            exec(text, self.ours)
        except errors.WeftError as e:
            self.refuse(before, source, text, isinstance(e, REFUSED))
            return
        if writes:
            lost = source in self.stale and self.relatives(source) and "row" not in text
            assert not lost, f"{text!r} is lost: the base was assigned to"
            self.keep_snapshots(source)
            self.stale -= {n for n in self.stale if n not in self.names or not self.relatives(n)}
        self.follow(text)
        if target:
            self.adopt(target, source)

    def adopt(self, target: str, source: str) -> None:
        """Note whether a new array is a view."""
        scalar = not isinstance(self.theirs[source], np.ndarray)  # Weft's are arrays
        views = scalar or owner(self.theirs[target]) is owner(self.theirs[source])
        self.family[target] = self.family[source] if views else target
        if self.ours[target] is self.ours[source]:
            self.serials[target] = self.serials[source]
        else:
            self.serials[target] = serial = len(self.ancestors)
            above = self.serials[source]
            self.ancestors[serial] = self.ancestors[above] | {above} if views else frozenset()
        if views and source in self.stale:
            self.stale.add(target)

    def refuse(self, before: dict, source: str, text: str, as_view: bool) -> None:
        """Nothing has changed, and somebody could have looked for the change."""
        self.refused += as_view
        self.ours.pop("row", None)
        after = values(self.ours)
        assert all(np.array_equal(before[n], after[n]) for n in before), text
        temporary = any(mark in text for mark in ("][", ")[", ".T[", "row"))
        assert not as_view or temporary or self.relatives(source), f"{text!r}: nobody would see it"

    def follow(self, text: str) -> None:
        exec(text, self.theirs)
        self.ours.pop("row", None)
        self.theirs.pop("row", None)
        self.done.append(text)
        self.reference.append(text)
        mine, right = values(self.ours), values(self.theirs)
        assert mine.keys() == right.keys()
        for n, expected in right.items():
            np.testing.assert_allclose(mine[n], expected, rtol=1e-12, err_msg=f"{n} after {text!r}")

    def relatives(self, name: str) -> list[str]:
        """Other live tensors that lie, or lay, in the memory of one."""
        others = [n for n in self.names if self.ours[n] is not self.ours[name]]
        return [n for n in others if self.family[n] == self.family[name]]

    def keep_snapshots(self, source: str) -> None:
        """Copy, in the reference, the views of what is written now."""
        for n in self.relatives(source):
            if self.descends(n, source):
                same = [m for m in self.stale if self.ours.get(m) is self.ours[n]]
                copy = f"{n} = {same[0]}" if same else f"{n} = snapshot({n})"
                exec(copy, self.theirs)
                self.reference.append(copy)
                self.stale.add(n)

    def descends(self, name: str, source: str) -> bool:
        return self.serials[source] in self.ancestors[self.serials[name]]


def alike(array: np.ndarray) -> np.ndarray:
    copy = np.array(array)
    copy.flags.writeable = getattr(array, "flags", copy.flags).writeable
    return copy


def snapshot(array: np.ndarray) -> np.ndarray:
    """A copy that lies in its own memory as the array lies in its."""
    whole = owner(array)
    offset = array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    copy = np.ndarray(array.shape, array.dtype, whole.copy(order="K"), offset, array.strides)
    copy.flags.writeable = array.flags.writeable
    return copy


def owner(array: np.ndarray) -> np.ndarray:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
