"""Ways by which a function comes to a value, each with what puts another value there."""

import functools
import weakref
from collections import deque
from contextvars import ContextVar
from types import MappingProxyType, SimpleNamespace

from . import other

value = None  # the global of `_global`
table: dict = {}


class Path:
    """`read()` is what the function calls; `put(v)` changes the value; `take()` deletes it."""

    def read(self):
        raise NotImplementedError

    def put(self, v):
        raise NotImplementedError

    take = None


PATHS: dict[str, type[Path]] = {}


def _path(name):
    def add(cls):
        PATHS[name] = cls
        return cls

    return add


def _global():
    return value


@_path("global")
class _Global(Path):
    read = staticmethod(_global)

    def put(self, v):
        globals()["value"] = v


@_path("global of a helper in a list")
class _Listed(Path):
    def __init__(self):
        self.helpers = [_global]

    def read(self):
        return self.helpers[0]()

    def put(self, v):
        globals()["value"] = v


@_path("global of a lambda in a dict")
class _Dicted(Path):
    helpers = {"a": lambda: value}  # noqa: RUF012

    def read(self):
        return self.helpers["a"]()

    def put(self, v):
        globals()["value"] = v


@_path("item of a global dict")
class _Table(Path):
    def read(self):
        return table["value"]

    def put(self, v):
        table["value"] = v


@_path("other module")
class _Other(Path):
    def read(self):
        return other.value

    def put(self, v):
        other.value = v


@_path("other module's function")
class _OtherFunction(Path):
    def read(self):
        return other.read()

    def put(self, v):
        other.value = v


@_path("import inside")
class _Import(Path):
    def read(self):
        from .other import value

        return value

    def put(self, v):
        other.value = v


@_path("class of another module")
class _OtherClass(Path):
    def read(self):
        return other.Settings.value

    def put(self, v):
        other.Settings.value = v


@_path("closure")
class _Closure(Path):
    def __init__(self):
        held = None

        def read():
            return held

        def put(v):
            nonlocal held
            held = v

        self.read, self.put = read, put


@_path("closure of a decorator")
class _Decorated(Path):
    def __init__(self):
        held = None

        def decorate(f):
            @functools.wraps(f)
            def wrapper():
                return f(held)

            return wrapper

        def put(v):
            nonlocal held
            held = v

        self.read, self.put = decorate(lambda v: v), put


@_path("attribute")
class _Attribute(Path):
    def read(self):
        return self.held

    def put(self, v):
        self.held = v


@_path("attribute over a class's")
class _Shadow(Path):
    held = 1.0

    def read(self):
        return self.held

    def put(self, v):
        self.held = v

    def take(self):
        del self.held


@_path("two attributes down")
class _Deep(Path):
    def __init__(self):
        self.inner = SimpleNamespace(inner=SimpleNamespace())

    def read(self):
        return self.inner.inner.held

    def put(self, v):
        self.inner.inner.held = v


@_path("replaced object")
class _Replaced(Path):
    def read(self):
        return self.inner.held

    def put(self, v):
        self.inner = SimpleNamespace(held=v)


@_path("slot")
class _Slot(Path):
    __slots__ = ("held",)

    def read(self):
        return self.held

    def put(self, v):
        self.held = v


@_path("class")
class _Class(Path):
    held = None

    def read(self):
        return type(self).held

    def put(self, v):
        _Class.held = v


class _Base:
    held = None


@_path("inherited from a class")
class _Inherited(_Base, Path):
    def read(self):
        return self.held

    def put(self, v):
        _Base.held = v


@_path("property")
class _Property(Path):
    @property
    def seen(self):
        return self._held

    def read(self):
        return self.seen

    def put(self, v):
        self._held = v


@_path("__getattr__")
class _Getattr(Path):
    def __init__(self):
        self.store = {}

    def __getattr__(self, name):
        return self.__dict__["store"][name]

    def read(self):
        return self.anything

    def put(self, v):
        self.store["anything"] = v


