"""Outputs that are all of a root in another shape: they become the root, in that shape.

An executable binds the arrays of roots. Only an output that is one of these can be written where
the caller wants it: into the memory of the gradient before, for example.
"""

from dataclasses import replace

from ..ir.schedule import GuardStep, LibraryStep, Schedule, row_major


def shape_outputs(schedule: Schedule) -> Schedule:
    """The schedule whose roots have the shapes of outputs."""
    # Library calls and guards take arrays in the shapes of their buffers; other steps know strides.
    users = [s for s in schedule.steps if isinstance(s, LibraryStep | GuardStep)]
    kept = {*schedule.outputs, *[i for s in users for i in (*s.reads, *s.writes)]}
    buffers, outputs = list(schedule.buffers), list(schedule.outputs)
    for i in schedule.outputs:
        root = schedule.storage(i)
        if root not in kept and _is_whole(schedule, i):
            shape = buffers[i].shape
            buffers[root] = replace(buffers[root], shape=shape, strides=row_major(shape))
            outputs = [root if j == i else j for j in outputs]
            kept.add(root)
    return replace(schedule, buffers=tuple(buffers), outputs=tuple(outputs))


def _is_whole(schedule: Schedule, i: int) -> bool:
    """Whether a view is all of an output's memory, row by row."""
    b, root = schedule.buffers[i], schedule.buffers[schedule.storage(i)]
    return root.role == "output" and b.size == root.size and not b.offset and b.contiguous
