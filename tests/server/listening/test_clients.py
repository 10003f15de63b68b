"""Warren's own clients over TLS: the admin client, Spark's AMQP connection, the load generator."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.tls_process import TlsBroker
from warrenmq.admin.client.client import (
    AdminClient,
    NodeAddress,
    NodeUnreachableError,
    TlsRefusedError,
)
from warrenmq.admin.protocol.control import List, Rows
from warrenmq.admin.protocol.figures import DescribeNode, NodeStatus
from warrenmq.perf.options import PerfOptions
from warrenmq.perf.run import run
from warrenmq.spark.amqp.connection import AmqpConnection
from warrenmq.spark.retry import is_transient
from warrenmq.wire.methods import QueueDeclare, QueueDeclareOk


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    node = TlsBroker(tmp_path_factory.mktemp("tls"), "ssl_options.fail_if_no_peer_cert=true")
    node.start()
    yield node
    assert node.stop() == 0
    assert "Traceback" not in node.log_path.read_text()


@pytest.fixture(scope="module")
def uri(broker: TlsBroker) -> str:
    """A URI with a certificate of the client's own."""
    mine = broker.authority.issue("client")
    return f"{broker.tls_uri}&certfile={mine.certfile}&keyfile={mine.keyfile}"


def test_the_admin_client(uri: str) -> None:
    with AdminClient(NodeAddress(uri), "test") as client:
        assert [each.vhost for each in client.request(DescribeNode(), NodeStatus).vhosts] == ["/"]


def test_an_amqp_connection_of_spark(uri: str) -> None:
    connection = AmqpConnection(NodeAddress(uri), "test", 10)
    declared = connection.call(QueueDeclare(b"", exclusive=True), QueueDeclareOk)
    assert declared.queue.startswith(b"amq.gen-")
    connection.close()


def test_the_certificate_of_a_client_is_listed(uri: str) -> None:
    connection = AmqpConnection(NodeAddress(uri), "test", 10)
    columns = ["peer_cert_subject", "peer_cert_issuer", "peer_cert_validity"]
    with AdminClient(NodeAddress(uri), "test") as client:
        ((subject, issuer, validity),) = client.request(
            List(what="connections", columns=columns), Rows
        ).rows
    connection.close()
    assert (subject, issuer) == ("CN=client", "CN=authority")
    time = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert re.fullmatch(f"{time} - {time}", validity)


def test_the_load_generator(uri: str) -> None:
    options = PerfOptions(
        uri=uri, size=20_000, confirm=50, pmessages=500, cmessages=500, flags=["persistent"]
    )
    summary = run(options, lambda interval: None)
    assert (summary.published, summary.received) == (500, 500)


@pytest.mark.parametrize("kind", [AdminClient, AmqpConnection])
def test_who_is_not_trusted(
    broker: TlsBroker, uri: str, tmp_path: Path, kind: type[AdminClient]
) -> None:
    """One line says why, and no job retries it."""
    other = tmp_path / "other.pem"
    other.write_text("nothing")
    by_name = uri.replace("127.0.0.1", "localhost")
    for wrong, text in (
        (
            uri.replace("cacertfile=", "verify=verify_peer&password="),
            "its certificate is not trusted",
        ),
        (
            f"{by_name}&server_name_indication=mars",
            "its certificate is not trusted: Hostname mismatch",
        ),
        (f"{uri}&cacertfile={other}", f"cacertfile '{other}' holds no certificate"),
        (f"{uri}&keyfile={other}", "are no certificate with its key"),
        (uri.replace(str(broker.tls_port), str(broker.port)), "WRONG_VERSION_NUMBER"),
    ):
        with pytest.raises(TlsRefusedError, match=text) as caught:
            kind(NodeAddress(wrong), "test", *(() if kind is AdminClient else (0,)))
        assert not is_transient(caught.value)
        assert "\n" not in str(caught.value)
    # The name does not count where nothing is verified.
    AdminClient(NodeAddress(f"{by_name}&server_name_indication=mars&verify=verify_none")).close()


def test_a_refused_certificate(broker: TlsBroker) -> None:
    """The node drops a client without a certificate when it demands one."""
    with pytest.raises(NodeUnreachableError):
        AdminClient(NodeAddress(broker.tls_uri))
