"""Stubs for the names that are assembled at run time: `python tools/stubs.py` writes them.

The signatures are those of the run-time functions; rows of the table, which have no annotations,
take arrays and give tensors. `tests/test_stubs.py` holds the files to what is written here.
"""

import builtins
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import weft
from weft.arrays import namespace
from weft.arrays.keywords import signature_of
from weft.arrays.tensor import Tensor
from weft.optim import configs, free_configs, optimizers, prodigy, schedule_free
from weft.optim.optimizer import Optimizer

ROOT = Path(weft.__file__).parent
HEADER = '"""{}"""\n\n# Written by tools/stubs.py; do not edit.\n\n'

# Annotations of parameters that have none: those of rows and of operators.
ROWS = {
    "buffer": "Tensor",
    "other": "ArrayLike",
    "out": "Tensor | None",
    "value": "ArrayLike",
    "x": "ArrayLike",
    "y": "ArrayLike",
    "z": "ArrayLike",
}
# Where the names in annotations come from, seen from the package.
HOMES = {
    "Any": "typing",
    "ArrayLike": ".arrays.types",
    "At": ".arrays.indexing",
    "Axes": ".arrays.types",
    "Callable": "collections.abc",
    "DTypeLike": ".arrays.types",
    "Device": ".arrays.types",
    "Generator": ".core.counter",
    "GradientMap": ".transform.modes.gradient_map",
    "HookHandle": ".transform.modes.backward",
    "Iterable": "collections.abc",
    "Index": ".arrays.types",
    "Iterator": "collections.abc",
    "Kind": ".arrays.dtype_functions",
    "Leaf": ".core.node",
    "Literal": "typing",
    "Mode": ".arrays.padding",
    "NamespaceInfo": ".arrays.dtype_functions",
    "Optimizer": ".optim.optimizer",
    "Optional": "typing",
    "Ordered": ".arrays.selection",
    "Params": ".optim.parameters",
    "Self": "typing",
    "SelfAveragingOptimizer": ".optim.averaged",
    "Sequence": "collections.abc",
    "Shape": ".arrays.types",
    "SimpleNamespace": "types",
    "SupportsDLPack": ".arrays.types",
    "Tensor": ".arrays.tensor",
    "UniqueAll": ".arrays.selection",
    "UniqueCounts": ".arrays.selection",
    "UniqueInverse": ".arrays.selection",
    "Value": ".core.value",
}
HOMES |= {n: ".optim.free_configs" for n in vars(free_configs) if n.endswith("Config")}
HOMES |= {n: ".optim.configs" for n in vars(configs) if n.endswith("Config")}
HOMES |= {n: ".arrays.linalg" for n, v in vars(namespace.linalg).items() if n.endswith("Result")}
# Operators that give something else than a tensor, or take less than an array.
OPERATORS = {
    "__eq__": "def __eq__(self, other: object) -> Tensor: ...",
    "__ne__": "def __ne__(self, other: object) -> Tensor: ...",
    "__hash__": "def __hash__(self) -> int: ...",
    "__new__": "def __new__(cls, data: Any = None, **options: Any) -> Self: ...",
    "__reduce__": "def __reduce__(self) -> tuple[Any, ...]: ...",
}
OTHER_RESULT = "  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]"
# Class attributes that checkers are not told: Python's own, and what only raises.
UNTOLD = {"__module__", "__doc__", "data", "__slots__", "__getattr__", "__weakref__", "__dict__"}


def annotation_text(annotation: Any) -> str:
    """An annotation as it is written; `_T` is the class that a method is called on."""
    if isinstance(annotation, str):
        return "Self" if annotation == "_T" else annotation
    if annotation is np.dtype:
        return "np.dtype[Any]"
    if isinstance(annotation, type):
        home = "np." if annotation.__module__ == "numpy" else ""
        return home + annotation.__name__
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", str(annotation)).replace("NoneType", "None")


