"""`ForwardADContext`: forward mode under the seeds' names."""

from collections.abc import Callable
from typing import Any

from ...arrays import namespace
from ...arrays.make import asarray
from ...core.box import Level, LooseLevel, innermost
from ...core.settings import current, override_settings
from ...core.value import wrap
from ..modes.dual import Dual, matching_tangent, unwrap_if_plain


class ForwardADContext:
    """A forward calculation: duals of its own level, and every operation as a method.

    Duals of one context never mix their tangents with those of another, so contexts nest.

    >>> import weft as wf
    >>> ctx = wf.ForwardADContext()
    >>> x = ctx.dual(wf.tensor(2.0), wf.tensor(1.0))
    >>> ctx.mul(x, x).tangent.item()
    4.0
    """

    def __init__(self):
        self._tags: dict[float, float] = {}
        self._blocks: list = []

    def _tag(self) -> float:
        """This context's level inside the transformation that is running now."""
        running = innermost()
        around = running.tag if running else 0
        if around in self._tags.values():  # the level is this context's own
            return around
        if around not in self._tags:
            self._tags[around] = LooseLevel(None)
        return self._tags[around]

    def dual(self, value: Any, tangent: Any) -> Any:
        """A dual tensor on this context's level.

        value    the value
        tangent  its tangent, of the same shape

        >>> import weft as wf
        >>> x = wf.ForwardADContext().dual(wf.tensor(2.0), wf.tensor(1.0))
        >>> (x * x).tangent.item()
        4.0
        """
        value = asarray(value)
        tangent = matching_tangent("dual", value, asarray(tangent))
        return wrap(Dual(self._tag(), unwrap_if_plain(value), unwrap_if_plain(tangent)))

    def __enter__(self) -> "ForwardADContext":
        block = override_settings(levels=(*current.get().levels, Level(Dual, self._tag())))
        block.__enter__()
        self._blocks.append(block)
        return self

    def __exit__(self, *exc: Any) -> None:
        self._blocks.pop().__exit__(*exc)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = namespace.FUNCTIONS.get(name)
        if function is None:
            raise AttributeError(f"ForwardADContext: there is no operation {name!r}")
        return function
