"""Distributes the tests to parallel processes (`pytest -n 3`).

The tests of a file stay in one process, in their order, so that each of its fixtures starts once.
Files that use the one Spark session of a run stay together, and so do files that use the one
RabbitMQ. The longest files start first: one that started last would keep a single process busy at
the end.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadscope import LoadScopeScheduling

# For each shared fixture, the files whose tests use it; the longest family first.
SHARED = {
    "spark": (
        "tests/pipeline/archives/test_with_spark.py",
        "tests/pipeline/test_engine.py",
        "tests/pipeline/replays/test_with_spark.py",
        "tests/pipeline/reports/test_job.py",
        "tests/pipeline/test_store_jobs_with_spark.py",
        "tests/spark/amqp/test_with_spark.py",
        "tests/spark/test_documentation.py",
        "tests/spark/test_with_spark.py",
    ),
    "rabbitmq": (
        "tests/pipeline/rabbitmq/test_import.py",
        "tests/spark/amqp/test_sink.py",
        "tests/spark/amqp/test_source.py",
        "tests/tables/rabbitmq/test_real_directories.py",
    ),
}
FAMILIES = {path: fixture for fixture, paths in SHARED.items() for path in paths}


def file_of(nodeid: str) -> str:
    """The path of a test's file."""
    return nodeid.partition("::")[0]


def family_of(nodeid: str) -> str:
    """The family of a test, which one process runs; a file without a shared fixture is its own."""
    path = file_of(nodeid)
    return FAMILIES.get(path, path)


def arrange(items: list[pytest.Item]) -> None:
    """Sort `items` into execution order; UsageError for a file that is missing in SHARED."""
    long_families = set()
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        for fixture, paths in SHARED.items():
            if fixture in fixtures and file_of(item.nodeid) not in paths:
                raise pytest.UsageError(
                    f"{file_of(item.nodeid)} uses {fixture}: name it in {__name__}"
                )
        if any(item.get_closest_marker(name) for name in ("slow", "kill", "spark")):
            long_families.add(family_of(item.nodeid))
    ranks = {family: rank for rank, family in enumerate(SHARED)}

    def rank(item: pytest.Item) -> int:
        family = family_of(item.nodeid)
        return ranks.get(family, len(ranks) + (family not in long_families))

    items.sort(key=rank)


class FamilyScheduling(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives each process whole families, in the order of `arrange`."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return family_of(nodeid)
