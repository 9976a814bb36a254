"""SciPy's array API functions on tensors beside NumPy arrays; run with SCIPY_ARRAY_API=1."""

import sys
import warnings
from importlib import import_module

import numpy as np

import weft as wf

RNG = np.random.default_rng(0)
X, Y = RNG.uniform(0.1, 0.9, 60), RNG.uniform(0.1, 0.9, 7)
M = RNG.uniform(0.1, 0.9, (6, 6))
ARGUMENTS = {
    "signal": [(X, Y), (Y, X), (M, M), (X,), (M,), (X, 3), (M, 3), (Y, Y, X), (X, 2, 3)],
    "ndimage": [(M, 1.0), (M,), (M, 3), (M, M[:3, :3]), (X, Y)],
    "special": [(X,), (X, X), (X, X, X)],
    "stats": [(X,), (X, X**2), (X, 0.5), (M,), (X, X**2, X**3)],
    "linalg": [(M,), (M, M), (M, Y[:6])],
}
# Not fit for arbitrary arguments: they crash, take minutes, or invert singular matrices.
SKIPPED = set("test permutation_test bootstrap epps_singleton_2samp".split())
SKIPPED |= {"distance_transform_cdt", "distance_transform_bf"}
MODULES = {name: import_module(f"scipy.{name}") for name in ARGUMENTS}


def parts(result) -> list:
    if isinstance(result, wf.Tensor):
        return [result.numpy()]
    if isinstance(result, list | tuple):
        return [p for r in result for p in parts(r)]
    if isinstance(result, np.ndarray | np.generic | float | int | complex | bool):
        return [np.asarray(result)]
    return []


def ordered(x: np.ndarray) -> np.ndarray:
    """Roots of polynomials come in any order."""
    return np.sort_complex(np.round(x, 9)) if x.dtype.kind == "c" and x.ndim == 1 else x


def differs(mine: list, right: list) -> bool:
    if len(mine) != len(right):
        return True
    mine, right = map(ordered, mine), map(ordered, right)
    return not all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-7, atol=1e-9, equal_nan=True)
        for a, b in zip(mine, right, strict=True)
    )


def tensors(args) -> list:
    return [wf.tensor(a) if isinstance(a, np.ndarray) else a for a in args]


def main() -> None:
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    same, wrong = 0, []
    for place in sys.argv[1:]:
        module = MODULES[place]
        for name in sorted(module.__all__):
            f = getattr(module, name)
            if not callable(f) or isinstance(f, type) or name in SKIPPED:
                continue
            for args in ARGUMENTS[place]:
                try:
                    right = parts(
                        f(*[np.array(a) if isinstance(a, np.ndarray) else a for a in args])
                    )
                    mine = parts(f(*tensors(args)))
                except Exception:
                    continue
                same += 1
                if differs(mine, right):
                    wrong.append(f"{place}.{name}{[getattr(a, 'shape', a) for a in args]}")
    print(same, *wrong, sep="\n")


if __name__ == "__main__":
    main()
