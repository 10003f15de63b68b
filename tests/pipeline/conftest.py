"""Jobs are tested without a JVM where they only share out tasks."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.inline_spark import inline_or
from warren.pipeline import tasks

if TYPE_CHECKING:
    from tests.support.made_backups import Backups


@pytest.fixture(scope="session", autouse=True)
def inline_tasks() -> Iterator[None]:
    """For those who pass an `InlineSpark`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "on_partitions", inline_or(tasks.on_partitions))
        yield


@pytest.fixture(scope="session")
def backups(tmp_path_factory: pytest.TempPathFactory) -> "Backups":
    """Made once; the tests only look, or copy."""
    from tests.support.made_backups import make_backups

    return make_backups(tmp_path_factory.mktemp("backups"))
