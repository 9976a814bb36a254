"""A budget of bytes on a PyTorch device: room is made before each of PyTorch's operations.

PyTorch's allocator of a GPU counts, and takes no limit on what it counts. So each operation's need
is known beforehand: measured when it ran with such arguments, or guessed at the first time. If the
counter shows at the end that the budget was passed all the same, the step is refused, and needs are
measured anew. Measuring lets PyTorch's count of the peak begin again. Tensors in host memory are
counted by ourselves.
"""

from typing import Any
from weakref import ref

import torch

from ...backend.torch.allocations import (
    Observer,
    are_last,
    bytes_of,
    signature,
    tensors_of,
)
from ...backend.torch.namespace import device_name
from ...core.objects import live_objects
from ...core.record import record
from ...core.value import GROUND
from .host import above
from .limits import ALONE, DropOne, Limit, holders
from .values import Kept

# The most signatures of operations that are remembered for a device, and how often an operation is
# measured: the first time it may allocate what stays, a library's workspace.
_REMEMBERED, _TIMES = 100_000, 2
# The first time an operation has room for this many times the bytes of its operands, and some more:
# libraries take workspaces.
_OPERANDS, _WORKSPACE = 3, 1 / 16
# PyTorch's allocator of a GPU hands out a larger block whole, and counts all of it, unless more
# than this would be left over.
_SLACK = 1 << 20


@record
class Need:
    """The bytes of an operation: the most at once, those of its results, and how often measured."""

    most: int
    made: int
    times: int


# By device and signature.
_NEEDS: dict[torch.device, dict[Any, Need]] = {}


class DeviceLimit(Limit):
    """A budget of tensors on one device."""

    def __init__(self, device: torch.device, budget: int, drop_one: DropOne):
        super().__init__(budget, drop_one)
        self._device, self._name = device, device_name(device)
        self._bytes = bytes_of(device)
        self._needs = _NEEDS.setdefault(device, {})
        self._before = 0
        self._peak = 0  # before the counter's began again

    @property
    def live(self) -> int:
        return self._bytes.read()[0] + self.reserved

    @property
    def before(self) -> int:
        return self._before + self.reserved

    def use(self) -> None:
        """Values of the program lie here: from now on the limit holds."""
        if self.in_use:
            return
        self.in_use = True
        self.reserved += above.bytes_to_come(self._name)
        for x in () if self._bytes.is_complete else live_objects(GROUND):
            raw = getattr(x, "_data", None)
            if isinstance(raw, torch.Tensor) and raw.device == self._device:
                self._bytes.add(raw)
        self._before, peak = self._bytes.read()
        if peak + self.reserved > self.budget:  # else the peak tells that the budget was kept
            self._bytes.begin_peak()

    def count(self, array: torch.Tensor) -> None:
        """Count memory that was there before: parameters, batches."""
        self.use()
        if not self._bytes.is_complete:  # it may have come from NumPy in this block
            self._make_some_room(array.untyped_storage().nbytes())
        self._bytes.add(array)

    def check(self) -> None:
        """Note whether the budget was passed without our knowledge."""
        peak = max(self._peak, self._bytes.read()[1]) + self.reserved
        if self.in_use and peak > self.allowed:
            self.allowed = peak
            self._needs.clear()  # to be measured again

    def piece(self, array: Any) -> int | None:
        if not isinstance(array, torch.Tensor) or array.device != self._device:
            return None
        return array.untyped_storage()._cdata

    def frees(self, group: list[Kept]) -> bool:
        bases = {id(kept.array._base) for kept in group}
        for kept in group:
            array = kept.array
            # PyTorch holds the object of what other tensors are views of.
            if holders(array) - ALONE not in (0, int(id(array) in bases)):
                return False
        return are_last([kept.array for kept in group])

    # -- operations ------------------------------------------------------------------------------

    def run(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run an operation of PyTorch's that allocates, after room was made for it."""
        key = func, signature(args), signature(tuple(kwargs.values()))
        need = self._needs.get(key)
        if need is None or need.times < _TIMES:
            return self._measure(key, need, func, args, kwargs)
        most = self._bytes.most() + self.reserved
        if most + need.most > self.allowed and self.live + need.most > self.allowed:
            self.make_room(need.most)
        self._bytes.expect(need.made)
        return self._call(func, args, kwargs)

    def _measure(self, key: Any, had: Need | None, func: Any, args: tuple, kwargs: Any) -> Any:
        """Run an operation, with room for what it needed last time or for a guess."""
        operands = sum([x.nelement() * x.element_size() for x in tensors_of(args)])
        guess = _OPERANDS * operands + int(_WORKSPACE * self.budget)
        room = guess if had is None else had.most
        if self.live + room > self.allowed:
            self._make_some_room(room)
        before, most = self._bytes.read()
        self._peak = max(self._peak, most)
        self._bytes.begin_peak()
        result = self._call(func, args, kwargs)
        after, peak = self._bytes.read()
        self.allowed = max(self.allowed, peak + self.reserved)
        slack = self._slack(result) if peak - before > _SLACK else 0
        need = Need(peak - before + slack, max(after - before, 0) + slack, 1)
        if had is not None:
            need = Need(min(need.most, had.most), min(need.made, had.made), had.times + 1)
        if len(self._needs) > _REMEMBERED:
            self._needs.clear()
        self._needs[key] = need
        return result

    def _slack(self, result: Any) -> int:
        """How much more may be counted of an operation's blocks at another time."""
        if not self._bytes.is_complete:
            return 0
        made = tensors_of(result if isinstance(result, list | tuple) else (result,))
        large = [x for x in made if x.nelement() * x.element_size() > _SLACK]
        return _SLACK * max(len(large), 1)

    def _make_some_room(self, size: int) -> None:
        """Drop values until so many bytes fit, as far as there are any: they may not be needed."""
        while self.live + size > self.allowed and self._drop_one(self):
            pass

    def _call(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run an operation; where the device has no memory left, drop values and try again."""
        while True:
            try:
                result = func(*args, **kwargs)
                break
            except torch.OutOfMemoryError:
                if not self._drop_one(self):
                    raise
        for x in tensors_of(result if isinstance(result, list | tuple) else (result,)):
            self._bytes.add(x)
        return result


class Devices:
    """The limits of one budget on PyTorch's devices.

    reserved  bytes that are left to others on each
    """

    def __init__(self, budget: int, drop_one: DropOne, reserved: int):
        self._budget, self._drop_one, self._reserved = budget, drop_one, reserved
        self.limits: dict[torch.device, DeviceLimit] = {}

    def of(self, array: torch.Tensor) -> DeviceLimit:
        """The limit of the device that an array is on."""
        if array.device not in self.limits:
            limit = DeviceLimit(array.device, self._budget, self._drop_one)
            limit.reserved += self._reserved
            self.limits[array.device] = limit
        return self.limits[array.device]


def observe(devices: Devices) -> Observer:
    """A block whose operations run within these limits."""
    weak = ref(devices)

    def run(func: Any, args: tuple, kwargs: dict[str, Any], device: torch.device) -> Any:
        found = weak()
        limit = None if found is None else found.limits.get(device)
        if limit is None or not limit.in_use:
            return func(*args, **kwargs)
        return limit.run(func, args, kwargs)

    return Observer(run)
