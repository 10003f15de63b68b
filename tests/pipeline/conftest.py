"""Backups that several tests look at."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.stores.made_backups import Backups


@pytest.fixture(scope="session")
def backups(tmp_path_factory: pytest.TempPathFactory) -> "Backups":
    """Made once; the tests only look, or copy."""
    from tests.support.stores.made_backups import make_backups

    return make_backups(tmp_path_factory.mktemp("backups"))
