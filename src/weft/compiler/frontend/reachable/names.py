"""The owner of an object, and which of its attributes the code that ran can name."""

import abc
import ctypes
import os
import sys
from collections.abc import Mapping, Set
from enum import Enum
from functools import lru_cache
from threading import local
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ....core.record import Deferred
from .bytecode import DYNAMIC, find_names
from .frames import INSTALLED, LIBRARY, OWN, PACKAGE, USER, RanCode, owner, owner_of_code
from .leaves import is_array, is_plain

# The layers of Weft whose functions hold the user's functions and settings in closures.
_OPEN = tuple(
    os.sep + name for name in ("nn", "transform", "optim", "optimize", "amp", "train", "implicit")
)
# Those whose objects hold nothing of the user.
_MACHINERY = tuple(
    os.sep + name for name in ("compiler", "core", "backend", "graph", "ops", "errors")
)
# Attributes that every class has; they are compared only if the code names them.
_ALWAYS = frozenset(
    (
        *("__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__"),
        *("__abstractmethods__", "_abc_impl", "__parameters__", "__orig_bases__", "__slots__"),
        *("__static_attributes__", "__firstlineno__", "__annotate_func__", "__annotations_cache__"),
        *("__type_params__", "__hash__", "__init_subclass__", "__repr__"),
        *("__dataclass_fields__", "__dataclass_params__"),
    )
)

MADE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: classes made by a class statement
_LABELS = frozenset(("__doc__", "__name__", "__qualname__", "__module__"))
_WHICH = frozenset(("id", "hash"))
_MEMBER = frozenset(("_value_", "_name_", "__objclass__", "_sort_order_", "_inverted_"))

_kinds: WeakKeyDictionary[type, str] = WeakKeyDictionary()


def owner_of_class(kind: type) -> str:
    """The owner of a class."""
    found = _kinds.get(kind)
    if found is None:
        module = sys.modules.get(kind.__module__)
        if module is abc and kind.__name__ not in vars(abc):
            module = None  # made by a call of a metaclass, whose frame Python takes for its maker's
        found = _kinds[kind] = USER if module is None else owner_of_module(module)
    return found


def owner_of_module(module: ModuleType) -> str:
    """The owner of a module; one without a file is Python's, unless it is `__main__`."""
    file = getattr(module, "__file__", None)
    if file is None:
        return USER if module.__name__ in ("__main__", "builtins.__main__") else _builtin(module)
    return owner(file) if file.endswith((".py", ".pyc")) else LIBRARY  # an extension module


def _builtin(module: ModuleType) -> str:
    known = module.__name__ in sys.builtin_module_names or module.__spec__ is not None
    return LIBRARY if known else USER  # a module object created by user code


def _is_machinery(filename: str) -> bool:
    """Whether a file of Weft is in a layer whose objects hold nothing of the user."""
    return filename.removeprefix(PACKAGE).startswith(_MACHINERY)


def _is_open(filename: str) -> bool:
    """Whether a file of Weft is in a layer that holds objects of the user."""
    return filename.removeprefix(PACKAGE).startswith(_OPEN)


_DESCRIPTORS = (
    *(ClassMethodDescriptorType, GetSetDescriptorType, MemberDescriptorType),
    *(MethodDescriptorType, WrapperDescriptorType),
)
_CYTHON = ("cython_function_or_method", "fused_cython_function")  # functions of extensions
# Modules whose objects do not influence a program.
_SILENT = frozenset(
    (
        *("logging", "threading", "_thread", "typing", "io", "_io", "_abc", "re"),
        *("_struct", "zoneinfo", "numpy", "ctypes", "_ctypes", "locale", "warnings", "_warnings"),
    )
)


_TELLING = (ctypes._Pointer, BaseException)  # of these modules, too


def is_silent(x: object) -> bool:
    """Whether x is an object of Python or NumPy that does not influence a program."""
    module = type(x).__module__
    if module not in _SILENT or is_array(x) or isinstance(x, _TELLING):
        return False
    return not (module == "numpy" and (has_attributes(x) or hasattr(type(x), "__next__")))


def is_closed(x: object) -> bool:
    """Whether x belongs to a library and holds nothing of the user: identity is enough."""
    if isinstance(x, ModuleType):
        return owner_of_module(x) != USER
    if isinstance(x, type):
        return owner_of_class(x) != USER
    if isinstance(x, FunctionType):
        return _is_closed_function(x)
    if isinstance(x, BuiltinFunctionType):
        return x.__self__ is None or isinstance(x.__self__, ModuleType | type)
    kind = type(x)
    if isinstance(x, np.ndarray | local):
        return False
    if kind is object or isinstance(x, _DESCRIPTORS) or kind.__name__ in _CYTHON:
        return True
    if is_silent(x):
        return True
    if owner_of_class(kind) != OWN or hasattr(kind, "_walked") or hasattr(kind, "_guarded"):
        return False
    return _is_machinery(sys.modules[kind.__module__].__file__ or "")


def _is_closed_function(f: FunctionType) -> bool:
    whose = owner_of_code(f.__code__, f.__globals__)
    if whose in (USER, INSTALLED):
        return False
    return not f.__closure__ or (whose == OWN and not _is_open(f.__code__.co_filename))


