"""The compiler: functions as native code. The package itself is `wf.compile`, and can be called."""

import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    """A package that is also the function it is named for: importing from it must not hide that."""

    def __call__(
        self,
        f: Callable | None = None,
        *,
        static_argnums=(),
        static_argnames=(),
        max_variants: int = 8,
        dynamic: Mapping | None = None,
        buckets: Sequence[int] | None = None,
    ) -> Any:
        from .jit import compile  # at first use: LLVM and optree take their time

        return compile(
            f,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            max_variants=max_variants,
            dynamic=dynamic,
            buckets=buckets,
        )


_Package.__call__.__qualname__ = "compile"  # as Python's errors name it
sys.modules[__name__].__class__ = _Package
