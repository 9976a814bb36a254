"""Training: data in a repeatable order, and the loop that goes on exactly after a kill.

>>> import weft as wf
>>> data = wf.train.TensorDataset(wf.arange(4), wf.arange(4) ** 2)
>>> for x, y in wf.train.DataLoader(data, batch_size=2):
...     print(x.tolist(), y.tolist())
[0, 1] [0, 1]
[2, 3] [4, 9]
"""

from .callbacks import Callback
from .collation import collate
from .curves import Curves, draw_curves
from .data import DataLoader
from .datasets import Subset, TensorDataset, random_split
from .early_stop import EarlyStopping
from .events import TensorBoard
from .health import GradientHealth
from .history import History
from .objective import supervised
from .trainer import Trainer

__all__ = [
    "Callback",
    "Curves",
    "DataLoader",
    "EarlyStopping",
    "GradientHealth",
    "History",
    "Subset",
    "TensorBoard",
    "TensorDataset",
    "Trainer",
    "collate",
    "draw_curves",
    "random_split",
    "supervised",
]


def __dir__() -> list[str]:
    return list(__all__)
