"""`python -m bench --lavinmq PROGRAM` measures that program as a third broker.

The program here takes LavinMQ's options and is warren: LavinMQ cannot be installed everywhere.
"""

import subprocess
import sys
from pathlib import Path

STAND_IN = """#!{python}
import os, sys
if sys.argv[1:] == ["--version"]:
    print("LavinMQ 9.8.7 (stand-in)")
    sys.exit()
options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
assert options.keys() >= {{"--data-dir", "--http-port"}}, options
listen = options["--bind"] + ":" + options["--amqp-port"]
os.execv({python!r}, [
    {python!r}, "-m", "warrenmq", "server",
    "--data-dir", options["--data-dir"], "--listen", listen, "--management", "off",
    "--set", "listeners.ssl.1=127.0.0.1:" + options["--amqps-port"],
    "--set", "ssl_options.certfile=" + options["--cert"],
    "--set", "ssl_options.keyfile=" + options["--key"],
])
"""


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "bench", "--rounds", "1", "--seconds", "0.2", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_lavinmq_stands_beside_warren(tmp_path: Path) -> None:
    program = tmp_path / "lavinmq"
    program.write_text(STAND_IN.format(python=sys.executable))
    program.chmod(0o755)
    done = bench(
        *("--broker", "warren", "--only", "transient", "--only", "tls"),
        *("--lavinmq", str(program), "--output", str(tmp_path / "results")),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nLavinMQ 9.8.7, " in done.stdout
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert "| LavinMQ |" in rows[0]
    assert len(rows) == 4
    for row in rows[2:]:
        assert row.count("msg/s") == 2


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = bench("--broker", "warren", "--lavinmq", str(tmp_path / "none"))
    assert done.returncode == 1
    assert done.stderr == f"bench: {tmp_path}/none does not start: No such file or directory\n"
