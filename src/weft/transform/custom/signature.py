"""The functions of a custom operation, and what their signatures say."""

from collections.abc import Callable
from dataclasses import replace
from inspect import Parameter, signature, unwrap
from pathlib import Path
from types import MethodType
from typing import Any

from ... import errors
from ...core.record import record

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


@record
class Rule:
    """A derivative rule of the user's: called with those of (moved, inputs, output) that it takes.

    A parameter whose name starts with an underscore, or that is left out, is not read and so not
    saved for the backward pass.
    """

    kind: str
    fn: Callable[..., Any]
    count: int
    reads: tuple[bool, bool]

    @staticmethod
    def of(kind: str, fn: Callable[..., Any], skip: int = 0) -> "Rule":
        """The rule of a function (moved, inputs, output, *, keywords) after `skip` parameters."""
        parameters = list(signature(fn).parameters.values())[skip:]
        names = [p.name for p in parameters if p.kind in _POSITIONAL]
        if any(p.kind is Parameter.VAR_POSITIONAL for p in parameters):
            names += ["rest"] * (3 - len(names))
        if not 1 <= len(names) <= 3:
            moved = "tangents" if kind == "jvp" else "g"
            raise errors.ArgumentError(
                f"custom_op: {kind} takes {len(names)} positional parameters, expected "
                f"({moved}, inputs, output); keywords of the call come after a *"
            )
        read = [not n.startswith("_") for n in names[1:]]
        inputs, output = [*read, False, False][:2]
        return Rule(kind, fn, len(names), (inputs, output))

    def bind(self, instance: Any) -> "Rule":
        """The rule of a method, for an instance."""
        return replace(self, fn=MethodType(self.fn, instance))

    def __call__(self, moved: Any, inputs: Any, output: Any, **params: Any) -> Any:
        return self.fn(*(moved, inputs, output)[: self.count], **params)

    def __str__(self) -> str:
        code = getattr(unwrap(self.fn), "__code__", None)
        if code is None:
            return self.kind
        return f"{self.kind} ({Path(code.co_filename).name}:{code.co_firstlineno})"


@record
class CustomFunctions:
    """A custom operation's functions, from a class or from `custom_op`.

    forward(inputs, **keywords), the two rules, and `batch`: None, "loop" or
    (inputs, mapped, **keywords) -> results with the batch in front
    """

    name: str
    forward: Callable[..., Any]
    vjp: Rule | None
    jvp: Rule | None
    batch: Callable[..., Any] | str | None
    in_class: bool = False

    @property
    def reads(self) -> tuple[bool, bool] | None:
        """Whether the pull-back reads the inputs and the output; None without a derivative."""
        rule = self.vjp or self.jvp
        return None if rule is None else rule.reads

    def spelling(self, kind: str) -> str:
        """How the user spells a rule, for messages."""
        if self.in_class:
            return "a method " + ("backward" if kind == "vjp" else "jvp")
        return f"{kind}=… or @{self.name}.def_{kind}"


def check_batch(batch: Any) -> Any:
    """The user's `batch`, if it is one of the allowed values."""
    if batch is None or batch == "loop" or callable(batch):
        return batch
    raise errors.ArgumentError(
        f"custom_op: batch={batch!r}, expected 'loop' or a function (inputs, mapped)"
    )
