"""A group's domain: the domain axis of each axis of each value."""

from ...core.record import field, record

Axes = tuple[int, ...]  # domain axes, one for each axis of a value; STILL for axes of length 1
STILL = -1


@record(frozen=False)
class Group:
    """Equations that one kernel computes."""

    domain: list[int] = field(default_factory=list)
    folded: frozenset[int] = frozenset()
    values: dict[int, Axes] = field(default_factory=dict)
    reads: dict[int, Axes] = field(default_factory=dict)  # values from outside
    moving: set[int] = field(default_factory=set)  # values that vary along the folded axes
    inner: set[int] = field(default_factory=set)  # last axes of values that have all folded axes

    def innermost(self, axes: Axes) -> int | None:
        """The last axis of a value that has all folded axes; None for others."""
        if not self.folded <= {*axes}:
            return None
        return next(a for a in reversed(axes) if a != STILL)

    @property
    def kept(self) -> frozenset[int]:
        return frozenset(range(len(self.domain))) - self.folded


@record
class Fit:
    """How an equation fits into a group."""

    axes: Axes
    grown: tuple[int, ...] = ()  # the lengths of axes that the domain gains
    folded: frozenset[int] | None = None  # the folded axes, if it is a fold


def agree(axes: list[int], found: Axes) -> bool:
    """Merge the axes of an operand into those of a result; False if they disagree."""
    start = len(axes) - len(found)
    for i, a in enumerate(found, start):
        if a == STILL:
            continue
        if axes[i] not in (STILL, a) or (axes[i] == STILL and a in axes):
            return False
        axes[i] = a
    return True


def without_ones(axes: Axes, old: tuple[int, ...], new: tuple[int, ...]) -> Axes | None:
    """The axes after a reshape that adds or removes axes of length 1; None after others."""
    if [n for n in old if n != 1] != [n for n in new if n != 1]:
        return None
    rest = iter([a for a, n in zip(axes, old, strict=True) if n != 1])
    return tuple(STILL if n == 1 else next(rest) for n in new)


def rename_axes(axes: Axes, pairs: dict[int, int]) -> Axes:
    return tuple(STILL if a == STILL else pairs[a] for a in axes)


def map_axes(axes: frozenset[int], pairs: dict[int, int]) -> frozenset[int]:
    return frozenset(pairs[a] for a in axes)


def complete_pairs(target: Group, other: Group, pairs: dict[int, int]) -> dict[int, int] | None:
    """Pair each axis of a group with one of another, by folds and lengths; None if impossible."""
    pairs = dict(pairs)
    for a, n in enumerate(other.domain):
        if a not in pairs:
            free = [
                b
                for b, m in enumerate(target.domain)
                if m == n
                and b not in pairs.values()
                and (b in target.folded) == (a in other.folded)
            ]
            if not free:
                return None
            pairs[a] = free[0]
    lengths = all(other.domain[a] == target.domain[b] for a, b in pairs.items())
    distinct = len(set(pairs.values())) == len(pairs)
    folds = map_axes(other.folded, pairs)
    same = not other.folded or not target.folded or folds == target.folded
    return pairs if lengths and distinct and same else None
