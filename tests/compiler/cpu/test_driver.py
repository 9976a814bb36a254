"""The code that all programs share: it is compiled in no time, and kept."""

from weft.compiler.native import driver, objects
from weft.compiler.native import machine as target


def refused(*arguments, **named):
    raise AssertionError("the driver was compiled again, or at length")


def test_the_driver_takes_the_short_way_and_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "objects"))
    monkeypatch.setattr(target, "_optimise", refused)
    make = driver.driver.__wrapped__
    assert set(make().addresses) == set(driver.EXPORTS)
    monkeypatch.setattr(objects, "compile_module", refused)
    assert set(make().addresses) == set(driver.EXPORTS)
