"""When certificates expire: dates are read, not verified."""

import json
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.brokers.tls_process import TlsBroker
from tests.support.certificates import Authority
from warrenmq.admin.client.certificates import expirations, expiring, in_words
from warrenmq.admin.protocol.watching import ListenerCertificates
from warrenmq.cli.control import main


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    """A node whose certificate nobody here trusts, and that wants one of each client."""
    directory = tmp_path_factory.mktemp("tls")
    process = TlsBroker(directory / "node", "ssl_options.fail_if_no_peer_cert=true")
    other = Authority(directory / "other")
    process.settings = tuple(
        f"ssl_options.cacertfile={other.certfile}" if "cacertfile" in each else each
        for each in process.settings
    )
    process.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARREN_DATA_DIR", str(process.directory / "data"))
        yield process
    process.stop()


def test_dates_are_those_that_openssl_shows(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    chain = authority.issue("server").certfile.read_text() + authority.certfile.read_text()
    ends = []
    for file in (tmp_path / "server.pem", authority.certfile):
        shown = subprocess.run(
            ["openssl", "x509", "-in", str(file), "-noout", "-enddate"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        text = shown.strip().removeprefix("notAfter=")
        ends.append(datetime.strptime(text, "%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC))
    assert expirations(chain) == ends
    assert expirations("") == []
    # From 2050 on a certificate writes years with four digits.
    far = tmp_path / "far.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "20000", "-subj", "/CN=far", "-keyout", str(tmp_path / "far.key"),
         "-out", str(far)],
        capture_output=True,
        check=True,
    )  # fmt: skip
    (found,) = expirations(far.read_text())
    assert found.year > 2070


def test_a_date_in_words() -> None:
    now = datetime.now(UTC)
    ends = now + timedelta(days=3, minutes=1)
    assert in_words(ends) == f"{ends:%Y-%m-%d %H:%M:%S} UTC, in 3 days"
    assert in_words(now - timedelta(days=2)).endswith("UTC, 2 days ago")


def test_a_listener_of_every_address_has_brackets(tmp_path: Path) -> None:
    pem = Authority(tmp_path).certfile.read_text()
    for interface in ("::", ""):
        (line,) = expiring([ListenerCertificates("amqp/ssl", interface, 5671, pem, "")], 40)
        assert line.startswith("[::]:5671: certificate expires 20")


def test_a_private_authority_is_no_alarm(
    node: TlsBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-q", "check_certificate_expiration", "--within", "1"]) == 0
    assert capsys.readouterr().out == "No certificates are expiring within 1 week.\n"
    within = ["--within", "2", "--unit", "months"]
    assert main(["-q", "check_certificate_expiration", *within]) == 69
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["Error:", "Certificates that expire within 2 months:"]
    where = f"127.0.0.1:{node.tls_port}"
    assert [line.split(" expires ")[0] for line in lines[2:]] == [
        f"{where}: certificate",
        f"{where}: trusted certificate",
    ]
    assert main(["certificates", "--formatter", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d [\d:]{8} UTC, in (29|30) days", row["expires"])
