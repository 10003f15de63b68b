"""The data directory of a real node that was killed, for the tests of what reads it: import them in a conftest."""

from pathlib import Path

import pytest

from tests.support.stores import stopped_node
from tests.support.stores.stopped_node import copy_of, store_of


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the node left it; not to be changed."""
    return stopped_node.make_data_directory(tmp_path_factory.mktemp("node"))


@pytest.fixture
def data(original: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return copy_of(original, tmp_path / "data")


@pytest.fixture
def store(data: Path) -> Path:
    """The directory of its vhost."""
    return store_of(data)
