"""The suites that `make peers` knows: what each needs, and the command that runs it unchanged.

A checkout is used as it is: its package is importable from its own directory, and only the tools of
its tests are installed, by pip or npm. The network namespace of a run has what a suite expects of
its surroundings: ports, certificates, a Docker daemon.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.certificates import Authority

# Ports of the broker in the namespace of a run; the suites have them in their sources.
AMQP_PORT: Final = 5672
AMQPS_PORT: Final = 5671
DOCKER_PORT: Final = 2375
# One test that hangs must not end the run.
TEST_TIMEOUT_S: Final = 180

# Lines of rabbitmq.conf for the TLS listener of a run; the arguments are the checkout and a
# directory for certificates.
TlsSettings = Callable[[Path, Path], list[str]]


def own_certificates(_checkout: Path, directory: Path) -> list[str]:
    """A certificate that no client trusts; clients need none."""
    authority = Authority(directory)
    identity = authority.issue("server")
    return _tls_lines(authority.certfile, identity.certfile, identity.keyfile)


def pika_certificates(checkout: Path, _directory: Path) -> list[str]:
    """The certificates of pika's tests."""
    files = checkout / "tests/certs"
    return _tls_lines(
        files / "ca_certificate.pem",
        files / "server_certificate.pem",
        files / "server_key.pem",
        is_mutual=True,
    )


def dockerfile_certificates(checkout: Path, directory: Path) -> list[str]:
    """The certificates that the Dockerfile of py-amqp's broker writes."""
    directory.mkdir(parents=True, exist_ok=True)
    text = (checkout / "Dockerfile").read_text().replace("\\n\\\n", "\n")
    for content, name in re.findall(r"echo '([^']+)' > /etc/rabbitmq/ca/(\S+)", text):
        (directory / name).write_text(content + "\n")
    return _tls_lines(
        directory / "ca_certificate.pem",
        directory / "server_certificate.pem",
        directory / "server_key.pem",
        is_mutual=True,
    )


def _tls_lines(ca: Path, certificate: Path, key: Path, is_mutual: bool = False) -> list[str]:
    return [
        f"listeners.ssl.standard = 127.0.0.1:{AMQPS_PORT}",
        f"ssl_options.cacertfile = {ca}",
        f"ssl_options.certfile = {certificate}",
        f"ssl_options.keyfile = {key}",
        f"ssl_options.verify = {'verify_peer' if is_mutual else 'verify_none'}",
        f"ssl_options.fail_if_no_peer_cert = {'true' if is_mutual else 'false'}",
    ]


@dataclass(frozen=True)
class Suite:
    """The tests of one client; `command` runs in the checkout and ends with where to write."""

    name: str
    # Directory of the checkout below the directory of all checkouts.
    checkout: str
    # What uv (for `is_python`) or npm installs.
    requirements: tuple[str, ...]
    # {environment} stands for the directory of the installation, {results} for the file of results
    # (JUnit's XML).
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    tls: TlsSettings | None = None
    is_python: bool = True
    # The suite starts its broker with Docker.
    has_docker: bool = False


def _pytest(*arguments: str) -> tuple[str, ...]:
    return (
        "{environment}/bin/python", "-m", "pytest", "-q", "--timeout", str(TEST_TIMEOUT_S), "-p", "no:cacheprovider",
        "--junitxml", "{results}", *arguments,
    )  # fmt: skip


_PIKA_REQUIREMENTS: Final = (
    "pytest>=7", "pytest-timeout", "gevent", "tornado", "twisted", "pyopenssl", "service-identity",
)  # fmt: skip

SUITES: Final = (
    Suite(
        "pika", "pika", _PIKA_REQUIREMENTS, _pytest("tests/acceptance"),
    ),
    Suite(
        "pika-tls", "pika", _PIKA_REQUIREMENTS, _pytest("--use-tls", "tests/acceptance"),
        tls=pika_certificates,
    ),
    Suite(
        "aio-pika", "aio-pika",
        (
            # Brings its requirements, and the metadata that the package reads when it is imported.
            "aio-pika",
            "aiomisc>=18", "aiomisc-pytest", "pytest", "pytest-rst", "pytest-timeout",
            "setuptools", "shortuuid", "timeout-decorator",
        ),
        _pytest("tests"),
        environment={"DOCKER_HOST": f"tcp://127.0.0.1:{DOCKER_PORT}"},
        tls=own_certificates, has_docker=True,
    ),
    Suite(
        "kombu", "kombu",
        ("-r", "requirements/default.txt", "-r", "requirements/test.txt", "pytest-timeout"),
        _pytest("-E", "py-amqp", "t/integration/test_py_amqp.py"),
    ),
    Suite(
        "py-amqp", "py-amqp",
        ("-r", "requirements/default.txt", "-r", "requirements/test.txt", "pytest-timeout"),
        _pytest("-E", "rabbitmq", "t/integration"),
        tls=dockerfile_certificates,
    ),
    Suite(
        "amqplib", "amqplib", ("claire@0.4.1",),
        (
            # The suite's own limit of one second is for each file as a whole in older node.
            "node", "--test", f"--test-timeout={TEST_TIMEOUT_S * 1000}",
            "--test-reporter=junit", "--test-reporter-destination={results}",
        ),
        environment={"NODE_PATH": "{environment}/node_modules"}, is_python=False,
    ),
)  # fmt: skip
