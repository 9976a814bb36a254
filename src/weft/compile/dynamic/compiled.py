"""A function whose calls of many lengths share programs."""

from collections.abc import Callable, Mapping
from time import perf_counter

from ... import errors
from ..arguments import Taken, difference
from ..effects import Before
from ..jit import Compiled, once
from ..program import Program
from ..report import Made
from ..trace import trace
from .lift import Differs
from .share import Sized, Template
from .spec import Dynamic, Sizes, resized


class DynamicCompiled(Compiled):
    """A function that is run as programs, one for each bucket of lengths.

    Each length of a call is traced when it first comes, which shows what the function does at it.
    The program is that of its bucket if the bucket's, with padding masked, does the same.
    """

    def __init__(
        self,
        f: Callable,
        static_argnums,
        static_argnames,
        max_variants: int,
        dynamic: Mapping,
        buckets,
    ):
        super().__init__(f, static_argnums, static_argnames, max_variants)
        self._options = (*self._options, dynamic, buckets)
        self._dynamic = Dynamic(f, dynamic, buckets)
        self._parameters = self._dynamic.names
        self._templates: dict[tuple, list[Template]] = {}
        self._latest_large: tuple | None = None

    def __call__(self, *args, **kwargs):
        if self._dynamic.valid:
            kwargs = self._dynamic.with_valid(args, kwargs)
        return super().__call__(*args, **kwargs)

    def _new_program(self, key: tuple, taken: Taken, why: str | None) -> Program:
        sizes = self._dynamic.sizes(taken)
        if not sizes.length:
            raise errors.ShapeError(
                f"compile: {self.name} is called with dynamic axes of length 0; call the function "
                "itself, fn.__wrapped__"
            )
        bucket, began = self._dynamic.bucket(sizes.length), perf_counter()
        before = Before(self.name, self.__wrapped__, taken.statics)
        program = trace(self.name, self.__wrapped__, taken)
        large = (*resized(taken, sizes, bucket).key, key[-1])
        new, differs = self._shared(Sized(sizes.length, program), taken, sizes, large)
        program.once = once(before.report())
        if not new:
            program.differs(taken.call)
            return program
        traced, latest = perf_counter() - began, self._latest_large
        if latest is not None:
            told = f"what else depends on the length, at length {sizes.length}"
            other = difference(latest, large, self._parameters) if latest != large else told
            why = differs or why or other
            self._check_room(why, None)
        program.begin(taken.call)
        self._latest_large = large
        notes = () if differs and latest else (self._told(bucket),)
        self._note(Made(program, key if differs else large, why or differs, traced, notes))
        return program

    def _told(self, bucket: int) -> str:
        """What programs of a bucket are for, in words."""
        axes = [f"{name!r} axis {', '.join(map(str, a))}" for name, a in self._dynamic.axes.items()]
        return f"for calls of up to {bucket} along {'; '.join(axes)}"

    def _shared(self, of: Sized, taken: Taken, sizes: Sizes, large: tuple) -> tuple[bool, str]:
        """Give a program native code of its bucket; whether that is new, and why it is its own."""
        templates = self._templates.setdefault(large, [])
        for template in templates:
            try:
                return template.fit(of), ""
            except Differs:
                continue
        bucket = self._dynamic.bucket(of.length)
        if bucket < 3:
            return True, f"length {of.length}, which shares its bucket with few others"
        other = of.length if 1 < of.length < bucket else bucket - 1
        small, whole = [self._at(n, of, taken, sizes) for n in (other, bucket)]
        try:
            template = Template(self.name, small, whole)
            new = template.fit(of)
        except Differs as e:
            return True, f"length {of.length}, at which the function does something else: {e}"
        templates.append(template)
        return new, ""

    def _at(self, length: int, of: Sized, taken: Taken, sizes: Sizes) -> Sized:
        """The function at another length of the bucket."""
        if length == of.length:
            return of
        try:
            return Sized(length, trace(self.name, self.__wrapped__, resized(taken, sizes, length)))
        except errors.WeftError as e:
            raise errors.PaddingError(
                f"compile: {self.name} is called with length {of.length}, and cannot be written "
                f"down for the length {length} of its bucket: {e}; give buckets=(…) of lengths "
                "that the function can have"
            ) from e
