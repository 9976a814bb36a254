"""Shape inference while a graph is built: it is traced with two sizes for each unknown one."""

from typing import TYPE_CHECKING, Any

from ...core.aval import Aval
from ...core.box import Level
from ...core.settings import override_settings
from ...core.value import wrap
from ...graph.staged import Staged
from ..frontend.capture import Capture, CapturedDraws
from ..frontend.inputs import Call as Arguments
from ..frontend.inputs import TensorArgument
from .calls import GraphCall, Replay
from .names import public
from .values import Placeholder

if TYPE_CHECKING:
    from .graph import Graph

# With many divisors, so that an unknown size can be split evenly, and larger than most windows.
SIZES = (720, 1440)


class ShapeProbe:
    """The trace of a graph as built so far, with one size for all unknown dimensions."""

    def __init__(self, graph: "Graph", size: int):
        self.size = size
        self.capture: Capture = Capture("the graph", Arguments([], []))
        self.level: Level = Level(Staged, self.capture.tag, trace=self.capture)
        self.replay: Replay = Replay(graph, public().GradientTape(persistent=True), None)

    def _settings(self):
        return override_settings(
            staging=self.capture,
            levels=(self.level,),
            draws=CapturedDraws(self.capture),
            tapes=(),
            saved_hooks=None,
            saving=None,
            autocast=None,
            anomaly=False,
            grad=True,
        )

    def enter(self, placeholder: Placeholder) -> None:
        """Add a placeholder as an input of the trace."""
        shape = tuple([self.size if n is None else n for n in placeholder.shape])
        place = self.capture.enter(Aval(shape, placeholder.dtype), TensorArgument, 0)
        with self._settings():
            self.replay.feed(placeholder, wrap(place.staged))

    def compute(self, call: GraphCall) -> Any:
        """The results of a call: staged tensors."""
        with self._settings():
            return self.replay.compute(call)

    def forget(self, call: GraphCall) -> None:
        """Remove a call."""
        self.replay.results.pop(call, None)
