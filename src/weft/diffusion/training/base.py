"""The sizes of the base that a configuration names, compared with its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import weft as wf

from ..files import has_weights, stated_config
from ..flux import Flux
from ..weights import check_weights
from .blaming import blaming

if TYPE_CHECKING:
    from ..config import FluxConfig
    from .config import TrainConfig

_MOST_BLOCKS = 1000  # of a model that is planned without its weights


def base_sizes(config: TrainConfig, needed: bool = True) -> FluxConfig:
    """The sizes of the base, whose files' headers are compared with them.

    config  the configuration
    needed  whether there must be files of weights beside a config.json
    """
    path = config.model.path
    with blaming(config, ("model", "path")):
        stated = None if needed or has_weights(path) else stated_config(path)
        if stated is None:
            return check_weights(lambda s: Flux(s, empty=True), path, config.model.dtype)
        blocks = stated.num_layers + stated.num_single_layers
        if blocks > _MOST_BLOCKS:
            raise wf.errors.ArgumentError(
                f"{path}: a config of {blocks} blocks, and no weights that it could be compared "
                f"with; expected at most {_MOST_BLOCKS}"
            )
        return stated
