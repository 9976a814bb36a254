"""`wf.deterministic`: runs that repeat bit for bit, as a call, a block or a decorator."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..backend import reproducible
from ..core.determinism import Determinism, DeterministicConfig, DeterministicMode
from ..core.settings import F, SettingsBlock, current
from .random import default_generator


class deterministic(SettingsBlock):
    """Have the same program with the same seed give the same bits in every run.

    That holds on one machine, with one set of versions (`wf.fingerprint()` tells), and for any
    number of threads: what Weft shares among threads does not depend on their number, and BLAS,
    LAPACK and PyTorch are kept to one thread each. On a GPU PyTorch is held to deterministic
    kernels. Random numbers come from streams of the mode's own.

    As a plain call it holds from here on, in this thread or task and the threads that Weft starts
    for it; `close()` ends it. As a block or a decorator it ends with them, each use begins the
    streams anew, and the random numbers outside are as if it had not been. Threads and kernels of
    BLAS and PyTorch are settings of the process, put back when the last block ends.

    seed                 of the default random stream; None: it goes on where it is
    mode                 "strict" raises `wf.errors.NotDeterministic` at an operation that cannot
                         promise to repeat its result, "warn" warns once of each
    operation_seeds      True: each random operation has a stream of its own; a dict such as
                         {"dropout": 7} gives some of them their seeds; False: all share one stream
    cudnn_deterministic  whether cuDNN is kept from choosing its algorithms by timing them

    >>> import weft as wf
    >>> with wf.deterministic(seed=1):
    ...     first = wf.rand(3).tolist()
    >>> with wf.deterministic(seed=1):
    ...     _ = wf.randn(1000)  # another operation, which has its own stream
    ...     print(wf.rand(3).tolist() == first)
    True
    """

    def __init__(
        self,
        seed: int | None = 42,
        mode: DeterministicMode | str = "strict",
        operation_seeds: bool | Mapping[str, int] = True,
        cudnn_deterministic: bool = True,
    ):
        super().__init__()
        self._config = DeterministicConfig(mode, seed, operation_seeds, cudnn_deterministic)
        opened = self._switch()()
        self._opened: applied | None = opened
        opened.__enter__()

    def _switch(self) -> Callable[[], "applied"]:
        active = begin(self._config)
        return lambda: applied(active)

    def __enter__(self) -> None:
        if self._opened is None:
            super().__enter__()
        else:  # by the call that made this
            self._blocks.append(self._opened)
            self._opened = None

    def close(self) -> None:
        """End what the plain call began.

        >>> import weft as wf
        >>> mode = wf.deterministic(seed=1)
        >>> mode.close()
        """
        if self._opened is not None:
            self._opened.__exit__()
            self._opened = None

    def __call__(self, f: F) -> F:
        self.close()
        return super().__call__(f)


def begin(config: DeterministicConfig) -> Determinism:
    """A config at work, with its streams at their beginning."""
    active = Determinism(config, default_generator)
    name = reproducible.unpinned_blas()
    if name is not None:
        active.refuse_or_warn(
            "matmul",
            f"NumPy's BLAS ({name}) cannot be kept to one thread from here; start Python with "
            "OMP_NUM_THREADS=1",
        )
    return active


class applied:
    """A block in which a config is at work; its streams go on in the next one.

    No generator: what a plain call began must not end when nobody holds it.
    """

    def __init__(self, active: Determinism):
        self._active = active
        self._request = reproducible.Request(cudnn=active.config.cudnn_deterministic)

    def __enter__(self) -> None:
        reproducible.ask(self._request)
        self._token = current.set(replace(current.get(), determinism=self._active))

    def __exit__(self, *exc: object) -> None:
        current.reset(self._token)
        reproducible.withdraw(self._request)
