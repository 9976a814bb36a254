"""Autocast: a block whose operations choose their precision by the table."""

from typing import Any, Never

from ..arrays.keywords import unexpected_keyword
from ..core.settings import SettingsBlock, current
from .config import AmpConfig, PrecisionMode


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
    The casts are operations like any other: gradients come back in the parameters' dtypes.
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
    return SettingsBlock(autocast=found if enabled else None)


def is_autocast_enabled() -> bool:
    """Whether operations are being cast.

    >>> import weft as wf
    >>> with wf.amp.autocast("bfloat16"):
    ...     wf.amp.is_autocast_enabled()
    True
    """
    return current.get().autocast is not None
