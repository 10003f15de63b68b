"""LavinMQ under test, for those who have its program: it is not looked for."""

import os
import subprocess
from pathlib import Path

from bench.brokers import Broker, BrokerError, cores_text
from bench.certificate import Certificate
from bench.ports import held_port


class LavinmqBroker(Broker):
    """LavinMQ, run by the executable `program`. It confirms without a sync of the disk."""

    name = "LavinMQ"

    def __init__(
        self,
        program: Path,
        directory: Path,
        cores: set[int],
        certificate: Certificate | None = None,
    ) -> None:
        super().__init__(directory, cores)
        self.program = program.absolute()
        self._arguments = [
            *("--data-dir", str(self._data_directory()), "--bind", "127.0.0.1"),
            *("--amqp-port", str(self.port), "--http-port", str(held_port(self))),
        ]
        if certificate is not None:
            tls_port = held_port(self)
            self._arguments += ["--amqps-port", str(tls_port)]
            self._arguments += ["--cert", str(certificate.certfile)]
            self._arguments += ["--key", str(certificate.keyfile)]
            self.tls_uri = (
                f"amqps://guest:guest@127.0.0.1:{tls_port}/%2F?cacertfile={certificate.certfile}"
            )

    def version(self) -> str:
        done = subprocess.run(
            [self.program, "--version"], capture_output=True, text=True, check=False, timeout=60
        )
        lines = (done.stdout or done.stderr).split()
        number = next((word for word in lines if word[0].isdigit()), "of an unknown version")
        return f"LavinMQ {number}, {cores_text(self.cores)}"

    def start(self) -> None:
        self._data_directory().mkdir(exist_ok=True)
        with self._log_path().open("ab") as log:
            command = [str(self.program), *self._arguments]
            try:
                self._spawn(command, dict(os.environ), self.directory, log)
            except OSError as error:
                raise BrokerError(f"{self.program} does not start: {error.strerror}") from None
        self._await_amqp()

    def _data_directory(self) -> Path:
        return self.directory / "data"
