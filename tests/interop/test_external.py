"""pika logs in by a client certificate: the mechanism EXTERNAL."""

from collections.abc import Iterator

import pika
import pika.exceptions
import pytest

from tests.support.brokers.tls_process import TlsBroker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    """A broker that takes certificates or passwords; the user guest exists."""
    broker = TlsBroker(
        tmp_path_factory.mktemp("external"),
        "auth_mechanisms.1=EXTERNAL",
        "auth_mechanisms.2=PLAIN",
        "ssl_cert_login_from=common_name",
    )
    broker.start()
    yield broker
    broker.stop()


def parameters(broker: TlsBroker, name: str = "") -> pika.ConnectionParameters:
    """Those of a client with a certificate of `name`; "" = it has none."""
    identity = broker.authority.issue(name) if name else None
    return pika.ConnectionParameters(
        "localhost",
        broker.tls_port,
        credentials=pika.credentials.ExternalCredentials(),
        ssl_options=pika.SSLOptions(broker.client_context(identity), "localhost"),
    )


def test_a_certificate_names_its_user(broker: TlsBroker) -> None:
    with pika.BlockingConnection(parameters(broker, "guest")) as connection:
        channel = connection.channel()
        channel.queue_declare("external", exclusive=True)
        properties = pika.BasicProperties(user_id="guest")
        channel.basic_publish("", "external", b"signed", properties)
        assert channel.basic_get("external", auto_ack=True)[2] == b"signed"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nobody", "user 'nobody' - invalid credentials"),
        ("", "connection peer presented no TLS (x.509) certificate"),
    ],
)
def test_a_certificate_of_nobody_is_refused(broker: TlsBroker, name: str, reason: str) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError, match="EXTERNAL"):
        pika.BlockingConnection(parameters(broker, name))
    assert broker.has_logged(f"EXTERNAL login refused: {reason}")


def test_external_is_not_offered_without_tls(broker: TlsBroker) -> None:
    plain = pika.ConnectionParameters(
        "localhost", broker.port, credentials=pika.credentials.ExternalCredentials()
    )
    with pytest.raises(pika.exceptions.AuthenticationError, match="EXTERNAL"):
        pika.BlockingConnection(plain)