def default_text(value: Any) -> str:
    """A default as it is written; `...` for one that has no short name."""
    if isinstance(value, type) and value.__module__ == "builtins":
        return value.__name__
    plain = value is None or isinstance(value, bool | int | float | complex | str | tuple)
    return repr(value) if plain and repr(value) not in ("inf", "nan") else "..."


def parameter_text(p: inspect.Parameter) -> str:
    """One parameter with its annotation and default."""
    star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
    annotated = p.annotation is not p.empty
    told = annotation_text(p.annotation) if annotated else ROWS.get(p.name, "Any")
    default = "" if p.default is p.empty else f" = {default_text(p.default)}"
    return f"{star}{p.name}: {told}{default}"


def stated_signature(function: Callable) -> inspect.Signature:
    """What a function says of its types; functions of rows leave arrays open, as `Any`."""
    found = signature_of(function)
    if not function.__module__.startswith("weft.ops."):
        return found
    taken = found.parameters.values()
    stated = [p.replace(annotation=p.empty) if p.annotation is Any else p for p in taken]
    result = found.empty if found.return_annotation is Any else found.return_annotation
    return found.replace(parameters=stated, return_annotation=result)


def parameters_text(function: Callable, method: bool) -> str:
    """What a function takes; of a method, the first parameter is `self`."""
    parameters = list(stated_signature(function).parameters.values())
    parts: list[str] = []
    for i, p in enumerate(parameters):
        before = parameters[i - 1] if i else None
        if before and before.kind is p.POSITIONAL_ONLY and p.kind is not p.POSITIONAL_ONLY:
            parts.append("/")
        starred = any(q.kind in (p.VAR_POSITIONAL, p.KEYWORD_ONLY) for q in parameters[:i])
        if p.kind is p.KEYWORD_ONLY and not starred:
            parts.append("*")
        parts.append("self" if method and i == 0 else parameter_text(p))
    if parameters and parameters[-1].kind is inspect.Parameter.POSITIONAL_ONLY:
        parts.append("/")
    return ", ".join(parts)


def result_text(function: Callable) -> str:
    """What a function gives: a tensor unless it says otherwise; `_T` is what it was called on."""
    found = stated_signature(function).return_annotation
    if found == "_T":
        return "Self"
    return "Tensor" if found is inspect.Signature.empty else annotation_text(found)


def doc_text(function: Any) -> str:
    """The first line of a docstring, as a body."""
    lines = (inspect.getdoc(function) or "").splitlines()
    if not lines:
        return "..."
    line = lines[0].replace("\\", "\\\\")
    return f'"""{line}"""' if len(line) <= 84 else "..."


def function_text(name: str, function: Callable, method: bool = False) -> str:
    """`def` of a function, or of a method."""
    parameters = parameters_text(function, method)
    return f"def {name}({parameters}) -> {result_text(function)}:\n    {doc_text(function)}\n"


def property_text(name: str, value: property) -> str:
    """A property, and its setter if it has one."""
    getter = value.fget
    assert getter is not None
    text = f"@property\ndef {name}(self) -> {result_text(getter)}:\n    {doc_text(getter)}\n"
    if value.fset is not None:
        (_, given) = inspect.signature(value.fset).parameters.values()
        told = annotation_text(given.annotation)
        text += f"@{name}.setter\ndef {name}(self, {given.name}: {told}) -> None: ...\n"
    return text


def member_text(name: str, value: Any) -> str:
    """One attribute of a class."""
    if name in OPERATORS:
        ignored = OTHER_RESULT if name in ("__eq__", "__ne__") else ""
        return OPERATORS[name] + ignored + "\n"
    if isinstance(value, property):
        return property_text(name, value)
    if isinstance(value, staticmethod):
        return "@staticmethod\n" + function_text(name, value.__func__)
    if name in _operators():
        others = list(inspect.signature(value).parameters.values())[1:]
        taken = [p for p in others if p.kind is p.POSITIONAL_OR_KEYWORD]
        arguments = "".join(", other: ArrayLike" for _ in taken)
        result = "Self" if name in namespace.augmented.METHODS else "Tensor"
        return f"def {name}(self{arguments}, /) -> {result}: ...\n"
    return function_text(name, value, method=True)


