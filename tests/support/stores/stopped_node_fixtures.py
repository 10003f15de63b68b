"""Fixtures with the data directory of a real, killed node; import them in a conftest."""

from pathlib import Path

import pytest

from tests.support.stores import stopped_node
from tests.support.stores.stopped_node import copy_of, store_of


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory as the node left it; tests must not change it."""
    return stopped_node.make_data_directory(tmp_path_factory.mktemp("node"))


@pytest.fixture
def data(original: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return copy_of(original, tmp_path / "data")


@pytest.fixture
def store(data: Path) -> Path:
    """The store of the copy's vhost."""
    return store_of(data)
