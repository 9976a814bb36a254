"""Module: named parameters, buffers and modules, and a function of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from inspect import Signature, signature
from itertools import count
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar

from .. import errors
from ..arrays.keywords import check_keywords
from ..arrays.make import zeros_like
from ..core import dtypes
from ..transform.checkpoint.choose import check_config, checkpointing
from ..transform.modes.backward import HookHandle
from . import tree
from .compiled import compile_module
from .convert import convert
from .registry import Registry
from .state import LoadedKeys, load

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike, Device, DTypeLike
    from ..core.checkpointing import CheckpointConfig

    P = ParamSpec("P")
    Result = TypeVar("Result", covariant=True)

    class Forward(Protocol[P, Result]):
        """A module as its call sees it: what it takes and gives is what its `forward` does."""

        def forward(self, *args: P.args, **kwargs: P.kwargs) -> Result: ...
        def not_begun(self, what: str) -> errors.ModuleError: ...
        def _call_around(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...


Hook = tuple[Callable[..., Any], bool]  # a function, and whether it gets the keywords too

_handles = count()


class _InitSignature:
    """What `inspect.signature` finds for a class of modules: its `__init__`, not `__new__`."""

    def __get__(self, instance: object, owner: type) -> Signature:
        if instance is not None:
            raise AttributeError("__signature__")  # that of a call
        found = signature(owner.__init__)  # type: ignore[misc]
        _, *parameters = found.parameters.values()
        return found.replace(parameters=parameters, return_annotation=Signature.empty)


class Module(Registry):
    """A function with parameters: subclass it, assign parameters and modules, write `forward`.

    What is assigned under a name belongs to the module: a `Parameter`, another module, and by
    `register_buffer` a tensor that is part of its state but not trained. A module is a tree to all
    transformations; its leaves are the floating-point parameters and buffers.

    >>> import weft as wf
    >>> class Scale(wf.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = wf.Parameter(wf.tensor(2.0))
    ...
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> model = Scale()
    >>> wf.grad(lambda m: m(wf.tensor(3.0)) ** 2)(model).factor.item()
    36.0
    """

    training: bool
    forward: Callable[..., Any]  # what subclasses define

    if not TYPE_CHECKING:  # checkers read `__init__`
        __signature__ = _InitSignature()

        def __new__(cls, *args, **named):
            if named:
                check_keywords(cls.__name__, cls.__init__, named)
            return super().__new__(cls)

    def __init__(self) -> None:
        super().__init__()
        self._forward_hooks: dict[int, Hook] = {}
        self._forward_pre_hooks: dict[int, Hook] = {}
        self.training = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        tree.register(cls)

    # Calling

    def __weft_compiled__(self, programs: Any) -> Any:
        """The module that `wf.compile` returns: calls run these programs."""
        return compile_module(self, programs)

    def __call__(self: Forward[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        own = self.__dict__
        if "_modules" not in own:
            raise self.not_begun("calling it")
        forward = getattr(self, "forward", None)
        if forward is None:
            raise errors.ModuleError(
                f"{type(self).__name__} has no forward; define `def forward(self, x): …` in it"
            )
        if own["_forward_hooks"] or own["_forward_pre_hooks"] or "_checkpointed" in own:
            return self._call_around(args, kwargs)
        return forward(*args, **kwargs)

    def _call_around(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call with hooks, under a checkpoint strategy."""
        with checkpointing(self.__dict__.get("_checkpointed")):
            return self._call_with_hooks(args, kwargs)

    def checkpoint(self, config: CheckpointConfig | None) -> Self:
        """Keep only some of what calls save for the backward pass, and compute the rest again.

        config  a `CheckpointConfig`; None: keep everything

        Returns the module. In a compiled function the config of `wf.compile` is at work instead.

        >>> import weft as wf
        >>> model = wf.nn.Sequential(wf.nn.Linear(8, 64), wf.nn.GELU(), wf.nn.Linear(64, 1))
        >>> x = wf.ones((100, 8))
        >>> kept = model(x)
        >>> before = wf.memory_stats().bytes
        >>> del kept
        >>> model = model.checkpoint(wf.CheckpointConfig(strategy="full"))
        >>> kept = model(x)
        >>> wf.memory_stats().bytes < before
        True
        """
        own = self.__dict__
        own.pop("_checkpointed", None)
        if check_config(f"{type(self).__name__}.checkpoint", config) is not None:
            own["_checkpointed"] = config
        return self

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for hook, with_kwargs in list(self._forward_pre_hooks.values()):
            if with_kwargs:
                given = hook(self, args, kwargs)
                args, kwargs = (args, kwargs) if given is None else given
            else:
                given = hook(self, args)
                if given is not None:
                    args = given if isinstance(given, tuple) else (given,)
        out = self.forward(*args, **kwargs)
        for hook, with_kwargs in list(self._forward_hooks.values()):
            given = hook(self, args, kwargs, out) if with_kwargs else hook(self, args, out)
            out = out if given is None else given
        return out

    def register_forward_hook(
        self, hook: Callable[..., Any], *, with_kwargs: bool = False
    ) -> HookHandle:
        """Call `hook(module, args, output)` after `forward`; it may return another output.

        hook         the function
        with_kwargs  whether it is called as `hook(module, args, kwargs, output)`

        The handle's `remove()` ends it.

        >>> import weft as wf
        >>> layer = wf.nn.ReLU()
        >>> handle = layer.register_forward_hook(lambda module, args, output: output + 1.0)
        >>> layer(wf.tensor([-1.0, 2.0])).tolist()
        [1.0, 3.0]
        >>> handle.remove()
        >>> layer(wf.tensor([-1.0, 2.0])).tolist()
        [0.0, 2.0]
        """
        return _hooked_on(self._forward_hooks, hook, with_kwargs)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, with_kwargs: bool = False
    ) -> HookHandle:
        """Call `hook(module, args)` before `forward`; it may return other arguments.

        hook         the function
        with_kwargs  whether it is called as `hook(module, args, kwargs)`, and may return (args,
                     kwargs)

        The handle's `remove()` ends it.

        >>> import weft as wf
        >>> layer = wf.nn.ReLU()
        >>> handle = layer.register_forward_pre_hook(lambda module, args: (-args[0],))
        >>> layer(wf.tensor([-1.0, 2.0])).tolist()
        [1.0, 0.0]
        """
        return _hooked_on(self._forward_pre_hooks, hook, with_kwargs)

    # State

    def state_dict(self, prefix: str = "", keep_vars: bool = False) -> dict[str, Tensor]:
        """Parameters and persistent buffers by name, sharing memory with the module.

        prefix     what comes before each name
        keep_vars  whether the parameters themselves are given; else their values, detached

        >>> import weft as wf
        >>> model = wf.nn.Sequential(wf.nn.Linear(2, 3), wf.nn.ReLU())
        >>> list(model.state_dict())
        ['0.weight', '0.bias']
        """
        state: dict[str, Tensor] = {}
        for where, module in self.named_modules(prefix.removesuffix("."), remove_duplicate=False):
            for name, x in module._state().items():
                if x is not None:
                    state[f"{where}.{name}" if where else name] = x if keep_vars else x.detach()
        return state

    def _state(self) -> dict[str, Any]:
        """The tensors that this module itself saves and loads, by name."""
        kept = {n: b for n, b in self._buffers.items() if n not in self._transient}
        return self._parameters | kept

    def _state_loaded(self) -> None:
        """Hook: called after a state was copied into the tensors of `_state`."""

    def _check_replaced(self, names: set[str]) -> None:
        """Hook: refuse replacements of the tensors of these names that do not fit."""

    def load_state_dict(
        self, state_dict: Mapping[str, ArrayLike], strict: bool = True
    ) -> LoadedKeys:
        """Copy values into the memory of the parameters and buffers, which keep their dtype.

        state_dict  tensors of Weft or PyTorch, or NumPy arrays, by name
        strict      whether names that are missing or unexpected are an error

        An error lists everything that differs, and then nothing was copied.

        >>> import weft as wf
        >>> layer = wf.nn.Linear(2, 1)
        >>> layer.load_state_dict({"weight": wf.ones((1, 2)), "bias": wf.zeros(1)})
        LoadedKeys(missing_keys=[], unexpected_keys=[])
        >>> layer(wf.tensor([3.0, 4.0])).tolist()
        [7.0]
        """
        return load(self, state_dict, strict)

    def to(
        self,
        *targets: Device | DTypeLike,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
    ) -> Self:
        """Move to a device, cast floating-point numbers to a dtype, or both; returns the module.

        targets        devices and dtypes, in any order
        device, dtype  the same by name

        Parameters stay the same objects. Gradients go along.

        >>> import weft as wf
        >>> wf.nn.Linear(2, 1).to("float64").weight.dtype
        dtype('float64')
        """
        convert(self, targets, device, dtype)
        return self

    def half(self) -> Self:
        """Cast floating-point numbers to float16; returns the module.

        >>> import weft as wf
        >>> wf.nn.Linear(2, 1).half().weight.dtype.name
        'float16'
        """
        return self.to(dtype=dtypes.float16)

    def bfloat16(self) -> Self:
        """Cast floating-point numbers to bfloat16; returns the module.

        >>> import weft as wf
        >>> wf.nn.Linear(2, 1).bfloat16().weight.dtype.name
        'bfloat16'
        """
        return self.to(dtype=dtypes.bfloat16)

    def float(self) -> Self:
        """Cast floating-point numbers to float32; returns the module.

        >>> import weft as wf
        >>> wf.nn.Linear(2, 1).float().weight.dtype.name
        'float32'
        """
        return self.to(dtype=dtypes.float32)

    def double(self) -> Self:
        """Cast floating-point numbers to float64; returns the module.

        >>> import weft as wf
        >>> wf.nn.Linear(2, 1).double().weight.dtype.name
        'float64'
        """
        return self.to(dtype=dtypes.float64)

    # Training

    def train(self, mode: bool = True) -> Self:
        """Say to this module and all in it whether they are being trained; returns the module.

        mode  whether they are

        >>> import weft as wf
        >>> wf.nn.Dropout().train(False).training
        False
        """
        if not isinstance(mode, bool):
            raise errors.DTypeError(f"train: mode {mode!r}, expected True or False")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """`train(False)`: dropout passes everything on, batch norms use their statistics.

        >>> import weft as wf
        >>> wf.nn.Dropout(0.5).eval()(wf.ones(3)).tolist()
        [1.0, 1.0, 1.0]
        """
        return self.train(False)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or fill them with zeros.

        set_to_none  whether `.grad` becomes None; else zeros

        >>> import weft as wf
        >>> layer = wf.nn.Linear(2, 1)
        >>> grads = layer(wf.ones(2)).sum().backward()
        >>> layer.zero_grad()
        >>> layer.weight.grad is None
        True
        """
        for p in self.parameters():
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                p.grad = zeros_like(p.detach())

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Train all parameters, or none; returns the module.

        requires_grad  whether they are trained

        >>> import weft as wf
        >>> wf.nn.Linear(2, 1).requires_grad_(False).weight.requires_grad
        False
        """
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def freeze(self, pattern: str = "*") -> list[str]:
        """Stop training the parameters whose names match; returns the names.

        pattern  `*` and `?` stand for any characters; one that matches nothing is an error

        >>> import weft as wf
        >>> model = wf.nn.Sequential(wf.nn.Linear(2, 3), wf.nn.Linear(3, 1))
        >>> model.freeze("0.*")
        ['0.weight', '0.bias']
        """
        return self._set_trained(pattern, False)

    def unfreeze(self, pattern: str = "*") -> list[str]:
        """Train the parameters whose names match; returns the names.

        pattern  `*` and `?` stand for any characters; one that matches nothing is an error

        >>> import weft as wf
        >>> model = wf.nn.Sequential(wf.nn.Linear(2, 3), wf.nn.Linear(3, 1))
        >>> names = model.freeze()
        >>> model.unfreeze("*.bias")
        ['0.bias', '1.bias']
        """
        return self._set_trained(pattern, True)

    def _set_trained(self, pattern: str, trained: bool) -> list[str]:
        pairs = list(self.named_parameters(remove_duplicate=False))
        found = [(name, p) for name, p in pairs if fnmatchcase(name, pattern)]
        if not found:
            what = "unfreeze" if trained else "freeze"
            names = ", ".join(name for name, _ in pairs[:10])
            raise errors.ArgumentError(
                f"{what}: {pattern!r} matches no parameter; there are {names or 'none'}"
                f"{', …' if len(pairs) > 10 else ''}"
            )
        for _, p in found:
            p.requires_grad_(trained)
        return [name for name, _ in found]

    def apply(self, fn: Callable[[Module], object]) -> Self:
        """Call fn on every module in this one, then on this one; returns the module.

        fn  a function of a module

        >>> import weft as wf
        >>> names = []
        >>> model = wf.nn.Sequential(wf.nn.Linear(2, 3), wf.nn.ReLU())
        >>> model = model.apply(lambda module: names.append(type(module).__name__))
        >>> names
        ['Linear', 'ReLU', 'Sequential']
        """
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    # Display

    def extra_repr(self) -> str:
        """What `repr` says about the module besides its parts."""
        return ""

    def __repr__(self) -> str:
        parts = [f"({name}): {child!r}" for name, child in self._modules.items()]
        if not parts:
            return f"{type(self).__name__}({self.extra_repr()})"
        lines = self.extra_repr().splitlines() + [p.replace("\n", "\n  ") for p in parts]
        return f"{type(self).__name__}(\n  " + "\n  ".join(lines) + "\n)"


def _hooked_on(hooks: dict[int, Hook], hook: Callable[..., Any], with_kwargs: bool) -> HookHandle:
    key = next(_handles)
    hooks[key] = (hook, with_kwargs)
    return HookHandle(hooks, key)


tree.register(Module)
