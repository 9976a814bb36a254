"""Calls of every public function of NumPy and `scipy.special`, found by trying arguments."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import scipy.special

RNG = np.random.default_rng(7)
# Between 0.2 and 0.8, no two alike: inside of most domains, away from kinks.
VECTOR, OTHER, THIRD, FOURTH = (RNG.permutation(np.linspace(0.21, 0.79, 4)) for _ in range(4))
MATRIX = RNG.uniform(0.2, 0.8, (3, 3)) + np.diag([3.0, 2.0, 1.5])
SECOND = RNG.uniform(0.2, 0.8, (3, 3)) + np.diag([1.0, 2.5, 4.0])
ORDERS = np.array([1, 2, 3, 2])

MODULES = {"np": np, "np.linalg": np.linalg, "np.fft": np.fft, "scipy.special": scipy.special}

# What is not called, and why.
LEFT_OUT = {
    "reads or writes files": """
        fromfile fromregex genfromtxt load loadtxt memmap save savetxt savez savez_compressed
        DataSource""",
    "gives what memory held": "empty empty_like ndarray",
    "prints or tells of the library": """
        get_include info show_config show_runtime test get_printoptions set_printoptions
        printoptions getbufsize setbufsize geterr seterr geterrcall seterrcall errstate errprint
        format_parser print_function""",
    "is a class of exceptions or of dtypes, or takes a dtype": """
        LinAlgError AxisError ComplexWarning VisibleDeprecationWarning SpecialFunctionError
        SpecialFunctionWarning dtype finfo iinfo issubdtype isdtype promote_types can_cast
        common_type mintypecode typename busdaycalendar generic number integer signedinteger
        unsignedinteger inexact floating complexfloating flexible character""",
    "takes no floating-point data": """
        busday_count busday_offset is_busday datetime64 timedelta64 datetime_as_string datetime_data
        isnat binary_repr base_repr packbits unpackbits frompyfunc str_ bytes_ void object_ recarray
        record rec char char.array chararray fromstring frombuffer fromfunction fromiter
        iterable isscalar bmat ndindex nested_iters nditer vectorize""",
}
REASONS = {name: reason for reason, names in LEFT_OUT.items() for name in names.split()}


@dataclass(frozen=True)
class Call:
    """A function's call as a function of one array, which is what is differentiated."""

    name: str
    form: str
    f: Callable
    at: np.ndarray

    @property
    def x(self) -> np.ndarray:
        """A new copy at each use: some functions write into their arguments."""
        return self.at.copy()

    @property
    def label(self) -> str:
        return f"{self.name}({self.form})"


def functions() -> Iterator[tuple[str, Callable]]:
    """Every public callable, under each module's name."""
    for prefix, module in MODULES.items():
        for name in sorted(dir(module)):
            f = getattr(module, name)
            if not name.startswith("_") and callable(f) and not isinstance(f, ModuleType):
                yield f"{prefix}.{name}", f