def has_attributes(x: object) -> bool:
    """Whether x has a class written in Python, and a dict of attributes."""
    return bool(type(x).__flags__ & MADE) and isinstance(getattr(x, "__dict__", None), dict)


class Names:
    """The names that the code which ran can read.

    labels      `__name__` and its like, as far as user code reads them of functions and classes
    user        the attributes that user and library code name; None: all attributes
    identities  whether user code can read identities (`id`, `hash`), not only compare them
    """

    labels: list[str]
    identities: bool

    def __init__(self, ran: RanCode):
        self._ran = ran
        attributes = [find_names(code).attributes for code, _ in ran.user]
        if ran.changes:
            attributes += [find_names(code).stores for code, _ in ran.user]
        self._known = frozenset(ran.library).union(*attributes)
        self.user: frozenset[str] | None = None if ran.dynamic else self._known
        self._own: dict[type, frozenset[str]] = {}
        users = [c for c, variables in ran.user if owner_of_code(c, variables) == USER]
        self.labels = sorted(
            _LABELS & frozenset().union(*[find_names(c).attributes for c in users])
        )
        asked = [find_names(code).globals for code, _ in ran.user]
        self.identities = any(not _WHICH.isdisjoint(g) for g in (*asked, *attributes))

    def relevant_names(self, held: Mapping[str, Any]) -> Set[str]:
        """The attributes in a dict that the code can name."""
        return set(held) if self.user is None else self.user & held.keys()

    def may_read(self, name: str) -> bool:
        """Whether the code can read an attribute of this name."""
        return self.user is None or name in self.user

    def beside(self, x: object) -> bool:
        """Whether an Enum member has more than its name and a plain value."""
        if not isinstance(x, Enum):
            return False
        if not is_plain(x._value_):
            return True
        own = x.__dict__.keys() - _MEMBER
        return bool(own if self.user is None else own & self.user)

    def meet(self, x: object) -> None:
        """Check a value: after a function that reads computed names, all attributes count."""
        if any(x is f for f in DYNAMIC):
            self.user = None

    def of_class(self, kind: type, held: Mapping[str, Any]) -> frozenset[str]:
        """The names of a class with this dict, with the special methods, which Python calls."""
        names = self.of_instance(kind)
        special = {n for n in held if n.startswith("__")} - _ALWAYS
        return frozenset(held) - _ALWAYS if names is None else names | special

    def of_instance(self, kind: type) -> frozenset[str] | None:
        """The names of instances of a class; a class of Weft may list them."""
        walked = getattr(kind, "_walked", None)
        if walked is not None and owner_of_class(kind) == OWN:
            return frozenset(walked)
        if self.user is None and _is_plain_holder(kind):
            return None
        if kind not in self._own:
            named = self._known | self._named_by_methods(kind)
            self._own[kind] = named - guarded_names(kind)
        return self._own[kind]

    def _named_by_methods(self, kind: type) -> frozenset[str]:
        """The names in Weft's methods that ran, and those in a class's `_read_by_name`."""
        found: set[str] = set()
        caches: set[str] = set()
        for base in kind.__mro__:
            if owner_of_class(base) != OWN:
                continue
            caches.update(base.__dict__.get("_caches", ()))
            found.update(base.__dict__.get("_read_by_name", ()))
            for code, names in _methods(base):
                if self._ran.has_run(code):
                    found.update(names)
        return frozenset(found - caches)


def guarded_names(kind: type) -> frozenset[str]:
    """The attributes of a class that the trace guards, or that programs read at each call."""
    found = [base.__dict__.get("_guarded", ()) for base in kind.__mro__]
    return frozenset([name for names in found for name in names])


@lru_cache(maxsize=None)  # Weft's own classes are never deleted
def _methods(kind: type) -> list[tuple[CodeType, set[str]]]:
    """The code objects of a class of Weft, and the names in each."""
    codes = [getattr(_function(f), "__code__", None) for f in list(kind.__dict__.values())]
    return [(code, _all_names(code)) for code in codes if code is not None]


def _is_plain_holder(kind: type) -> bool:
    """Whether code may read all attributes of a class's instances by computed names."""
    whose = owner_of_class(kind)
    return whose == USER or (whose == LIBRARY and kind.__module__ in ("types", "argparse"))


def _function(x) -> Any:
    """The function behind a method, a property, a class method, a decorated or deferred one."""
    x = x.generate() if isinstance(x, Deferred) else x
    x = getattr(x, "fget", None) or getattr(x, "__func__", None) or x
    return getattr(x, "__wrapped__", x) if isinstance(x, FunctionType) else x


def _all_names(code: CodeType) -> set[str]:
    """The names in a code object and those inside it, also as string constants."""
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    strings = [c for c in code.co_consts if isinstance(c, str) and c.isidentifier()]
    return set(code.co_names).union(strings, *map(_all_names, inner))


def slots_of(kind: type) -> list[tuple[str, MemberDescriptorType]]:
    """The slots of a class, with their descriptors."""
    return [
        (name, member)
        for base in kind.__mro__
        for name, member in base.__dict__.items()
        if isinstance(member, MemberDescriptorType)
    ]
