"""Compiled code of tests is kept where no other run sees it; programs run on two targets."""

import os
from zlib import crc32

import pytest

from weft.compiler.pipeline import using

from .interpreter import INTERPRETER
from .targets import reason

EVERY = 1 if os.environ.get("WEFT_SOAK") == "1" else 12


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_CACHE_DIR", str(tmp_path_factory.mktemp("objects")))
        yield


@pytest.fixture(autouse=True)
def target(request):
    """The machine that a test's programs are compiled for; None: the processor at hand."""
    chosen = getattr(request, "param", None)
    if chosen is None:
        yield
    else:
        with using(chosen):
            yield chosen


def pytest_generate_tests(metafunc):
    """Tests of programs run for the CPU and for the interpreter."""
    if reason(metafunc.definition.path, metafunc.definition.name) is None:
        targets = [pytest.param(None, id="cpu"), pytest.param(INTERPRETER, id="interpreter")]
        metafunc.parametrize("target", targets, indirect=True)


def pytest_collection_modifyitems(items):
    """On the interpreter one in so many runs, chosen by its name; all of them in long runs."""

    def stays(item) -> bool:
        call = getattr(item, "callspec", None)
        interpreted = call is not None and call.params.get("target") is INTERPRETER
        proves = item.path.name == "test_targets.py"  # that the others do run there
        return not interpreted or proves or crc32(item.name.encode()) % EVERY == 0

    items[:] = [item for item in items if stays(item)]
