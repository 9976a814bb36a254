"""The ambient settings: one frozen value in one context variable."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property, wraps
from inspect import iscoroutinefunction, isgeneratorfunction
from typing import Any, TypeVar, cast

from ..errors import StagingError
from .record import field, record

RECORD, PLAIN, GENERAL, CASTING = 1, 0, 2, 3

F = TypeVar("F", bound=Callable[..., Any])


@record
class Settings:
    """What changes the meaning of an operation without being one of its arguments.

    grad         whether operations on tracked tensors are recorded
    anomaly      whether every result is checked for NaN and infinity
    saved_hooks  (pack, unpack) for what is saved for the backward pass
    saving       a checkpoint strategy at work: it decides what of that is kept
    tapes        the gradient tapes whose `with` block is running
    levels       the transformations that are running, the innermost last
    enclosed     whether a function is being differentiated here, and gradients in it with it
    draws        (generator, words) -> ReservedBlocks, in place of the generators' own `advance`
    autocast     an `Autocast`: the dtypes that rows' arguments are cast to
    determinism  a `Determinism`: random streams, and what to do if a result may not repeat
    staging      the trace that operations are appended to instead of being computed
    target       the machine that programs are compiled for; None: this processor
    """

    grad: bool = True
    anomaly: bool = False
    saved_hooks: Any = None
    saving: Any = None
    tapes: tuple[Any, ...] = ()
    levels: tuple[Any, ...] = ()
    enclosed: bool = False
    draws: Any = None
    autocast: Any = None
    determinism: Any = None
    staging: Any = None
    target: Any = None
    # The path that dispatch takes: RECORD and PLAIN are the fast ones, CASTING is one of them after
    # autocast's casts. `way_uncast` is the path of rows whose column is "any".
    way: int = field(init=False, default=RECORD)
    way_uncast: int = field(init=False, default=RECORD)

    def __post_init__(self) -> None:
        general = self.anomaly or self.saved_hooks is not None
        general = general or self.staging is not None or self.saving is not None
        way = uncast = GENERAL if general else RECORD if self.grad else PLAIN
        if not general and self.autocast is not None:
            way, uncast = CASTING, GENERAL if self.autocast.columns else uncast
        object.__setattr__(self, "way", way)
        object.__setattr__(self, "way_uncast", uncast)

    def but(self, fields: dict[str, Any]) -> "Settings":
        """The same with some fields replaced: `replace`, which is slow, for every block."""
        new = object.__new__(Settings)
        own = new.__dict__
        own.update(self.__dict__)
        own.pop("exact", None)  # what was found for the others
        known = len(own)
        own.update(fields)
        if len(own) != known:
            raise TypeError(f"Settings: no such field among {', '.join(fields)}")
        new.__post_init__()
        return new

    @cached_property
    def exact(self) -> "Settings":
        """The same without autocast: every operation in the dtype of its arguments."""
        return self if self.autocast is None else self.but({"autocast": None})


DEFAULT = Settings()
current: ContextVar[Settings] = ContextVar("weft_settings", default=DEFAULT)


def _under(settings: Settings) -> Iterator[None]:
    """The body of a context manager that runs a block under settings.

    If a signal handler raises while the block is being left, Python closes this generator at some
    later time. Then the settings are those of before already, unless no block is around this one.
    """
    token, over = current.set(settings), False
    try:
        yield
    except GeneratorExit:
        over = current.get() is not settings
        raise
    finally:
        if not over:
            current.reset(token)


@contextmanager
def override_settings(**fields):
    """Run a block under the current settings with some fields replaced."""
    yield from _under(current.get().but(fields))


@contextmanager
def exactly():
    """Run a block without autocast: rules get values whose dtypes are settled."""
    yield from _under(current.get().exact)


class SettingsBlock:
    """Settings replaced for a block, a function, a generator or a coroutine."""

    def __init__(self, **fields: Any):
        self._fields = fields
        self._blocks: list[Any] = []

    def _switch(self) -> Callable[[], Any]:
        """A factory of context managers for one use: a block, a call, or a generator's steps."""
        return lambda: override_settings(**self._fields)

    def __enter__(self) -> None:
        block = self._switch()()
        block.__enter__()
        self._blocks.append(block)

    def __exit__(self, *exc: Any) -> None:
        self._blocks.pop().__exit__(*exc)

    def __call__(self, f: F) -> F:
        return cast(F, self._around(f))

    def _around(self, f: Callable[..., Any]) -> Callable[..., Any]:
        if isgeneratorfunction(f):
            return self._stepwise(f)
        if iscoroutinefunction(f):

            @wraps(f)
            async def awaited(*args, **kwargs):
                with self._switch()():
                    return await f(*args, **kwargs)

            return awaited

        @wraps(f)
        def switched(*args, **kwargs):
            with self._switch()():
                return f(*args, **kwargs)

        return switched

    def _stepwise(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """A generator whose steps run under the replaced settings; its caller does not."""

        @wraps(f)
        def steps(*args, **kwargs):
            generator, sent, switch = f(*args, **kwargs), None, self._switch()
            while True:
                with switch():
                    try:
                        item = generator.send(sent)
                    except StopIteration as stop:
                        return stop.value
                sent = yield item

        return steps


def refuse_while_staging(what: str) -> None:
    """Refuse a change of ambient state while tracing: it would happen once, not at each call."""
    if current.get().staging is not None:
        raise StagingError(
            f"compile: {what} in a function that is being compiled, which would happen once, not "
            "at each call; do it outside of the function"
        )


def traced(x: Any) -> Any:
    """A tensor as a value of the function that is being compiled, if there is one.

    What takes the raw array of a tensor asks for this first: a raw array would be a constant of the
    program, and the tensor may change between two calls.
    """
    staging = current.get().staging
    return x if staging is None else staging.of(x)