@_path("method of an object")
class _Method(Path):
    class Holder:
        def get(self):
            return self.held

    def __init__(self):
        self.holder = self.Holder()
        self.read = self.holder.get

    def put(self, v):
        self.holder.held = v


@_path("__call__ of an object")
class _Call(Path):
    class Holder:
        def __call__(self):
            return self.held

    def __init__(self):
        self.read = self.Holder()

    def put(self, v):
        self.read.held = v


@_path("object made inside")
class _Made(Path):
    class Maker:
        source = None

        def __init__(self):
            self.held = self.source

    def read(self):
        return self.Maker().held

    def put(self, v):
        self.Maker.source = v


@_path("default")
class _Default(Path):
    def __init__(self):
        def read(v=None):
            return v

        self.read = read

    def put(self, v):
        self.read.__defaults__ = (v,)


@_path("keyword default")
class _KeywordDefault(Path):
    def __init__(self):
        def read(*, v=None):
            return v

        self.read = read

    def put(self, v):
        self.read.__kwdefaults__ = {"v": v}


@_path("attribute of a function")
class _FunctionAttribute(Path):
    def __init__(self):
        def read():
            return read.held

        self.read = read

    def put(self, v):
        self.read.held = v


@_path("partial")
class _Partial(Path):
    def __init__(self):
        self.kept = [None]
        self.read = functools.partial(list.__getitem__, self.kept, 0)

    def put(self, v):
        self.kept[0] = v


@_path("replaced helper")
class _Helper(Path):
    def read(self):
        return self.helper()

    def put(self, v):
        self.helper = lambda: v


@_path("item of a list")
class _List(Path):
    def __init__(self):
        self.items = [0, None]

    def read(self):
        return self.items[1]

    def put(self, v):
        self.items[1] = v


@_path("item of a tuple")
class _Tuple(Path):
    def read(self):
        return self.items[1]

    def put(self, v):
        self.items = (0, v)


@_path("item of a dict")
class _Dict(Path):
    def __init__(self):
        self.items = {"a": 0}

    def read(self):
        return self.items["held"]

    def put(self, v):
        self.items["held"] = v


@_path("item of a deque")
class _Deque(Path):
    def __init__(self):
        self.items = deque([None])

    def read(self):
        return self.items[0]

    def put(self, v):
        self.items[0] = v


@_path("mapping proxy")
class _Proxy(Path):
    def __init__(self):
        self.items = {}
        self.proxy = MappingProxyType(self.items)

    def read(self):
        return self.proxy["held"]

    def put(self, v):
        self.items["held"] = v


@_path("context variable")
class _Context(Path):
    def __init__(self):
        self.variable = ContextVar("held")

    def read(self):
        return self.variable.get()

    def put(self, v):
        self.variable.set(v)


@_path("weak reference")
class _Weak(Path):
    class Target:
        """Something that can be referred to weakly."""

    def __init__(self):
        self.target = self.Target()
        self.reference = weakref.ref(self.target)

    def read(self):
        return self.reference().held

    def put(self, v):
        self.target.held = v


@_path("dict of a subclass")
class _Subclass(Path):
    class Config(dict):
        def __getattr__(self, name):
            return self[name]

    def __init__(self):
        self.config = self.Config()

    def read(self):
        return self.config.held

    def put(self, v):
        self.config["held"] = v


@_path("generator inside")
class _Generator(Path):
    def __init__(self):
        self.items = [None]

    def read(self):
        return next(v for v in self.items)

    def put(self, v):
        self.items[0] = v


@_path("descriptor")
class _Descriptor(Path):
    class Field:
        def __get__(self, instance, kind):
            return instance.__dict__["_held"]

    seen = Field()

    def read(self):
        return self.seen

    def put(self, v):
        self.__dict__["_held"] = v
