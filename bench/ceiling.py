"""Highest load of the generator against a server without work (`sink`): its cost per message."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

from bench.sink import start_sink

SECONDS = 3.0
# Size of a basic.ack, and how many of them are written (`written_acks`).
ACK_BYTES = 21
ACKS = 500_000
RUNS = [
    ("publish", ["--consumers", "0"]),
    ("consume, auto-ack", ["--producers", "0", "--autoack"]),
    ("consume, one ack for 100", ["--producers", "0", "--multi-ack-every", "100"]),
    ("consume, every message acked", ["--producers", "0"]),
    ("consume, each ack written by itself", ["--producers", "0", "--write-each-ack"]),
]


def measure_ceiling() -> None:
    """Print a Markdown table of rates and CPU costs for messages of 100, 1024 and 8192 B."""
    print(
        "| load generator, one process | size | msg/s | ns CPU/msg |\n| --- | ---: | ---: | ---: |"
    )
    for size in (100, 1024, 8192):
        pid, port = start_sink(size)
        try:
            for name, arguments in RUNS:
                command = [
                    sys.executable,
                    "-m",
                    "warrenmq.cli.perf",
                    "--json",
                    "--uri",
                    f"amqp://127.0.0.1:{port}",
                ]
                command += ["--size", str(size), "--time", str(SECONDS), *arguments]
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=60, check=True
                )
                summary = json.loads(done.stdout)
                rate = max(summary["publish_rate"], summary["receive_rate"])
                cost = summary["generator_cpu_ns_per_message"]
                print(f"| {name} | {size} B | {rate:,.0f} | {cost:.0f} |", flush=True)
        finally:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
    print(f"\nA program that only writes acks, each by itself: {written_acks():,.0f} acks/s")


def written_acks() -> float:
    """How many acks a second a program writes to a TCP socket if it does nothing else.

    Another process reads them all. No client that writes each ack by itself gets more messages a
    second from any broker on this machine.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        reader = os.fork()
        if reader == 0:
            with listener.accept()[0] as accepted:
                while accepted.recv(65536):
                    pass
            os._exit(0)
        with socket.create_connection(listener.getsockname()) as writer:
            writer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            descriptor, ack = writer.fileno(), bytes(ACK_BYTES)
            begun = time.monotonic()
            for _ in range(ACKS):
                os.write(descriptor, ack)
            lasted = time.monotonic() - begun
        os.waitpid(reader, 0)
    return ACKS / lasted
