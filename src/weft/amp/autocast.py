"""Autocast: a block whose operations choose their precision by the table."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Never

from ..arrays.keywords import unexpected_keyword
from ..core.autocast import Autocast, KeptCasts
from ..core.settings import SettingsBlock, current, override_settings
from .config import AmpConfig, PrecisionMode


@contextmanager
def _casting(autocast: Autocast) -> Iterator[None]:
    """A block under autocast, which keeps the casts of parameters until its end."""
    kept = KeptCasts()
    try:
        with override_settings(autocast=Autocast(autocast.dtype, autocast.columns, kept)):
            yield
    finally:
        kept.close()


class _AutocastBlock(SettingsBlock):
    """An autocast block, a function, a generator or a coroutine."""

    def _switch(self) -> Callable[[], Any]:
        return partial(_casting, self._fields["autocast"])


def autocast(mode: Any = "bfloat16", enabled: bool = True, **unknown: Never) -> SettingsBlock:
    """A block, or a decorated function, in which operations compute in a half type where they can.

    mode     "bfloat16" or "float16", as a name, a dtype or a `PrecisionMode`; or an `AmpConfig`,
             whose lists of operations then hold
    enabled  False: a block, maybe inside another one, in which nothing is cast

    Every row of the table has a column that says what becomes of its arguments:

    half    matrix products, convolutions, attention, recurrent cells: cast to the half type
    single  exponentials, logarithms, powers, sums, norms, softmax, losses, linear algebra, special
            functions: cast to float32
    any     all others: as they come, the wider dtype winning

    float64, complex numbers and integers are left alone, and so is what is computed beside them.
    The casts are operations like any other: gradients come back in the parameters' dtypes. On
    PyTorch's devices a parameter is cast once in a block, unless it changes.
    Backward passes and rules compute in the dtypes of the values they get, whatever block they run
    in. A custom operation gets its inputs as they are, and autocast is off inside its functions:
    it computes what it says. Likewise `out=` and `copy_` keep the dtype of what they write to.

    >>> import weft as wf
    >>> x = wf.ones((2, 2))
    >>> with wf.amp.autocast("bfloat16"):
    ...     y = x @ x
    ...     z = wf.exp(y)
    >>> y.dtype.name, z.dtype.name
    ('bfloat16', 'float32')
    """
    if unknown:
        raise unexpected_keyword(autocast, unknown)
    if isinstance(mode, AmpConfig):
        found = mode.autocast
    else:
        found = PrecisionMode.read("autocast", mode).autocast()
    if not enabled or found is None:
        return SettingsBlock(autocast=None)
    return _AutocastBlock(autocast=found)


def is_autocast_enabled() -> bool:
    """Whether operations are being cast.

    >>> import weft as wf
    >>> with wf.amp.autocast("bfloat16"):
    ...     wf.amp.is_autocast_enabled()
    True
    """
    return current.get().autocast is not None
