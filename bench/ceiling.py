"""Highest load of the generator against a server without work (`sink`): its cost per message."""

import json
import os
import signal
import subprocess
import sys

from bench.sink import start_sink

SECONDS = 3.0
RUNS = [
    ("publish", ["--consumers", "0"]),
    ("consume, auto-ack", ["--producers", "0", "--autoack"]),
    ("consume, one ack for 100", ["--producers", "0", "--multi-ack-every", "100"]),
    ("consume, every message acked", ["--producers", "0"]),
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
