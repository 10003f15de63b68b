"""Which build is tested: `--build=compiled` and `--build=interpreted` insist on one, and the header names it.

Without the option whatever `warren` Python finds is tested; the header says which.
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import warren
from warren.build import build_name, compiled_module_paths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bench.brokers import RabbitmqBroker
    from tests.support.rabbitmq_directories import RealDirectories

PACKAGE = Path(warren.__file__).parent
SOURCES = Path(__file__).parent.parent / "src"

# How long an example takes says more about the machine than about the code. What else is usual here, or under CI, stays.
settings.register_profile(
    "any machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--build",
        choices=("compiled", "interpreted"),
        help="fail unless this build of warren is the one loaded",
    )


def pytest_configure(config: pytest.Config) -> None:
    wanted = config.getoption("--build")
    if wanted is None:
        return
    for path in compiled_module_paths(PACKAGE):
        name = ".".join(("warren", *Path(path).relative_to(PACKAGE).with_suffix("").parts))
        spec = importlib.util.find_spec(name)
        loaded = spec.origin if spec else None
        if loaded is None or loaded.endswith(".py") != (wanted == "interpreted"):
            raise pytest.UsageError(f"{name} should be {wanted}, but would be loaded from {loaded}")
    if wanted == "interpreted" and not PACKAGE.is_relative_to(SOURCES):
        raise pytest.UsageError(f"warren should come from {SOURCES}, not from {PACKAGE}")


def pytest_report_header() -> str:
    return f"warren: {build_name()}, from {PACKAGE}"


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator["RabbitmqBroker"]:
    """The one RabbitMQ of a test run, stopped or running. Tests leave no queues and exchanges behind."""
    from bench.brokers import rabbitmq_server
    from tests.support.rabbitmq_directories import make_node

    if rabbitmq_server() is None:
        pytest.skip("rabbitmq-server is not installed")
    broker = make_node(tmp_path_factory.mktemp("rabbitmq"))
    yield broker
    broker.kill()
    # What it has beside its node.
    broker.stop()


@pytest.fixture(scope="session")
def rabbitmq_directories(
    rabbitmq: "RabbitmqBroker", tmp_path_factory: pytest.TempPathFactory
) -> "RealDirectories":
    """What it leaves on the disk, killed and stopped, with a ledger. Made once; tests only look."""
    from tests.support.rabbitmq_directories import make

    return make(rabbitmq, tmp_path_factory.mktemp("rabbitmq-directories"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """The one Spark session of a test run: a JVM takes its time to start, and a gigabyte."""
    from tests.support.spark_settings import FAST_SETTINGS
    from warren.spark import SparkUnavailableError, session
    from warren.spark.java import require_spark

    try:
        require_spark()
    except SparkUnavailableError as error:
        pytest.skip(str(error))
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    spark = session("tests", settings=FAST_SETTINGS | {"spark.sql.warehouse.dir": warehouse})
    yield spark
    spark.stop()
