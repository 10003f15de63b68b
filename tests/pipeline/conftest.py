"""Backups that several tests read."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.stores.made_backups import Backups


@pytest.fixture(scope="session")
def backups(tmp_path_factory: pytest.TempPathFactory) -> "Backups":
    """Backups of one node in several forms, made once; tests only read or copy them."""
    from tests.support.stores.made_backups import make_backups

    return make_backups(tmp_path_factory.mktemp("backups"))