def _operators() -> set[str]:
    """Operators, whose functions are closures of rows."""
    arithmetic = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
    sides = {f"__{side}{name}__" for name in arithmetic for side in ("", "r", "i")}
    return sides | {f"__{n}__" for n in ("neg", "pos", "abs", "invert", "lt", "le", "gt", "ge")}


def imports_text(body: str, level: int, own: Iterable[str] = ()) -> str:
    """Imports of the names that a stub's text uses; `level` folders below the package."""
    words = set(re.findall(r"[A-Za-z_]\w*", re.sub(r'""".*?"""', "", body, flags=re.S)))
    lines = ["import numpy as np"] if "np" in words else []
    for name in sorted((words & HOMES.keys()) - set(own)):
        home = HOMES[name]
        lines.append(f"from {'.' * level + home if home[0] == '.' else home} import {name}")
    shadowed = {n for n in words if n.startswith("_") and hasattr(builtins, n[1:])}
    lines += [f"from builtins import {n[1:]} as {n}" for n in sorted(shadowed)]
    return "\n".join(lines) + "\n\n"


def tensor_stub() -> str:
    """`weft/arrays/tensor.pyi`."""
    members = {n: v for n, v in vars(Tensor).items() if n not in UNTOLD}
    body = "".join(member_text(n, members[n]) for n in members)
    text = "class Tensor(Value):\n" + _indented(f'"""{(Tensor.__doc__ or "").splitlines()[0]}"""')
    text += "\n" + _indented(body) + "\n\nTrackedTensor = Tensor\n"
    head = HEADER.format("Tensor with the methods it is given at run time.")
    return head + imports_text(text, 1, own=("Tensor",)) + text


def _indented(text: str) -> str:
    return "".join(f"    {line}" for line in text.splitlines(keepends=True))


def module_stub(name: str, module: ModuleType) -> str:
    """The stub of a module that is made at run time."""
    body, classes = "", []
    for n in sorted(module.__all__):
        value = getattr(module, n)
        if inspect.isclass(value):
            classes.append(f"from .{value.__module__.partition('.')[2]} import {n} as {n}\n")
        elif callable(value):
            body += function_text(n, value)
        else:
            body += f"{n}: {type(value).__name__}\n"
    body += _all_text(module.__all__)
    head = HEADER.format((module.__doc__ or "").splitlines()[0])
    known = [c.split()[-1] for c in classes]
    return head + "".join(classes) + imports_text(body, 0, own=known) + _unshadowed(body, module)


def _all_text(names: Iterable[str]) -> str:
    return f"\n__all__ = {sorted(names)!r}\n"


def _unshadowed(body: str, module: ModuleType) -> str:
    """Annotations that mean Python's type where the module has that name for something else."""
    for name in ("bool", "complex"):
        if hasattr(module, name):
            body = re.sub(rf"(?<=[:>|\[,] ){name}\b|(?<=\[){name}\b", f"_{name}", body)
    return body


def package_stub() -> str:
    """`weft/__init__.pyi`."""
    imports, functions, constants = [], "", []
    assembled = namespace.FUNCTIONS | namespace.CONSTANTS
    for name in weft.__all__:
        value = getattr(weft, name)
        if isinstance(value, ModuleType):
            imports.append(f"from . import {name} as {name}\n")
        elif name in assembled and inspect.isfunction(value):
            functions += function_text(name, value)
        elif inspect.isfunction(value) or inspect.isclass(value):
            imports.append(_import_text(name, value))
        else:
            constants.append(f"{name}: {constant_text(value)}\n")
    constants += ["__version__: str\n", "__array_api_version__: str\n"]
    info = function_text("__array_namespace_info__", weft.__array_namespace_info__)
    body = _unshadowed(functions + info, weft)
    text = "".join(constants) + "\n" + body + _all_text(weft.__all__)
    head = HEADER.format((weft.__doc__ or "").splitlines()[0])
    known = [line.split()[-1] for line in imports]
    return head + "".join(imports) + imports_text(text, 0, own=known) + text


