"""The pytest plugin: brokers as fixtures, for the tests of applications that use AMQP.

| fixture | what a test gets |
|---|---|
| `warren_broker` | a broker of its own, empty, ended after the test |
| `warren_broker_module` | the broker of its module |
| `warren_broker_session` | the one broker of the test process |
| `warren_vhost` | a vhost of its own on that broker, empty, deleted after the test |

`@pytest.mark.warren(settings={...}, definitions={...})` configures the broker of a test or of a
module, the ini options `warren_settings` and `warren_definitions` every broker. pytest loads this
module at each start, so it imports nothing that a run without brokers does not need.
"""

from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from warrenmq.testing.broker import Definitions, Settings, WarrenBroker
    from warrenmq.testing.vhost import WarrenVhost

_OWN: Final = "warren_broker"
_MODULE: Final = "warren_broker_module"
_SESSION: Final = "warren_broker_session"

# Running brokers by the name of their fixture.
_running = pytest.StashKey[dict[str, "WarrenBroker"]]()
# Length of the log of each running broker when the test began.
_log_starts = pytest.StashKey[dict[str, int]]()
# Files that --warren-keep left: the test or fixture, and the directory.
_kept = pytest.StashKey[list[tuple[str, str]]]()
# Key of the same list in what a worker of pytest-xdist sends to the process that prints.
_KEPT_OUTPUT: Final = "warren_kept"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("warren", "brokers as fixtures")
    group.addoption(
        "--warren-keep",
        action="store_true",
        help="keep the data directory and the log of each broker, and print where they are",
    )
    parser.addini(
        "warren_settings",
        "settings of every broker that a fixture starts, one KEY = VALUE a line",
        type="linelist",
        default=[],
    )
    parser.addini(
        "warren_definitions",
        "JSON file with definitions that every broker begins with, relative to the ini-file",
        type="string",
        default="",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_running] = {}
    config.stash[_kept] = []
    config.addinivalue_line(
        "markers",
        "warren(settings=None, definitions=None): settings and definitions (a mapping, or the "
        "path of a JSON file) of the broker of `warren_broker` or `warren_broker_module`",
    )


@pytest.fixture
def warren_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[WarrenBroker]":
    """A running broker of the test's own, without messages; it ends after the test."""
    yield from _marked_broker(request, _OWN, tmp_path_factory)


@pytest.fixture(scope="module")
def warren_broker_module(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[WarrenBroker]":
    """A running broker for the tests of a module; it ends after the last one."""
    yield from _marked_broker(request, _MODULE, tmp_path_factory)


@pytest.fixture(scope="session")
def warren_broker_session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[WarrenBroker]":
    """A running broker for all tests of this process; it ends after the last one."""
    directory = tmp_path_factory.mktemp("warren-session")
    yield from _broker(request.config, _SESSION, _SESSION, directory, *_configured(request.config))


@pytest.fixture
def warren_vhost(
    request: pytest.FixtureRequest, warren_broker_session: "WarrenBroker"
) -> "Iterator[WarrenVhost]":
    """An empty vhost of the test's own on the broker of the session; deleted after the test."""
    if request.node.get_closest_marker("warren") is not None:
        raise pytest.UsageError(
            f"{request.node.nodeid}: the mark `warren` configures a broker of the test's own, or "
            "of its module: use the fixture warren_broker or warren_broker_module"
        )
    from warrenmq.testing.vhost import new_vhost

    with new_vhost(warren_broker_session) as vhost:
        yield vhost


def _marked_broker(
    request: pytest.FixtureRequest, fixture: str, directories: pytest.TempPathFactory
) -> "Iterator[WarrenBroker]":
    """A broker as the ini-file and the marks of the test or module want it."""
    settings, definitions = _configured(request.config)
    # iter_markers begins with the closest mark, which wins.
    for mark in reversed(list(request.node.iter_markers("warren"))):
        own_settings, own_definitions = _of_mark(*mark.args, **mark.kwargs)
        settings = {**settings, **own_settings}
        definitions = definitions if own_definitions is None else own_definitions
    yield from _broker(
        request.config, fixture, request.node.nodeid, directories.mktemp("warren"), settings,
        definitions,
    )  # fmt: skip


def _broker(
    config: pytest.Config,
    fixture: str,
    user: str,
    directory: Path,
    settings: "Settings",
    definitions: "Definitions | None",
) -> "Iterator[WarrenBroker]":
    """Start a broker for `fixture`, yield it, end it, and remove or keep its files."""
    from warrenmq.testing.broker import WarrenBroker

    broker = WarrenBroker(directory, settings, definitions)
    try:
        with broker:
            config.stash[_running][fixture] = broker
            yield broker
            if config.option.warren_keep:
                # A clean stop leaves files that another node or `warren store` reads at once.
                broker.stop()
    finally:
        config.stash[_running].pop(fixture, None)
        if config.option.warren_keep:
            config.stash[_kept].append((user, str(directory)))
        else:
            broker.remove_files()


def _configured(config: pytest.Config) -> "tuple[dict[str, object], Definitions | None]":
    """Settings and definitions of the ini-file. Raises UsageError."""
    settings: dict[str, object] = {}
    for line in config.getini("warren_settings"):
        key, found, value = line.partition("=")
        if not found:
            raise pytest.UsageError(f"warren_settings: {line!r} is not KEY = VALUE")
        settings[key.strip()] = value.strip()
    name = config.getini("warren_definitions")
    base = config.rootpath if config.inipath is None else config.inipath.parent
    return settings, _read_definitions(base / name) if name else None


def _of_mark(
    *,
    settings: "Settings | None" = None,
    definitions: "Definitions | str | Path | None" = None,
) -> "tuple[Settings, Definitions | None]":
    if definitions is None or isinstance(definitions, Mapping):
        return settings or {}, definitions
    return settings or {}, _read_definitions(Path(definitions))


def _read_definitions(path: Path) -> Any:
    import json

    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"definitions in {path}: {error}") from None


# -- the log of a failed test ----------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    running = item.config.stash[_running]
    if running:
        item.stash[_log_starts] = {name: broker.log_size() for name, broker in running.items()}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the test's brokers logged during the test to the report of a failure."""
    report = yield
    if report.failed:
        starts = item.stash.get(_log_starts, {})
        used = getattr(item, "fixturenames", ())
        for name, broker in item.config.stash[_running].items():
            if name in used:
                report.sections.append((f"log of {name}", broker.log(starts.get(name, 0))))
    return report


# -- files that are kept ---------------------------------------------------------------------------


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the list of kept files from a worker of pytest-xdist."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_KEPT_OUTPUT] = session.config.stash[_kept]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Receive the list of kept files of a worker of pytest-xdist."""
    output = getattr(node, "workeroutput", {})
    node.config.stash[_kept] += [(user, path) for user, path in output.get(_KEPT_OUTPUT, ())]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    kept = terminalreporter.config.stash[_kept]
    if kept:
        terminalreporter.section("files of warren's brokers")
        for user, path in kept:
            terminalreporter.write_line(f"{user}: {path}")
