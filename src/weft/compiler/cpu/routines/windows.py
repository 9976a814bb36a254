"""Windows along axes: which elements of an array a result depends on."""

from math import gcd

from ....core.record import record


@record
class Side:
    """One axis of a correlation.

    Result u is a sum over taps t, which read element u · stride + t · dilation − before of the
    array; those outside are zero. Tap t is number `first_tap + t · tap_step` of the weights, and
    result u is at `first + u · step` of the array of results.
    """

    size: int
    count: int
    stride: int
    dilation: int
    before: int
    taps: int
    first_tap: int = 0
    tap_step: int = 1
    first: int = 0
    step: int = 1

    @property
    def period(self) -> int:
        """The number of taps after which residues modulo the stride repeat."""
        return self.stride // gcd(self.stride, self.dilation)

    @property
    def residues(self) -> list[int]:
        """The residues of the elements that taps read."""
        return sorted({t * self.dilation % self.stride for t in range(min(self.taps, self.period))})

    @property
    def inside(self) -> bool:
        """Whether no tap reads outside."""
        last = (self.count - 1) * self.stride + (self.taps - 1) * self.dilation - self.before
        return self.before <= 0 and last < self.size

    def span(self, count: int) -> int:
        """How many elements a run of results spans."""
        return (count - 1) * self.stride + (self.taps - 1) * self.dilation + 1


def transposed_sides(
    count: int, size: int, taps: int, stride: int, dilation: int, before: int
) -> list[Side]:
    """The sides of one axis of a transposed convolution, from `count` windows to `size` elements.

    Elements q with the same (q + before) mod stride are one side: they read every period-th tap, in
    the opposite order. Sides without taps are zeros.
    """
    period, common = stride // gcd(stride, dilation), gcd(stride, dilation)
    found = []
    for residue in range(stride):
        first = (residue - before) % stride
        many = len(range(first, size, stride))
        if not many:
            continue
        start = next((t for t in range(period) if t * dilation % stride == residue), None)
        seen = 0 if residue % common or start is None else len(range(start, taps, period))
        if not seen:
            found.append(Side(count, many, 1, 1, 0, 0, first=first, step=stride))
            continue
        assert start is not None
        step, offset = period * dilation // stride, (first + before - start * dilation) // stride
        found.append(
            Side(
                *(count, many, 1, step, (seen - 1) * step - offset, seen),
                *(start + (seen - 1) * period, -period, first, stride),
            )
        )
    return found
