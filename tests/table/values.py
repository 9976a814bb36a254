"""Checks of a row's values at one case: shape rule, backends, memory layouts, precisions."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from weft import errors
from weft.core import dtypes
from weft.core.explain import infer
from weft.core.op import Partials
from weft.transform.checking.ridders import UNITS, pool_noise, spread

from .probe import Layout, Probe, Run, dtype_of, inexact, raw, to_numpy
from .problems import Finding, differs
from .reference import Reference
from .trial import Trial


def check_shape_rule(trial: Trial) -> Iterator[Finding]:
    """The shape rule predicts the shape and the dtype of every result."""
    probe = trial.probe
    tensors = probe.place([raw(probe.case.args[i], probe.backend) for i in probe.moving])
    predicted = infer(probe.op, tensors, probe.case.static)
    predicted = predicted if isinstance(predicted, tuple) else (predicted,)
    results = probe.bare(tensors)
    if len(predicted) != len(results):
        yield "shape rule", f"{len(predicted)} results predicted, {len(results)} came"
    for k, (aval, t) in enumerate(zip(predicted, results, strict=False)):
        was, dtype = tuple(t._data.shape), dtype_of(t._data)
        if not _fits(aval.shape, was) or aval.dtype != dtype:
            said = f"{tuple(aval.shape)} {aval.dtype}"
            yield "shape rule", f"result {k} is {was} {dtype}, predicted {said}"


def _fits(predicted: tuple, shape: tuple) -> bool:
    """Whether a shape is as predicted; -1 stands for a length that depends on the values."""
    return len(predicted) == len(shape) and all(
        a in (-1, n) for a, n in zip(predicted, shape, strict=True)
    )


def _arrays(results: tuple) -> list[np.ndarray]:
    return [to_numpy(t._data) for t in results]


def _exact(found: list[np.ndarray], expected: list[np.ndarray]) -> Iterator[str]:
    """Integer and boolean results must agree exactly."""
    for k, (a, b) in enumerate(zip(found, expected, strict=True)):
        if dtypes.is_inexact(b.dtype):
            continue
        if a.shape != b.shape or not np.array_equal(a, b):
            yield f"result {k} is {a.tolist()}, expected {b.tolist()}"


def check_value(trial: Trial) -> Iterator[Finding]:
    """The value is the NumPy backend's, within the conditioning at this point."""
    ref, probe = trial.ref, trial.probe
    expected = _arrays(ref.probe.call(ref.probe.place(_at(ref.probe, ref.x))))
    results = _arrays(probe.call(probe.place(_at(probe, ref.x))))
    for message in _exact(results, expected):
        yield "value", message
    eps = ref.eps if ref.probe.case.smooth else 0.0
    noise = _value_bound(ref, eps)
    found = differs(_inexact(results), _inexact(expected), noise)
    if found:
        yield "value", f"not the NumPy backend's: {found}"


def _value_bound(ref: Reference, eps: float) -> np.ndarray:
    """Measured conditioning; one unit of the value itself where steps cross a kink."""

    def everything(x):
        return _inexact(_arrays(ref.probe.call(ref.probe.place(_at(ref.probe, x)))))

    if not eps:
        return UNITS * ref.eps * np.abs(everything(ref.x))
    return UNITS * _pool_by_kind(ref, spread(everything, ref.x, eps, ref.rng))


def _pool_by_kind(ref: Reference, noise: np.ndarray) -> np.ndarray:
    """Elementwise rows keep one bound an element; all others mix their errors."""
    elementwise = isinstance(ref.probe.op.rule, Partials) and ref.probe.case.post is None
    return noise if elementwise else pool_noise(noise)


def _at(probe: Probe, x: np.ndarray) -> list:
    return probe.layout.unpack(x, probe.backend)


def _inexact(arrays: list[np.ndarray]) -> np.ndarray:
    chosen = [a for a in arrays if dtypes.is_inexact(a.dtype)]
    return Layout.of(chosen).pack(chosen)


def strided(a: np.ndarray) -> np.ndarray:
    """Every second element of a larger memory."""
    wide = np.zeros((*a.shape, 2), a.dtype)
    wide[..., 0] = a
    return wide[..., 0]


def transposed(a: np.ndarray) -> np.ndarray:
    return np.array(a, order="F")


def backwards(a: np.ndarray) -> np.ndarray:
    """Negative strides along every axis."""
    flip = (slice(None, None, -1),) * a.ndim
    return np.ascontiguousarray(a[flip])[flip] if a.ndim else a.copy()


def read_only(a: np.ndarray) -> np.ndarray:
    a = a.copy()
    a.flags.writeable = False
    return a


# torch has neither negative strides nor memory that must not be written.
LAYOUTS = {
    "numpy": (strided, transposed, backwards, read_only),
    "torch": (strided, transposed),
    "cuda": (strided, transposed),
}


