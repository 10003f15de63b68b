"""Jobs are tested without a JVM where they only share out tasks."""

from collections.abc import Iterator

import pytest

from tests.support.inline_spark import inline_or
from warren.pipeline import tasks


@pytest.fixture(scope="session", autouse=True)
def inline_tasks() -> Iterator[None]:
    """For those who pass an `InlineSpark`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "on_partitions", inline_or(tasks.on_partitions))
        yield
