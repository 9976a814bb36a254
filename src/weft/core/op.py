"""The table's rows: an operation, its derivative in one of three kinds, and TABLE itself."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from .record import record

Derivative = Callable[..., Any] | int | float
T = TypeVar("T")

# Which of (y, *args) a rule's function reads; the last flag also covers all further arguments.
Reads = tuple[bool, ...]


@record
class Partials:
    """Elementwise: ∂y/∂xᵢ as a function of (y, *args, *static), or a constant.

    A function marked with `times` states the product instead: (t, y, *args, *static) -> ∂y/∂xᵢ·t.

    A parameter whose name starts with an underscore is not kept for the backward pass; the
    function then gets a stand-in that knows the shape and the dtype only. `strong[i]` marks a
    partial that can be infinite: its product with a zero (co)tangent is an exact zero.
    `keep`, where given, maps (y, *args, *static) to the tuple that is saved and handed to the
    partials in place of those.
    """

    d: tuple[Derivative | None, ...]
    strong: tuple[bool, ...]
    keep: Callable[..., tuple[Any, ...]] | None = None
    reads: tuple[Reads, ...] | None = None


@record
class LinearRule:
    """Linear in each argument: `transpose[i](g, *args, *static)` is the pull-back.

    None in place of a transpose says that the argument carries no derivative (an index).
    A row with any number of arguments has one transpose, called as (g, i, args, *static).
    `joint` marks a row that is linear in its arguments together, Px + Qv, and not a product
    of them: its tangent is the row applied to all tangents, zeros for the absent ones.
    `at_once`, where given, is another row: (g, *args, *static) to what all transposes give. Plain
    sweeps take it on backends where one call is quicker than several.
    """

    transpose: tuple[Callable[..., Any] | None, ...]
    joint: bool = False
    reads: tuple[Reads, ...] | None = None
    at_once: Callable[..., Any] | None = None


@record
class Jvp:
    """Everything else: `push(tangents, y, *args, *static)`; absent tangents are None.

    `pull(g, y, *args, *static)`, where given, returns one cotangent (or None) per argument;
    where it is not, the pull-back is the transpose of the push-forward. Of several outputs it
    gets None for those that are `unread`, and they are not kept for it.
    """

    push: Callable[..., Any]
    pull: Callable[..., Any] | None = None
    keep: Callable[..., tuple[Any, ...]] | None = None
    unread: tuple[int, ...] = ()
    reads: Reads | None = None


Rule = Partials | LinearRule | Jvp | None


@record(eq=False)
class Op:
    """One row.

    name       the kernel's name in the backends' namespaces, unless `compute` is given
    compute    (xp, *args, *static) on raw arrays; xp is the backend's namespace
    shape      (*avals, *static) -> aval(s); raises if the arguments do not fit
    rule       the derivative; None where there is none
    arity      number of array arguments before the static ones; None: a sequence of arrays
    spell      further public names
    promote    arguments cast to a common dtype; None: all of them
    floating   integers are first cast to floats
    integral   booleans are first cast to integers, of 8 bits as in NumPy
    static     whether promoted arguments are followed by static parameters
    recast     the result's dtype may differ from the arguments'
    outputs    how many arrays it returns, `tracked` which of them carry a derivative
    precision  what autocast does: "half", "single" or "any"
    batch      (call, size, mapped, args, static) -> result(s) with a leading batch axis, where
               `mapped` says which arguments have one
    sample     rng -> cases for the tests that are generated from the table
    foreign    its functions are the user's own: their exceptions pass unchanged
    stage      (operands, static) -> results: how the row is traced, where its shape rule alone
               does not determine the results
    several    it stands for a whole program: a cotangent None means no path, not a zero derivative
    moves      its pull-back only moves elements and adds them up, with positive weights: applied to
               a mask, it tells where a cotangent can differ from zero
    collective it joins arrays of several processes, which all call it in the same order: it is
               computed at each call, never beforehand
    doc        for the docstring of its public function: the mathematics in one line, and below it
               an example, `sqrt([4.0]) = [2.0]`, or with ≈ if it is rounded to four digits
    """

    name: str
    compute: Callable[..., Any] | None
    shape: Callable[..., Any]
    rule: Rule
    arity: int | None
    spell: tuple[str, ...] = ()
    promote: tuple[int, ...] | None = ()
    floating: bool = False
    integral: bool = False
    static: bool = False
    recast: bool = False
    outputs: int = 1
    tracked: tuple[int, ...] = (0,)
    precision: str = "any"
    batch: Callable[..., Any] | None = None
    sample: Callable[..., Iterable[Any]] | None = None
    foreign: bool = False
    stage: Callable[..., Any] | None = None
    several: bool = False
    public: str = ""
    cost: str = "heavy"
    compares: bool = False
    folds: str = ""
    views: str = ""
    moves: str = ""
    pulls_mask: bool = False
    collective: bool = False
    doc: str = ""

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def call(
        self, f: Callable[..., Any], operands: Sequence[Any], static: Sequence[Any] = ()
    ) -> Any:
        """Call f with `compute`'s arguments after xp: the operands, then the static parameters."""
        return f(operands, *static) if self.arity is None else f(*operands, *static)


class Caller(Protocol):
    """The function that applies an operation: (*arrays, *static) -> one array, or several."""

    op: Op
    __name__: str

    def __call__(self, *args: Any) -> Any: ...


TABLE: dict[str, Op] = {}
# The ways of moving elements whose destinations do not depend on values.
MOVES = frozenset(("strides", "parts", "indices"))


def enter(op: Op) -> Op:
    """Put a row into the table."""
    if op.name in TABLE:
        raise ValueError(f"the table already has a row {op.name!r}")
    TABLE[op.name] = op
    return op


def states_product(d: Derivative | None) -> bool:
    """Whether a partial was given as its product with a (co)tangent."""
    return getattr(d, "times", False)


def _saved_by(op: Op, i: int, count: int) -> tuple[bool, ...]:
    """(y, *args) flags: what the pull-back towards argument i reads."""
    rule, flags = op.rule, (False,)
    if isinstance(rule, Partials) and callable(rule.d[i]):
        flags = (True,) if rule.reads is None else rule.reads[i]
    elif isinstance(rule, LinearRule):
        k = 0 if op.arity is None else i
        if rule.transpose[k] is not None:
            flags = (False, True) if rule.reads is None else rule.reads[k]
    elif isinstance(rule, Jvp):
        flags = (True,) if rule.reads is None else rule.reads
    return (*flags, *flags[-1:] * (count + 1 - len(flags)))[: count + 1]


def saves(op: Op, tracked: Sequence[bool]) -> tuple[bool, ...]:
    """(y, *args) flags: what must be kept when these arguments are tracked."""
    flags = [False] * (len(tracked) + 1)
    for i, on in enumerate(tracked):
        if on:
            for k, f in enumerate(_saved_by(op, i, len(tracked))):
                flags[k] = flags[k] or f
    return tuple(flags)


# Operations derived from rows of the table, which live as long as those.
DERIVED: set[Op] = set()


class ByRow(dict[Op, T]):
    """A cache by row, filled at first use.

    The table's rows live as long as the process. Other rows (custom operations, compiled
    functions) store the entry on themselves, so that it is freed with them.
    """

    def __init__(self, make: Callable[[Op], T]):
        self._make = make

    def __missing__(self, op: Op) -> T:
        if TABLE.get(op.name) is op or op in DERIVED:
            self[op] = made = self._make(op)
            return made
        own, key = op.__dict__, self._make.__name__
        if key not in own:
            own[key] = self._make(op)
        return own[key]
