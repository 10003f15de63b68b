"""A started server has loaded no module that only other commands, jobs or rare requests need.

Imports take most of a start, and a test suite with warren starts many nodes. The test compares
`sys.modules` of a ready node, which is the same on every machine, unlike a measured time.
"""

import json
import subprocess
import sys
from pathlib import Path

# Packages that take tens of milliseconds to load, then modules of warren and of Python that load
# others in turn.
NOT_NEEDED = {
    "click", "fastapi", "jinja2", "numpy", "pandas", "psutil", "py4j", "pyarrow", "pydantic", "pyspark", "re2", "rich",
    "typer", "urllib3",
    "warrenmq.cli.app", "warrenmq.cluster.node", "warrenmq.offline.check", "warrenmq.perf", "warrenmq.pipeline", "warrenmq.spark", "warrenmq.tables",
    "warrenmq.server.config.effective", "warrenmq.server.configuration_report", "warrenmq.server.config.waiting_keys", "warrenmq.server.log.file",
    "warrenmq.testing",
    "difflib", "logging.handlers", "encodings.idna", "http.client", "multiprocessing", "unittest", "xml",
}  # fmt: skip

# Prints the loaded modules when the node prints its ready line, and stops the node.
PROGRAM = """
import json, os, signal, sys

class ReadyLine:
    def write(self, text):
        if text.startswith("warren is ready"):
            sys.__stdout__.write(json.dumps(sorted(sys.modules)))
            os.kill(os.getpid(), signal.SIGTERM)

    def flush(self):
        pass

sys.stdout = ReadyLine()
from warrenmq.cli import main
main()
"""


def test_a_started_server_has_loaded_only_what_it_needs(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            PROGRAM,
            "server",
            "--data-dir",
            str(tmp_path),
            "--listen",
            "127.0.0.1:0",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = set(json.loads(done.stdout))
    assert "warrenmq.server.node" in loaded
    assert loaded & NOT_NEEDED == set()
