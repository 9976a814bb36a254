"""A compiled function whose calls of many lengths share native code."""

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

from ... import errors
from ...core.checkpointing import CheckpointConfig
from ..compiled import Compiled, P, R, single_use_reason
from ..explain.report import VariantRecord
from ..frontend.arguments import CallArguments, CallKey, difference
from ..frontend.effects import StateBefore
from ..frontend.trace import trace
from ..frontend.variant import Variant
from .share import Allow, SizedVariant, Template
from .spec import DynamicAxes, Sizes, resize_call
from .traces import Differs


class DynamicCompiled(Compiled[P, R]):
    """A compiled function with one program for each bucket of lengths.

    Each length is traced at its first call. It shares the native code of its bucket if the bucket's
    program, with padding masked, computes the same.
    """

    def __init__(
        self,
        f: Callable[P, R],
        static_argnums: int | Sequence[int],
        static_argnames: str | Sequence[str],
        max_variants: int,
        checkpoint: CheckpointConfig | None,
        capture: bool,
        dynamic: Mapping[Any, Any],
        buckets: Sequence[int] | None,
    ):
        if checkpoint is not None and checkpoint.budget is not None:
            raise errors.ArgumentError(
                "compile: a memory budget with dynamic, whose arguments are padded with copies; "
                "give checkpoint another strategy, or compile for each length"
            )
        super().__init__(f, static_argnums, static_argnames, max_variants, checkpoint, capture)
        self._options = (*self._options, dynamic, buckets)
        self._dynamic = DynamicAxes(f, dynamic, buckets)
        self._parameters = self._dynamic.names
        self._templates: dict[CallKey, list[Template]] = {}
        self._latest_large: CallKey | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._dynamic.valid:
            kwargs = self._dynamic.with_valid(args, kwargs)  # type: ignore[assignment]
        return super().__call__(*args, **kwargs)

    def _new_variant(self, key: CallKey, taken: CallArguments, why: str | None) -> Variant:
        sizes = self._dynamic.sizes(taken)
        if not sizes.length:
            raise errors.ShapeError(
                f"compile: {self.name} is called with dynamic axes of length 0; call the function "
                "itself, fn.__wrapped__"
            )
        bucket, began = self._dynamic.bucket(sizes.length), perf_counter()
        before = StateBefore(self.name, self.__wrapped__, taken.statics)
        program = trace(self.name, self.__wrapped__, taken)
        _refuse_device(self.name, program.arrays.device)
        program.choose(self.checkpoint, self.capture)
        large = (*resize_call(taken, sizes, bucket).key, key[-1])
        reasons: list[str] = []  # why new native code is needed; empty if it is not

        def allow(reason: str) -> None:
            reasons.append(reason or why or self._other(large, sizes.length))
            if self._made:
                self._check_room(reasons[0], None)

        own = self._share_native_code(
            SizedVariant(sizes.length, program), taken, sizes, large, allow
        )
        program.once, traced = single_use_reason(before.report()), perf_counter() - began
        if not reasons:
            program.prepare(taken.call)
            program.renew(taken.call)
            return program
        program.begin(taken.call)
        self._latest_large = large
        reason = reasons[0] if self._made or own else ""
        notes = () if own else (self._describe_bucket(bucket),)
        self._note(VariantRecord(program, key if own else large, reason, traced, notes))
        return program

    def _other(self, large: CallKey, length: int) -> str:
        """A text for how a call differs from those that have programs."""
        latest = self._latest_large
        if latest is None or latest == large:
            return f"what else depends on the length, at length {length}"
        return difference(latest, large, self._parameters)

    def _describe_bucket(self, bucket: int) -> str:
        """A text for the calls that a bucket's programs are for."""
        axes = [f"{name!r} axis {', '.join(map(str, a))}" for name, a in self._dynamic.axes.items()]
        return f"for calls of up to {bucket} along {'; '.join(axes)}"

    def _share_native_code(
        self, of: SizedVariant, taken: CallArguments, sizes: Sizes, large: CallKey, allow: Allow
    ) -> bool:
        """Let a variant run native code of its bucket; True if it needs code of its own."""
        templates, why = self._templates.setdefault(large, []), ""
        for template in templates:
            try:
                template.fit(of, allow)
                return False
            except Differs as e:
                why = f"what the function does now: {e}"
        bucket = self._dynamic.bucket(of.length)
        if bucket < 3:
            allow(f"length {of.length}, in a bucket of few")
            return True
        try:
            template = self._template(of, bucket, taken, sizes)
            template.fit(of, lambda reason: allow(reason or why))
        except Differs as e:
            allow(f"length {of.length}, at which the function does something else: {e}")
            return True
        templates.append(template)
        return False

    def _template(
        self, of: SizedVariant, bucket: int, taken: CallArguments, sizes: Sizes
    ) -> Template:
        """The function at its bucket's length, compared with its trace at the call's length.

        Where a short call is a special case (fewer elements than a slice takes), the bucket's
        longest lengths are compared; the call then gets a program of its own.
        """
        whole, failures = self._at(bucket, of, taken, sizes), []
        shorter = of.length if 1 < of.length < bucket else bucket - 1
        for length in dict.fromkeys((shorter, bucket - 1)):
            try:
                return Template(self.name, self._at(length, of, taken, sizes), whole)
            except (Differs, errors.PaddingError) as e:
                failures.append(e)
        raise failures[0]

    def _at(
        self, length: int, of: SizedVariant, taken: CallArguments, sizes: Sizes
    ) -> SizedVariant:
        """Trace the function at another length of the bucket."""
        if length == of.length:
            return of
        try:
            return SizedVariant(
                length, trace(self.name, self.__wrapped__, resize_call(taken, sizes, length))
            )
        except errors.WeftError as e:
            raise errors.PaddingError(
                f"compile: {self.name} is called with length {of.length}, and cannot be written "
                f"down for the length {length} of its bucket: {e}; give buckets=(…) of lengths "
                "that the function can have"
            ) from e


def _refuse_device(name: str, device: str) -> None:
    if device != "cpu":
        raise errors.DeviceError(
            f"compile: {name} is called with tensors on {device!r}, and dynamic= pads arrays on "
            "'cpu' only; compile it without dynamic=, or move the tensors with .to('cpu')"
        )
