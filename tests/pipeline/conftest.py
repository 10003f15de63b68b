"""Backups and a server that several tests use."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.stores.made_backups import Backups


@pytest.fixture(scope="session")
def backups(tmp_path_factory: pytest.TempPathFactory) -> "Backups":
    """Backups of one node in several forms, made once; tests only read or copy them."""
    from tests.support.stores.made_backups import make_backups

    return make_backups(tmp_path_factory.mktemp("backups"))


@pytest.fixture(scope="package")
def bucket() -> Iterator[str]:
    """The URI of a bucket on a server with S3's interface. Each test has a directory of its own."""
    from tests.support.s3_server import s3_server

    with pytest.MonkeyPatch.context() as patch, s3_server(patch) as uri:
        yield uri