def _import_text(name: str, value: Any) -> str:
    module, inside = weft._HOMES.get(name, (value.__module__.partition(".")[2], value.__name__))
    return f"from .{module} import {inside} as {name}\n"


def constant_text(value: Any) -> str:
    """The type of a constant."""
    if isinstance(value, np.dtype):
        known = value.type.__module__ == "numpy"
        return f"np.dtype[np.{value.type.__name__}]" if known else "np.dtype[Any]"
    return "None" if value is None else type(value).__name__


def optimizer_stub(module: ModuleType) -> str:
    """A module of optimizers, with the fields of their configs as keywords."""
    classes = {n: v for n, v in vars(module).items() if n[0] != "_" and inspect.isclass(v)}
    own = {n: v for n, v in classes.items() if v.__module__ == module.__name__}
    own = {n: v for n, v in own.items() if issubclass(v, Optimizer)}
    constants = {n: v for n, v in vars(module).items() if n.isupper() and type(v) is int}
    text = "".join(f"{n}: {constant_text(v)}\n" for n, v in constants.items()) + "\n"
    text += "".join(optimizer_text(name, own[name]) for name in own)
    head = HEADER.format((module.__doc__ or "").splitlines()[0])
    return head + imports_text(text, 1) + text


def optimizer_text(name: str, cls: type[Optimizer]) -> str:
    """One optimizer: what makes it, its config and its own properties."""
    config = cls.Config.__name__
    base = next(c.__name__ for c in cls.__mro__[1:] if c.__name__[0] != "_")
    parameters = ["self", f"params: Params | {config} | None = None"]
    parameters += [f"config: {config} | float | None = None", "*"]
    parameters += [f"{n}: {told} = {default}" for n, told, default in keywords_of(cls)]
    body = f"{doc_text(cls)}\n@property\ndef config(self) -> {config}: ...\n"
    body += f"def __init__({', '.join(parameters)}) -> None: ...\n"
    body += "".join(property_text(n, v) for n, v in vars(cls).items() if isinstance(v, property))
    return f"class {name}({base}):\n{_indented(body)}\n"


def keywords_of(cls: type[Optimizer]) -> list[tuple[str, str, str]]:
    """(name, type, default) of an optimizer's keywords: the fields, then PyTorch's names."""
    fields = signature_of(cls.Config).parameters
    told = {n: annotation_text(p.annotation) for n, p in fields.items()}
    defaults = {n: default_text(p.default) for n, p in fields.items()}
    for spelled, target in cls.Config.SPELLED.items():
        several = isinstance(target, tuple)
        taken = f"tuple[{', '.join(told[n] for n in target)}]" if several else told[str(target)]
        told[spelled] = f"{taken} | {told[spelled]}" if spelled in told else taken
    return [(n, told[n], defaults.get(n, "...")) for n in told]


def stubs() -> dict[Path, str]:
    """All stubs by their files, formatted."""
    texts = {ROOT / "__init__.pyi": package_stub(), ROOT / "arrays" / "tensor.pyi": tensor_stub()}
    for module in (optimizers, prodigy, schedule_free):
        name = module.__name__.rpartition(".")[2]
        texts[ROOT / "optim" / f"{name}.pyi"] = optimizer_stub(module)
    texts |= {ROOT / f"{n}.pyi": module_stub(n, m) for n, m in namespace.MODULES.items()}
    return {path: _formatted(path, text) for path, text in texts.items()}


def _formatted(path: Path, text: str) -> str:
    fixes = ["check", "--fix", "--quiet", "--select", "I,F401,RUF022"]
    for command in (fixes, ["format", "--quiet"]):
        call = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(path), "-"]
        text = subprocess.run(call, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(text)
        print(path.relative_to(ROOT.parent), len(text.splitlines()), "lines")
