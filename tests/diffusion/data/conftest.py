"""What tests of caches share."""

import pytest

from weft.io import disk


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """Only power cuts tell whether files were flushed, and flushing takes most of the time."""
    monkeypatch.setattr(disk, "sync", lambda fd: None)
    monkeypatch.setattr(disk, "sync_directory", lambda path: None)
