"""Looking up kernels: families are loaded for their own names only."""

import subprocess
import sys
from importlib import import_module

import pytest

from weft.backend.shared.families import _is_kernel

BACKENDS = ["numpy", "torch"]
# Of its library's names each is found; then the modules that were loaded for them are printed.
PROGRAM = """
import sys
from importlib import import_module

namespace = import_module(f"weft.backend.{sys.argv[1]}.namespace")
before = set(sys.modules)
for names in namespace._LIBRARY.values():
    for name in names.split():
        getattr(namespace, name)
families = {f"{namespace.__package__}.{family}" for family in namespace._FAMILIES}
print(sorted((set(sys.modules) - before) & families))
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_family_has_a_name_of_the_library(backend):
    namespace = import_module(f"weft.backend.{backend}.namespace")
    library = {name for names in namespace._LIBRARY.values() for name in names.split()}
    for family in namespace._FAMILIES:
        own = vars(import_module(f"{namespace.__package__}.{family}"))
        assert not [name for name in library if _is_kernel(own.get(name))], family


@pytest.mark.parametrize("backend", BACKENDS)
def test_names_of_the_library_load_no_family(backend):
    made = subprocess.run([sys.executable, "-c", PROGRAM, backend], capture_output=True, text=True)
    assert made.stdout.strip() == "[]", made.stderr


@pytest.mark.parametrize("backend", BACKENDS)
def test_unknown_names_are_errors_each_time(backend):
    namespace = import_module(f"weft.backend.{backend}.namespace")
    for _ in range(2):
        with pytest.raises(AttributeError, match="backend has no 'nonsense'"):
            _ = namespace.nonsense


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_kernel_is_in_two_families(backend):
    namespace = import_module(f"weft.backend.{backend}.namespace")
    modules = [import_module(f"{namespace.__package__}.{f}") for f in namespace._FAMILIES]
    for module in modules:
        for name, kernel in vars(module).items():
            if _is_kernel(kernel) and kernel.__module__ == module.__name__:
                others = [m for m in modules if m is not module and name in vars(m)]
                same = [vars(m)[name] for m in others if _is_kernel(vars(m)[name])]
                assert all([other is kernel for other in same]) or name.startswith("_"), name
