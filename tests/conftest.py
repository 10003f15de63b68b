"""Options and fixtures of all tests: the build under test, the random cases, the meaning of a skip.

`--build=compiled` and `--build=interpreted` insist on one build; without the option the tests use
the `warren` that Python finds, and the header names it.

Under CI the property tests of the interpreted build try the same cases each time; those of the
compiled build try the commit's own cases (`tests/support/explored.py`). Elsewhere hypothesis
chooses. Under CI a skip because of a missing tool is a failure (`tests/support/skips.py`).
"""

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import warrenmq
from tests.support.explored import commit_number
from tests.support.side_by_side import FamilyScheduling, arrange
from tests.support.skips import SkipPolicy
from warrenmq.build import build_name, compiled_module_paths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.remote import Producer

    from bench.brokers import RabbitmqBroker
    from tests.support.rabbitmq.directories import RealDirectories

PACKAGE = Path(warrenmq.__file__).parent
SOURCES = Path(__file__).parent.parent / "src"

# Nodes of tests have no HTTP API unless they ask for it: its process would take most of the time.
os.environ.setdefault("WARREN_CONF__management__listen", "off")

IS_CI = bool(os.environ.get("CI"))
EXPLORES = IS_CI and build_name() == "compiled"

# No deadline: the duration of an example depends more on the machine than on the code.
settings.register_profile(
    "any machine",
    settings(),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=IS_CI and not EXPLORES,
)
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--build",
        choices=("compiled", "interpreted"),
        help="fail unless this build of warren is the one loaded",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Insist on the build; set hypothesis' seed to the commit's number before it is configured."""
    config.pluginmanager.register(SkipPolicy(IS_CI))
    if EXPLORES and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(commit_number())
    wanted = config.getoption("--build")
    if wanted is None:
        return
    for path in compiled_module_paths(PACKAGE):
        name = ".".join(("warrenmq", *Path(path).relative_to(PACKAGE).with_suffix("").parts))
        spec = importlib.util.find_spec(name)
        loaded = spec.origin if spec else None
        if loaded is None or loaded.endswith(".py") != (wanted == "interpreted"):
            raise pytest.UsageError(f"{name} should be {wanted}, but would be loaded from {loaded}")
    if wanted == "interpreted" and not PACKAGE.is_relative_to(SOURCES):
        raise pytest.UsageError(f"warren should come from {SOURCES}, not from {PACKAGE}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        arrange(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> FamilyScheduling:
    return FamilyScheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    drivers = sys.modules.get("tests.support.stores.store_driver")
    if drivers is not None:
        drivers.close_drivers()


def pytest_report_header(config: pytest.Config) -> list[str]:
    seed = config.option.hypothesis_seed
    cases = f"--hypothesis-seed={seed}" if seed else "the same each time" if IS_CI else "by chance"
    return [f"warren: {build_name()}, from {PACKAGE}", f"cases of property tests: {cases}"]


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator["RabbitmqBroker"]:
    """The one RabbitMQ of a test run, stopped or running; tests leave no queues or exchanges."""
    from bench.brokers import rabbitmq_server
    from tests.support.rabbitmq.directories import make_node

    if rabbitmq_server() is None:
        pytest.skip("rabbitmq-server is not installed")
    broker = make_node(tmp_path_factory.mktemp("rabbitmq"))
    yield broker
    broker.kill()
    # End its epmd, which runs beside the node.
    broker.stop()


@pytest.fixture(scope="session")
def rabbitmq_directories(
    rabbitmq: "RabbitmqBroker", tmp_path_factory: pytest.TempPathFactory
) -> "RealDirectories":
    """Directories of a killed and of a stopped RabbitMQ, with an account of their messages.

    Made once a test run; tests only read them.
    """
    from tests.support.rabbitmq.directories import make

    return make(rabbitmq, tmp_path_factory.mktemp("rabbitmq-directories"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """The one Spark session of a test run: a JVM needs seconds to start, and a gigabyte."""
    from tests.support.spark.settings import FAST_SETTINGS
    from warrenmq.spark import SparkUnavailableError, session
    from warrenmq.spark.local.java import require_spark

    try:
        require_spark()
    except SparkUnavailableError as error:
        pytest.skip(str(error))
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    settings = FAST_SETTINGS | {"spark.sql.warehouse.dir": warehouse}
    spark = session("tests", settings=settings, is_light=True)
    yield spark
    spark.stop()
