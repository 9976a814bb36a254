"""DataParallel: a model that several processes train, each on its own share of the data."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

from .. import errors
from ..nn.module import Module
from ..nn.state import changing_buffers
from .reducer import GradientReducer, Sync
from .world import world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..core.checkpointing import CheckpointConfig
    from .compression import Compression
    from .member import Member

_OWN = frozenset(("module", "reducer"))


class DataParallel(Module):
    """A model whose gradients are means over ranks: .grad = Σᵣ gᵣ / size after `backward()`.

    module       the model; its attributes, names and state are also this one's
    bucket_mb    megabytes of gradients that one collective reduces
    compression  what ranks send of gradients: None (all), "float16", "bfloat16", "topk",
                 "powersgd", a `TopK` or a `PowerSGD`

    All ranks wrap the same model and get the parameters and buffers of rank 0. Each call of
    `backward()` through it synchronises, while it runs; at its end buffers (running statistics) are
    rank 0's. Gradients of `wf.grad` and of tapes are this rank's own.

    >>> import weft as wf
    >>> group = wf.dist.init()  # of the processes that torchrun or mpiexec started; else of one
    >>> model = wf.dist.DataParallel(wf.nn.Linear(2, 1))
    >>> grads = model(wf.ones((4, 2))).mean().backward()
    >>> model.weight.grad.tolist()
    [[1.0, 1.0]]
    >>> wf.dist.finalize()
    """

    module: Module
    reducer: GradientReducer

    def __init__(self, module: Module, bucket_mb: float = 25, compression: Compression = None):
        own = vars(self)
        if not isinstance(module, Module) or isinstance(module, DataParallel):
            raise errors.ArgumentError(
                f"wf.dist.DataParallel: expected a wf.nn.Module that is not wrapped yet, got "
                f"{type(module).__name__}"
            )
        group = cast("Member", world())
        own.update(_modules={}, _forward_hooks={}, _forward_pre_hooks={}, module=module)
        own["reducer"] = GradientReducer(
            module.named_parameters(),
            group,
            bucket_mb,
            compression,
            module.buffers(),
            partial(changing_buffers, module),
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's result."""
        module = self.module
        if module.training:
            self.reducer.check_names(module.named_parameters())
            self.reducer.note_forward()
        return module(*args, **kwargs)

    # Accumulation

    def no_sync(self) -> AbstractContextManager[None]:
        """A block whose `backward()`s keep their gradients for the next one outside of it.

        They are neither in `.grad` nor in the map that `backward()` returns until that next one
        has added and synchronised them; an optimizer's step before it is refused.

        >>> import weft as wf
        >>> group = wf.dist.init()
        >>> model = wf.dist.DataParallel(wf.nn.Linear(2, 1))
        >>> with model.no_sync():
        ...     grads = model(wf.ones(2)).sum().backward()
        >>> model.pending, model.weight.grad
        (1, None)
        >>> grads = model(wf.ones(2)).sum().backward()
        >>> model.weight.grad.tolist(), model.last_sync
        ([[2.0, 2.0]], Sync(step=0, included=2))
        >>> wf.dist.finalize()
        """
        return self.reducer.no_sync()

    @property
    def pending(self) -> int:
        """How many backward passes wait to be synchronised."""
        return self.reducer.pending

    @property
    def last_sync(self) -> Sync | None:
        """The last backward pass that has synchronised; None: none has yet."""
        return self.reducer.last_sync

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, also those of passes that wait to be synchronised.

        set_to_none  whether `.grad` becomes None; else zeros

        >>> import weft as wf
        >>> group = wf.dist.init()
        >>> model = wf.dist.DataParallel(wf.nn.Linear(2, 1))
        >>> with model.no_sync():
        ...     grads = model(wf.ones(2)).sum().backward()
        >>> model.zero_grad()
        >>> model.pending
        0
        >>> wf.dist.finalize()
        """
        self.reducer.drop()
        self.module.zero_grad(set_to_none)

    # The model's own

    def __getattr__(self, name: str) -> Any:
        module = vars(self).get("module")
        if module is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            raise errors.ModuleError(
                f"DataParallel.{name} cannot be replaced; wrap another model instead"
            )
        setattr(self.module, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.module, name)

    def checkpoint(self, config: CheckpointConfig | None) -> Self:
        """As `Module.checkpoint`, of the model: what the ranks exchange is not done twice.

        config  a `CheckpointConfig`; None: keep everything

        >>> import weft as wf
        >>> group = wf.dist.init()
        >>> model = wf.dist.DataParallel(wf.nn.Linear(2, 1))
        >>> model = model.checkpoint(wf.CheckpointConfig(strategy="full"))
        >>> wf.dist.finalize()
        """
        self.module.checkpoint(config)
        return self

    def extra_repr(self) -> str:
        return self.module.extra_repr()

    def _walk(self, prefix: str, seen: set[int] | None) -> Iterator[tuple[str, Any]]:
        yield from self.module._walk(prefix, seen)

    def _named_members(
        self, store: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        yield from self.module._named_members(store, prefix, recurse, remove_duplicate)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        return self.module.named_children()

    def get_submodule(self, target: str) -> Module:
        return self.module.get_submodule(target)

    def _register(self, store: str, name: str, value: object) -> None:
        self.module._register(store, name, value)

    def apply(self, fn: Callable[[Module], object]) -> Self:
        self.module.apply(fn)
        return self

    def __repr__(self) -> str:
        return repr(self.module)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise errors.ModuleError(
            "wf.dist.DataParallel belongs to the processes that are joined: copy or pickle its "
            ".module, or save its state_dict()"
        )
