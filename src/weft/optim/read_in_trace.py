"""What a function that is being compiled reads of an optimizer's settings by itself.

A step reads the settings by its own guards and host scalars (`staged.py`). What user code reads
besides is compared before each call, and nothing else: a learning rate that only the step reads
may change.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn

from .. import errors


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise errors.StagingError(
        "compile: the groups of an optimizer are changed in a function that is being compiled, "
        "which would happen once, not at each call; change them outside of the function"
    )


class GroupsRead(list[dict[str, Any]]):
    """An optimizer's groups as user code in a trace sees them: nothing can be changed."""

    append = extend = insert = pop = remove = clear = reverse = sort = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse


class GroupRead(dict[str, Any]):
    """A group as user code in a trace sees it: what is read of it is compared at each call.

    note  is called with each key that is read, and with None when all are
    """

    __slots__ = ("_note",)
    _note: Callable[[str | None], None]

    def __init__(self, group: dict[str, Any], note: Callable[[str | None], None]):
        super().__init__(group)
        self._note = note

    setdefault = pop = popitem = update = clear = __setitem__ = __delitem__ = __ior__ = _refuse

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._note(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self._note(key)  # type: ignore[arg-type]
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole())

    def _whole(self) -> dict[str, Any]:
        """A plain copy, all of which is read."""
        self._note(None)
        return dict(dict.items(self))


def _of_whole(name: str) -> Callable[..., Any]:
    def read(self: GroupRead, *args: Any) -> Any:
        others = [dict(x) if isinstance(x, GroupRead) else x for x in args]
        return getattr(self._whole(), name)(*others)

    return read


for _name in (
    *("keys", "values", "items", "copy", "__len__", "__eq__", "__ne__", "__or__", "__ror__"),
    *("__repr__", "__reversed__", "__sizeof__"),
):
    setattr(GroupRead, _name, _of_whole(_name))


def groups_read(optimizer: Any, staging: Any) -> GroupsRead:
    """The groups of an optimizer for user code in a trace."""
    name = staging.name_of(optimizer, type(optimizer).__name__)
    label = f"{name}.param_groups"
    key = id(optimizer), "groups that user code reads"
    found: GroupsRead = staging.state(key, partial(_read_groups, optimizer, label, staging))
    return found


def _read_groups(optimizer: Any, label: str, staging: Any) -> GroupsRead:
    staging.note_read(label, optimizer.__dict__, "_param_groups", True)
    return GroupsRead(
        [
            GroupRead(group, partial(_note, f"{label}[{k}]", group, staging))
            for k, group in enumerate(optimizer._param_groups)
        ]
    )


def _note(label: str, group: dict[str, Any], staging: Any, key: str | None) -> None:
    if key is None:
        staging.note_read(label, {None: group}, None)
    else:
        staging.note_read(f"{label}[{key!r}]", group, key)
