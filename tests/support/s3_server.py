"""A server with the interface of S3 on this machine, for tests: moto's, in a process of its own.

It cannot be a thread of the tests: the Delta library waits for an answer without letting threads
run.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

BUCKET = "lake"
# Prints its port, and ends with its standard input.
_PROGRAM = """
import logging, sys
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""


@contextlib.contextmanager
def s3_server(patch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URI of an empty bucket; the variables of AWS's tools point to the server meanwhile."""
    pytest.importorskip("moto")
    from pyarrow import fs

    from warrenmq.pipeline import places

    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        port = int(server.stdout.readline())
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            # The Delta library asks for this before it uses HTTP.
            "AWS_ALLOW_HTTP": "true",
        }.items():
            patch.setenv(name, value)
        system = fs.S3FileSystem(
            endpoint_override=f"127.0.0.1:{port}", scheme="http", allow_bucket_creation=True
        )
        system.create_dir(BUCKET)
        places.pyarrow_system.cache_clear()
        try:
            yield f"s3://{BUCKET}"
        finally:
            places.pyarrow_system.cache_clear()
            server.stdin.close()