# Ways to call a function with one array x, by its text; c, d, e are other arrays of the shape.
_FORMS = {
    form: eval(f"lambda f, x, c, d, e, i: f({form})")
    for form in (
        *("x", "x, c", "c, x", "x, 2", "2, x", "x, 1", "1, x", "x, 0.5", "0.5, x", "x, i", "i, x"),
        *("[x, c]", "[c, x]", "x, [1]", "x, x", "x, -1", "x, (1, 2)", "[1, 0], x", "(2,), x"),
        *("x, c, d", "c, x, d", "c, d, x", "x, 0.3, 0.6", "x, 0.3, 2", "x, [0.3, 0.6], [1.0, 2.0]"),
        *("x, 2, 1", "x, 0, 1", "2, 1, x", "2, 3, x", "1, x, 2", "[x > 0.5], [x]", "x > 0.5, x"),
        *("x > 0.5, x, c", "c > 0.5, c, x", "x, c > 0.5", "x, [x > 0.5], [x[0], 1.0]", "x, i, 0"),
        *("x, c, d, e", "c, x, d, e", "c, d, x, e", "c, d, e, x", "x, (2, 2)", "x[0], 2.0, 3"),
        *("1, 2, x", "2, 3, 0.4, x", "1, 1.5, 0.4, x", "2, 0.3, 0.2, x", "2, x, 0.3", "2.0, x[0]"),
        *("x[0], 3.0", "0.1, x[0], 4", "(4,), x[0]", "x, i, c", "x, c, 1", "x[0]", "x[0], x[1]"),
        *("x[0], 2", "2, x[0]", "2, 3, x[0]", "1, 1, 2, x[0]", "x[0], x[1], x[2]"),
        *("2, 2, x[0], 0.4", "1, 1, 1.5, x[0]", "x[0], 1, 1, 2", "x, None, 2"),
        *("'ij,jk', x, c", "'ij->ji', x"),
        *("np.sum, 0, x", "np.sum, x, [0]", "x, 3, -1", "0, x", "-1, x", "x, 'ij->ji'", "x, 4"),
    )
}  # fmt: skip
# Functions whose arguments nobody guesses.
_OWN = {
    "np.piecewise": "x, [x > 0.5], [lambda v: v * v, lambda v: v]",
    "np.pad": "x, 1, 'reflect'",
    "np.apply_along_axis": "np.sum, 0, x",
    "np.apply_over_axes": "np.sum, x, [0]",
    "np.histogram": "c, 3, None, None, x",
    "np.einsum_path": "'ij,jk', x, c",
    "np.unwrap": "x * 9",
    "np.block": "[[x, c], [c, x]]",
    "np.nan_to_num": "x, True, 1.0",
    "np.ix_": "i, i",
    "np.lexsort": "(x, c)",
}
# SciPy 1.17 does not come back from some calls of the first two.
_ONLY = {
    "scipy.special.hyp1f1": ("x, c, d", "c, x, d"),
    "scipy.special.stdtrit": ("x, c", "c, x"),
    # These look at one triangle of a matrix, Weft at its symmetric part.
    "np.linalg.cholesky": ("x + x.T",),
    "np.linalg.eigh": ("x + x.T",),
    "np.linalg.eigvalsh": ("x + x.T",),
    # Booleans are float32 here, and rcond=1 is a matter of rounding.
    "np.linalg.lstsq": ("x, c", "c, x", "x, c, 0.4"),
    "np.interp": ("x, [0.0, 0.5, 1.0], [1.0, 3.0, 2.0]", "c, [0.0, 0.4, 1.0], x[:3]"),
}


def _values() -> list[tuple]:
    """(x, c, d, e, i) of each shape."""
    scalar = tuple(np.array(v[0]) for v in (VECTOR, OTHER, THIRD, FOURTH))
    vector, matrix = (VECTOR, OTHER, THIRD, FOURTH), (MATRIX, SECOND, MATRIX.T + 0.1, SECOND.T)
    sets = [(*vector, ORDERS), (*matrix, ORDERS[:3]), (*scalar, np.array(2))]
    return [tuple(map(np.copy, values)) for values in sets]


def calls_of(name: str, f: Callable, most: int) -> list[Call]:
    """Calls that the function takes and answers with floats or anything else, at most so many."""
    own = _ONLY.get(name, (_OWN[name],) if name in _OWN else ())
    forms = {form: eval(f"lambda f, x, c, d, e, i: f({form})", {"np": np}) for form in own}
    forms |= {} if name in _ONLY else _FORMS
    found, shapes = [], {}
    for form, call in forms.items():
        for x, c, d, e, i in _values():
            if len(found) == most or shapes.get(form, 0) == 2:
                break

            def g(x, call=call, rest=(c, d, e, i)):
                return call(f, x, *map(np.copy, rest))  # some write into their arguments

            if any(leaf.dtype.kind in "fc" and np.isfinite(leaf).any() for leaf in _tried(g, x)):
                found.append(Call(name, f"{form} of {x.shape}", g, x))
                shapes[form] = shapes.get(form, 0) + 1
    return found


def _tried(g: Callable, x: np.ndarray) -> list[np.ndarray]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return leaves_of(g(x.copy()))
        except Exception:
            return []


def leaves_of(result) -> list:
    """The arrays in a result: NumPy's as they are, tensors too, numbers as arrays."""
    if isinstance(result, list | tuple):
        return [leaf for part in result for leaf in leaves_of(part)]
    if hasattr(result, "requires_grad"):
        return [result]
    if result is None or isinstance(result, str | bytes | type | np.dtype | dict):
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array = np.asarray(result)
    return [array] if array.dtype.kind in "fciub" else []
