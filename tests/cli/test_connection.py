"""The options and the environment of a command name its node, user, password and vhost."""

import pytest
import typer
from typer.testing import CliRunner, Result

from warrenmq.cli.connection import NamedBy, Node, node_uri, takes_node, takes_node_and_waits

app = typer.Typer()
found: list[Node] = []


@app.command()
@takes_node
def ask(what: str, node: Node, loudly: bool = False) -> None:
    """Asks."""
    found.append(node)


@app.command()
@takes_node_and_waits
def wait(node: Node) -> None:
    """Waits."""
    found.append(node)


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WARREN_URI", "WARREN_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def named(*options: str) -> Node:
    done = CliRunner().invoke(app, ["ask", "it", *options])
    assert done.exit_code == 0, done.output
    return found.pop()


def refused(*options: str) -> Result:
    done = CliRunner().invoke(app, ["ask", "it", *options])
    assert done.exit_code == 2 and not found
    return done


def test_without_options_it_is_the_node_of_this_machine() -> None:
    node = named()
    assert (node.uri, node.named_by) == ("amqp://guest:guest@localhost:5672/", NamedBy.DEFAULT)
    assert node.default_notice == (
        "no --uri, --host or WARREN_URI: taking the node at localhost:5672, user guest, vhost /"
    )


def test_a_uri_or_its_parts() -> None:
    """A node is named by a URI or by its parts, which may hold any character."""
    node = named("--uri", "amqp://u:p@mars:1/v")
    assert (node.uri, node.named_by, node.default_notice) == (
        "amqp://u:p@mars:1/v",
        NamedBy.OPTION,
        "",
    )
    node = named(
        "--host", "::1", "--port", "7", "--user", "a@b", "--password", "p/q", "--vhost", "x y"
    )
    address = node.address
    assert (address.host, address.port, address.user, address.password) == ("::1", 7, "a@b", "p/q")
    assert (address.vhost, node.vhost_option, node.named_by) == ("x y", "x y", NamedBy.OPTION)
    node = named("--uri", "amqps://mars/?verify=verify_none", "--user", "u", "--vhost", "v")
    assert node.uri == "amqps://u:guest@mars:5671/v?verify=verify_none"
    text = refused("--uri", "amqp://mars", "--port", "7").stderr
    assert text == "warren: name the node with --uri, or with --host and --port: one of them\n"


def test_the_environment_is_for_commands_that_name_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARREN_URI", "amqp://u:p@mars:1/v")
    node = named("--vhost", "w")
    assert (node.address.host, node.address.password, node.address.vhost) == ("mars", "p", "w")
    assert node.named_by is NamedBy.ENVIRONMENT
    node = named("--host", "venus")
    # The password in WARREN_URI is not sent to another node.
    assert (node.address.host, node.address.password) == ("venus", "guest")
    assert named("--uri", "amqp://venus").address.user == "guest"


def test_whose_password_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The password comes from the option, else from the URI, else from the environment."""
    monkeypatch.setenv("WARREN_PASSWORD", "environment")
    assert named().address.password == "environment"
    assert named("--uri", "amqp://u@mars").address.password == "environment"
    assert named("--uri", "amqp://u:uri@mars").address.password == "uri"
    assert named("--uri", "amqp://u:uri@mars", "--password", "typed").address.password == "typed"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--uri", "http://mars"), "--uri: the URI must begin with amqp://"),
        (("--uri", "amqp://u:se?cret@mars"), "--uri: "),
        (("--port", "70000"), "the URI's port is not a number"),
    ],
)
def test_what_names_no_node_is_one_line(options: tuple[str, ...], text: str) -> None:
    done = refused(*options)
    assert done.stderr.startswith(f"warren: {text}") and done.stderr.count("\n") == 1
    assert "cret" not in done.stderr


def test_only_some_wait() -> None:
    assert named().retry_timeout_s == 0
    for options, seconds in (([], 120), (["--retry-timeout", "0.5"], 0.5)):
        assert CliRunner().invoke(app, ["wait", *options]).exit_code == 0
        assert found.pop().retry_timeout_s == seconds
    assert CliRunner().invoke(app, ["wait", "--retry-timeout", "-1"]).exit_code == 2


def test_every_command_that_asks_a_node_has_the_same_options() -> None:
    """The help of every command that connects to a node lists the same connection options."""
    from warrenmq.cli.group import group
    from warrenmq.cli.pipeline.app import pipeline
    from warrenmq.cli.sink import sink

    for commands, names in ((group, ["list"]), (sink, ["show"]), (pipeline, ["archive", "report"])):
        for name in names:
            text = (
                CliRunner()
                .invoke(commands, [name, "--help"], env={"COLUMNS": "120", "NO_COLOR": "1"})
                .stdout
            )
            for option in ("--uri", "--host", "--port", "--user", "--password", "--vhost"):
                assert option in text, (name, option)


def test_parts_of_a_uri() -> None:
    assert node_uri("amqp://mars") == "amqp://mars"
    assert node_uri("amqp://u:p@mars:1/v", vhost="/") == "amqp://u:p@mars:1/%2F"
