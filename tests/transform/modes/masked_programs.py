"""Random programs whose masks cut off every element that is not safe, for any library.

Inputs have elements at which functions are singular. `spoiled` says of each value which of its
elements depend on those; `where` takes none of them, so that neither the result nor a derivative
depends on what the unsafe elements are: a reference has safe numbers in their places.
"""

from dataclasses import dataclass, field

import numpy as np

ROWS, COLUMNS = 2, 3
SAFE = 0.5
UNSAFE = (0.0, -1.0, 2.0, -3.0, np.inf, -np.inf, np.nan, 1e300)

# Functions of values in (0.2, 0.8), by the names that the libraries share.
UNARY = (
    *("log", "sqrt", "rsqrt", "reciprocal", "square", "tanh", "sin", "cos", "tan", "exp", "expm1"),
    *("log1p", "log2", "log10", "asin", "acos", "atan", "atanh", "asinh", "sinh", "cosh", "erf"),
    *("erfinv", "logit", "sigmoid", "exp2", "erfc", "abs", "neg", "floor", "relu", "cube"),
    *("power", "half", "gelu", "silu", "softplus", "clip", "acosh"),
)
BINARY = ("mul", "mul", "mul", "div", "div", "add", "sub", "pow", "atan2", "hypot", "xlogy")
BINARY += ("logaddexp", "maximum", "minimum")
MOVES = ("flip", "roll", "turn", "sum0", "sum1", "total", "mean1", "cumsum", "swap", "take", "pair")
MOVES += ("pad",)


@dataclass
class Program:
    """Steps (name, operands, constant) over the values so far, the inputs x, y and s first."""

    inputs: tuple
    unsafe: tuple
    weights: np.ndarray
    steps: list = field(default_factory=list)
    beside: int | None = None  # a safe value that goes into the result without a mask, too

    def run(self, library, x, y, s):
        """The scalar result."""
        values = self.values(library, x, y, s)
        out = values[-1]
        total = (out * library.array(self.weights)).sum() + (out * out).sum() * 0.1
        return total if self.beside is None else total + (values[self.beside] * 0.7).sum()

    def result(self, library, x, y, s):
        """The last value, of which every element is safe."""
        return self.values(library, x, y, s)[-1]

    def values(self, library, x, y, s) -> list:
        """The inputs, and what each step gives."""
        values = [x, y, s]
        for name, operands, constant in self.steps:
            values.append(apply(library, name, [values[i] for i in operands], constant))
        return values

    @property
    def safe(self) -> tuple:
        """The inputs with safe numbers in the unsafe places."""
        return tuple(
            np.where(bad, SAFE, v) for v, bad in zip(self.inputs, self.unsafe, strict=True)
        )


class Spoiled:
    """What each function makes of the flags of unsafe elements."""

    array = staticmethod(np.asarray)
    where = staticmethod(lambda m, a, b: np.where(m, a, not isinstance(b, float) and b))
    flip = staticmethod(lambda a: np.flip(a, -1))
    roll = staticmethod(lambda a: np.roll(a, 1, -1))
    turn = staticmethod(lambda a: a.T.reshape(a.shape))
    sum0 = staticmethod(lambda a: np.broadcast_to(a.any(0, keepdims=True), a.shape))
    sum1 = staticmethod(lambda a: a.any(-1, keepdims=True))
    mean1 = sum1
    total = staticmethod(lambda a: a.any())
    cumsum = staticmethod(lambda a: np.logical_or.accumulate(a, -1))
    swap = staticmethod(lambda a: np.concatenate([a[..., 1:], a[..., :1]], -1))
    pair = staticmethod(lambda a: np.broadcast_to(a, (2, *a.shape)).any(0))
    pad = staticmethod(lambda a: a)
    spread = staticmethod(lambda a: np.broadcast_to(a, (ROWS, COLUMNS)))

    @staticmethod
    def take(a):
        """What an index leaves out is cut off by no mask: beside it nothing is safe."""
        return a[..., [0, 0, 1]] | a[..., 2:] if a.shape[-1:] == (3,) else a

    def __getattr__(self, name):
        return lambda *flags: np.logical_or.reduce(np.broadcast_arrays(*flags))


def draw_program(rng, steps: int, reference) -> Program:
    """A program of about so many steps; the reference keeps its safe values in their domain."""
    inputs = [rng.uniform(0.25, 0.75, shape) for shape in ((ROWS, COLUMNS), (COLUMNS,), ())]
    unsafe = [rng.random(v.shape) < 0.4 for v in inputs]
    inputs = [
        np.where(bad, rng.choice(UNSAFE, v.shape), v) for v, bad in zip(inputs, unsafe, strict=True)
    ]
    p = Program(tuple(inputs), tuple(unsafe), rng.normal(size=(ROWS, COLUMNS)))
    values = [reference.array(v) for v in p.safe]
    flags = list(unsafe)

    def add(name, operands, constant=None):
        values.append(apply(reference, name, [values[i] for i in operands], constant))
        flags.append(apply(Spoiled(), name, [flags[i] for i in operands], constant))
        p.steps.append((name, operands, constant))
        return len(values) - 1

    def tame(i):
        """Value i, brought back to where all functions are smooth."""
        v = np.asarray(values[i])
        return i if ((v > 0.2) & (v < 0.8)).all() else add("squash", (i,))

    for _ in range(steps):
        _extend(rng, values, flags, add, tame)
    last = len(values) - 1
    last = add("spread", (last,))
    add("where", (last,), (~flags[last], 0.0))
    safe = [i for i, flag in enumerate(flags[:-1]) if not np.any(flag)]
    p.beside = int(rng.choice(safe)) if safe else None
    return p


def apply(library, name, args, constant):
    """One step of a program; `where` has a mask, and perhaps a number for what it does not take."""
    if name != "where":
        return getattr(library, name)(*args)
    mask, other = constant
    return library.where(library.array(mask), *args, *([other] if len(args) == 1 else []))


def _extend(rng, values, flags, add, tame) -> None:
    def pick():
        return tame(int(rng.integers(max(0, len(values) - 6), len(values))))

    kind = rng.random()
    if kind < 0.45:
        add(str(rng.choice(UNARY)), (pick(),))
    elif kind < 0.7:
        add(str(rng.choice(BINARY)), (pick(), pick()))
    elif kind < 0.85:
        i = pick()
        if np.ndim(flags[i]):
            add(str(rng.choice(MOVES)), (i,))
    else:
        i = pick()
        taken = ~flags[i] & (rng.random(np.shape(flags[i])) < 0.8)
        if rng.random() < 0.5:
            add("where", (i,), (taken, float(rng.uniform(0.3, 0.7))))
        else:
            j = pick()
            taken = np.where(flags[j], ~flags[i], taken)
            shape = np.broadcast_shapes(np.shape(flags[i]), np.shape(flags[j]))
            add("where", (i, j), (np.broadcast_to(taken, shape), None))