def check_layouts(trial: Trial) -> Iterator[Finding]:
    """Value and gradient do not depend on the memory layout, and change no argument."""
    ref, probe = trial.ref, trial.probe
    base = trial.run
    y, wanted = base.y, bool(probe.op.rule is not None and probe.moving)
    g = base.pull(ref.u) if wanted else None
    smooth = ref.probe.case.smooth
    value_bound = ref.value_noise if smooth else _order(y, probe.backend)
    gradient_bound = ref.gradient_noise if smooth and wanted else _order(g, probe.backend)
    for layout in LAYOUTS[probe.backend]:
        args = tuple(layout(a) if isinstance(a, np.ndarray) else a for a in probe.case.args)
        other = Probe(probe.op, replace(probe.case, args=args), probe.backend)
        run = Run(other, [raw(args[i], probe.backend) for i in probe.moving])
        findings = [("value", differs(run.y, y, value_bound))]
        if wanted:
            seeds = [layout(to_numpy(s)) for s in run.layout.unpack(ref.u, "numpy")]
            got = run.cotangents([raw(s, probe.backend) for s in seeds], record=False)
            findings.append(("gradient", differs(other.layout.pack(got), g, gradient_bound)))
        for what, found in findings:
            if found:
                yield "layout", f"{what} of {layout.__name__} arguments: {found}"
        for i, (a, b) in enumerate(zip(args, probe.case.args, strict=True)):
            if isinstance(a, np.ndarray) and not _identical(a, b):
                yield "layout", f"argument {i} was changed ({layout.__name__})"


def _order(values, backend: str) -> float:
    """What adding up in another order changes, which PyTorch's libraries do for another layout."""
    if backend == "numpy" or values is None:
        return 0.0
    return UNITS * 2.0**-52 * np.max(np.abs(values), initial=0.0, where=np.isfinite(values))


def _identical(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a, b, equal_nan=dtypes.is_inexact(b.dtype))


NARROWER = {
    dtypes.float32: {dtypes.float64: dtypes.float32, dtypes.complex128: dtypes.complex64},
    dtypes.float16: {dtypes.float64: dtypes.float16},
    dtypes.bfloat16: {dtypes.float64: dtypes.bfloat16},
}
UNIT = {dtypes.float32: 2.0**-23, dtypes.float16: 2.0**-10, dtypes.bfloat16: 2.0**-7}
LARGEST = {dtypes.float32: 3.4e38, dtypes.float16: 65504.0, dtypes.bfloat16: 3.39e38}
# Half types are computed in float32 and rounded at the end: much fewer units are lost.
LOSS = {dtypes.float32: UNITS, dtypes.float16: UNITS / 8, dtypes.bfloat16: UNITS / 8}
SMALLEST = {dtypes.float32: 2.0**-126, dtypes.float16: 2.0**-24, dtypes.bfloat16: 2.0**-126}


def check_precision(trial: Trial, precision: np.dtype) -> Iterator[Finding]:
    """Value and gradient in a narrower dtype: that dtype kept, close to float64's."""
    probe = trial.probe
    narrow = NARROWER[precision]
    case = probe.case
    kinds = [a.dtype for a in case.args if inexact(a)]
    if not kinds or any(k not in narrow for k in kinds):
        return
    args = tuple(a.astype(narrow[a.dtype]) if inexact(a) else a for a in case.args)
    other = Probe(probe.op, replace(case, args=args), probe.backend)
    try:
        run = other.run(other.x)
    except errors.DTypeError as e:
        if precision not in dtypes.HALF:
            yield "precision", f"{precision} refused: {e}"
        return
    yield from _kept(probe, other, narrow)
    wide = Probe(probe.op, replace(case, args=_widened(args, case.args)))
    yield from _close(Reference(wide, UNIT[precision]), run, precision)


def _widened(args: tuple, like: tuple) -> tuple:
    return tuple(a.astype(b.dtype) if inexact(b) else a for a, b in zip(args, like, strict=True))


def _kept(probe: Probe, other: Probe, narrow: dict) -> Iterator[Finding]:
    """Results are as narrow as the arguments, unless a static parameter names a dtype."""
    if any(isinstance(s, np.dtype) for s in probe.case.static):
        return
    before = probe.bare(probe.place(_at(probe, probe.x)))
    after = other.bare(other.place(_at(other, other.x)))
    for k, (b, a) in enumerate(zip(before, after, strict=True)):
        was = dtype_of(b._data)
        expected = narrow.get(was, was)
        if was not in dtypes.COMPLEX and dtype_of(a._data) != expected:
            yield "precision", f"result {k} is {dtype_of(a._data)}, expected {expected}"


def _close(ref: Reference, run: Run, precision: np.dtype) -> Iterator[Finding]:
    name = precision.name
    units = LOSS[precision]
    floor = units * SMALLEST[precision]
    noise = spread(ref.probe.value, ref.x, ref.eps, ref.rng)
    bound = units * _pool_by_kind(ref, noise) + floor
    found = differs(run.y, ref.y, _lenient(bound, ref.y, precision))
    if found:
        yield "precision", f"{name} value: {found}"
    if ref.probe.op.rule is None or not ref.probe.case.smooth or not run.leaves:
        return
    # The case's own function would be computed in half precision too: its intermediate
    # results (eigenvectors, say) are less well conditioned than what becomes of them.
    if precision in dtypes.HALF and ref.probe.case.post is not None:
        return
    u = run.layout.pack(run.layout.unpack(ref.u, "numpy"))

    def gradient(x):
        return ref.probe.gradient(x, u, 0.0)

    got, expected = run.pull(u), gradient(ref.x)
    bound = units * pool_noise(spread(gradient, ref.x, ref.eps, ref.rng)) + floor
    found = differs(got, expected, _lenient(bound, expected, precision))
    if found:
        yield "precision", f"{name} gradient: {found}"


def _lenient(bound, expected, precision: np.dtype):
    """No demand where the number does not fit the dtype or the perturbed point does not exist."""
    beyond = ~(np.abs(expected) < LARGEST[precision] / 16)
    return np.where(beyond | np.isnan(bound), np.inf, bound)
