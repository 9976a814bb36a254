"""`wf.compile`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from .. import errors
from ..core.checkpointing import CheckpointConfig
from .compiled import Compiled

P = ParamSpec("P")
R = TypeVar("R")


class CompilesItself(Protocol):
    """An object that defines its own compiled form: a module."""

    def __weft_compiled__(self, programs: Any) -> Any: ...


M = TypeVar("M", bound=CompilesItself)


@overload
def compile(
    f: M,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    max_variants: int = 8,
    dynamic: Mapping[Any, Any] | None = None,
    buckets: Sequence[int] | None = None,
    checkpoint: CheckpointConfig | None = None,
    capture: bool = True,
) -> M: ...
@overload
def compile(
    f: Callable[..., R],
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    max_variants: int = 8,
    dynamic: Mapping[Any, Any],
    buckets: Sequence[int] | None = None,
    checkpoint: CheckpointConfig | None = None,
    capture: bool = True,
) -> "Compiled[..., R]": ...
@overload
def compile(  # type: ignore[overload-overlap]
    f: None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    max_variants: int = 8,
    dynamic: Mapping[Any, Any],
    buckets: Sequence[int] | None = None,
    checkpoint: CheckpointConfig | None = None,
    capture: bool = True,
) -> "Callable[[Callable[..., R]], Compiled[..., R]]": ...
@overload
def compile(
    f: Callable[P, R],
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    max_variants: int = 8,
    dynamic: Mapping[Any, Any] | None = None,
    buckets: Sequence[int] | None = None,
    checkpoint: CheckpointConfig | None = None,
    capture: bool = True,
) -> "Compiled[P, R]": ...
@overload
def compile(
    f: None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    max_variants: int = 8,
    dynamic: Mapping[Any, Any] | None = None,
    buckets: Sequence[int] | None = None,
    checkpoint: CheckpointConfig | None = None,
    capture: bool = True,
) -> "Callable[[Callable[P, R]], Compiled[P, R]]": ...
def compile(
    f: Any = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    max_variants: int = 8,
    dynamic: Mapping[Any, Any] | None = None,
    buckets: Sequence[int] | None = None,
    checkpoint: CheckpointConfig | None = None,
    capture: bool = True,
) -> Any:
    """f as native code, compiled at its first call and for each new kind of arguments.

    f                the function; without it the result is a decorator
    static_argnums   positions of arguments on whose values programs are specialised
    static_argnames  names of such arguments
    max_variants     the largest number of programs; one more is an error
    dynamic          {argument: axis or axes} whose length changes from call to call: one program
                     for each bucket of lengths, with the same results as at the call's own
                     length; where padding would change a result, a `PaddingError` is raised
    buckets          the lengths that such programs are compiled for; else powers of two from 16 on
    checkpoint       a `CheckpointConfig`: values in between that are computed again instead of
                     kept. A budget is for all memory of one call: arguments, captured tensors
                     (parameters, moments), results (gradients) and values in between; an
                     impossible one raises `BudgetExceeded` before anything runs
    capture          whether a GPU runs a program as one captured graph; False: step by step, which
                     what looks at values on the host needs. A CPU has no graphs, and no use for it

    The function is traced once for each kind of call, with tensors that have shapes and dtypes but
    no values. Each call repeats its operations on tensors: also on captured tensors, parameters,
    their `.grad` and an optimizer's state, which are read anew and changed at each call. Floats
    among the arguments are read anew, too. Every other value that the function can read, by any
    path (arguments, globals, outer variables, attributes, items), is guarded: if it changes,
    another program is compiled. What cannot be guarded (clocks, files) is refused. Prints and
    changes of Python objects happen during the trace, not at each call. In `vmap` and `jvp`, and
    inside another compiled function, the function itself runs, as part of the surrounding program.

    A compiled module is a module that shares everything with the original (parameters, buffers,
    modes, hooks, attributes) and whose calls are compiled.

    >>> import weft as wf
    >>> @wf.compile
    ... def f(x):
    ...     return (x * x).sum()
    >>> f(wf.tensor([1.0, 2.0])).item()
    5.0
    >>> mean = wf.compile(lambda x: x.mean(), dynamic={"x": 0})
    >>> [mean(wf.arange(n, dtype="float32")).item() for n in (2, 3, 5)]
    [0.5, 1.0, 2.0]
    >>> len(mean.recompilations)
    0
    """
    if f is None:
        return lambda f: compile(
            f,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            max_variants=max_variants,
            dynamic=dynamic,
            buckets=buckets,
            checkpoint=checkpoint,
            capture=capture,
        )
    inner = getattr(f, "__wrapped__", f) if hasattr(type(f), "_uncompiled") else f
    options = static_argnums, static_argnames, max_variants, checkpoint, capture
    programs = _compile(inner, options, dynamic, buckets)
    view = getattr(type(inner), "__weft_compiled__", None)
    return programs if view is None else view(inner, programs)


def _compile(
    f: Callable[..., Any],
    options: tuple[Any, ...],
    dynamic: Mapping[Any, Any] | None,
    buckets: Sequence[int] | None,
) -> Compiled[..., Any]:
    if dynamic is not None:
        from .dynamic.compiled import DynamicCompiled  # few functions need it

        numbers, names, most, checkpoint, capture = options
        given = numbers, names, most, checkpoint, capture, dynamic, buckets
        return DynamicCompiled(f, *given)
    if buckets is not None:
        raise errors.ArgumentError(
            f"compile: buckets={buckets} without dynamic; give dynamic={{name: axis}} beside it"
        )
    return Compiled(f, *options)
