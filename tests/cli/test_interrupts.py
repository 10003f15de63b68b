"""SIGINT ends every command, also one that starts with the signal ignored.

Shells start background jobs with SIGINT ignored.
"""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.brokers.process import BrokerProcess
from tests.support.command_line import IGNORING_INTERRUPTS


def test_an_interrupt_stops_a_server_cleanly(tmp_path: Path) -> None:
    node = BrokerProcess(tmp_path)
    node.wrapper = IGNORING_INTERRUPTS
    node.start()
    assert node.process is not None
    node.process.send_signal(signal.SIGINT)
    assert node.process.wait(60) == 0


@pytest.mark.parametrize(
    ("command", "status"),
    [(["status"], 130), (["pipeline", "archive", "TARGET", "--queue", "q"], 2)],
)
def test_an_interrupt_ends_a_command_that_waits(
    tmp_path: Path, command: list[str], status: int
) -> None:
    """SIGINT ends a command that waits for a silent node, which has accepted its connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        port = str(listener.getsockname()[1])
        process = subprocess.Popen(
            [*IGNORING_INTERRUPTS, sys.executable, "-m", "warrenmq", *command, "--port", port],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            accepted, _ = listener.accept()
            with accepted:
                accepted.recv(1)
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == status, errors
    assert "Traceback" not in errors
