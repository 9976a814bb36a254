"""A light `dataclass` for the package's own data: a method is generated when it is first used.

`dataclass` runs Python's compiler for each method of each class, which is much of the time that a
large package takes to load. A record has the same fields and behaves in the same way (`fields`,
`replace`, `copy` and `match` work), but costs little until it is used. Classes that users construct
are dataclasses.
"""

import sys
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import wraps
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform, overload

__all__ = ["Deferred", "field", "record"]

T = TypeVar("T")
Fields = tuple[Field[Any], ...]
# A method's parameters, its lines, and the values of names in them.
Source = tuple[list[str], list[str], dict[str, Any]]

_ABSENT = object()


@overload
def record(cls: type[T], /) -> type[T]: ...
@overload
def record(
    *, frozen: bool = True, eq: bool = True, slots: bool = False
) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: Any = None, /, *, frozen: bool = True, eq: bool = True, slots: bool = False) -> Any:
    """Give a class the fields that its annotations name, as `dataclass(frozen=True)` does.

    Methods that the class itself defines stay.

    frozen  whether assigning to an attribute raises
    eq      whether records of one class with equal fields are equal; else each equals only itself
    slots   whether the fields are slots
    """
    if cls is None:
        return lambda cls: _make_record(cls, frozen, eq, slots)
    return _make_record(cls, frozen, eq, slots)


def _make_record(cls: type[Any], frozen: bool, eq: bool, slots: bool) -> type[Any]:
    # Frozen slots are left to `dataclass`, which also defines how they are copied.
    collect = dataclass(init=False, repr=False, eq=False, slots=slots, frozen=frozen and slots)
    cls = collect(cls)
    items, own = fields(cls), set(cls.__dict__)
    if "__eq__" in own and cls.__hash__ is None:
        own.discard("__hash__")  # Python wrote it, not the class
    methods: dict[str, Any] = _refuse_changes(cls, items) if frozen and not slots else {}
    methods["__init__"] = Deferred(cls, "__init__", lambda: _write_init(cls, items, frozen, slots))
    methods["__repr__"] = Deferred(cls, "__repr__", lambda: _write_repr(items))
    if eq:
        methods["__eq__"] = Deferred(cls, "__eq__", lambda: _write_eq(items))
        hashed = Deferred(cls, "__hash__", lambda: _write_hash(items))
        methods["__hash__"] = hashed if frozen else None
    for name in methods.keys() - own:
        setattr(cls, name, methods[name])
    return cls


class Deferred:
    """A method of a record that is not generated yet; the generated function takes its place."""

    def __init__(self, cls: type[Any], name: str, write: Callable[[], Source]):
        self._cls, self._name, self._write = cls, name, write
        self._made: dict[str, Callable[..., Any]] = {}

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        return self.generate().__get__(instance, owner)

    def generate(self) -> Callable[..., Any]:
        """The method's function; the same one for every thread."""
        if not self._made:
            self._made.setdefault(self._name, self._compile())  # atomic: the first one stays
        setattr(self._cls, self._name, self._made[self._name])
        return self._made[self._name]

    def _compile(self) -> Callable[..., Any]:
        parameters, lines, values = self._write()
        head = f"def create({', '.join(values)}):\n def {self._name}"
        body = "\n  ".join((f"({', '.join(('self', *parameters))}):", *lines))
        text = f"{head}{body}\n return {self._name}"
        found: dict[str, Any] = {}
        # In the class's module, as `dataclass` does: frames of the function belong to it.
        exec(text, vars(sys.modules[self._cls.__module__]), found)
        method = found["create"](**values)
        method.__qualname__ = f"{self._cls.__qualname__}.{self._name}"
        return wraps(method)(recursive_repr()(method)) if self._name == "__repr__" else method


def _refuse_changes(cls: type[Any], items: Fields) -> dict[str, Callable[..., Any]]:
    names = frozenset(f.name for f in items)

    def set_attribute(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete_attribute(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": set_attribute, "__delattr__": delete_attribute}


def _write_init(cls: type[Any], items: Fields, frozen: bool, slots: bool) -> Source:
    given = [f for f in items if f.init]
    parameters = [_parameter(f) for f in given if not f.kw_only]
    keywords = [_parameter(f) for f in given if f.kw_only]
    values = {"_absent": _ABSENT, "_set": object.__setattr__}
    values |= {f"_default_{f.name}": f.default for f in items}
    values |= {f"_make_{f.name}": f.default_factory for f in items}
    stored = {f.name: value for f in items if (value := _initial(f, slots)) is not None}
    if not frozen:
        lines = [f"self.{name} = {value}" for name, value in stored.items()]
    elif slots:
        lines = [f"_set(self, {name!r}, {value})" for name, value in stored.items()]
    else:  # faster than `_set`, and so are later reads than from a dict filled item by item
        lines = [f"self.__dict__.update({', '.join(f'{n}={v}' for n, v in stored.items())})"]
    lines += ["self.__post_init__()"] if hasattr(cls, "__post_init__") else ["pass"]
    return [*parameters, *(["*", *keywords] if keywords else ())], lines, values


def _parameter(f: Field[Any]) -> str:
    if f.default is not MISSING:
        return f"{f.name}=_default_{f.name}"
    return f.name if f.default_factory is MISSING else f"{f.name}=_absent"


def _initial(f: Field[Any], slots: bool) -> str | None:
    """The value that `__init__` stores; None if it stores nothing: the class has the default."""
    if f.default_factory is not MISSING:
        made = f"_make_{f.name}()"
        return f"{made} if {f.name} is _absent else {f.name}" if f.init else made
    if f.init:
        return f.name
    return f"_default_{f.name}" if slots and f.default is not MISSING else None


def _write_repr(items: Fields) -> Source:
    shown = ", ".join(f"{f.name}={{self.{f.name}!r}}" for f in items if f.repr)
    return [], [f'return f"{{self.__class__.__qualname__}}({shown})"'], {}


def _write_eq(items: Fields) -> Source:
    mine, others = (_values(o, [f for f in items if f.compare]) for o in ("self", "other"))
    lines = [f"if other.__class__ is self.__class__: return {mine} == {others}"]
    return ["other"], [*lines, "return NotImplemented"], {}


def _write_hash(items: Fields) -> Source:
    counted = [f for f in items if (f.compare if f.hash is None else f.hash)]
    return [], [f"return hash({_values('self', counted)})"], {}


def _values(whose: str, items: list[Field[Any]]) -> str:
    return f"({''.join(f'{whose}.{f.name}, ' for f in items)})"
