"""The programs and commands of docs/queues.md run in their order."""

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers.process import BrokerProcess
from warrenmq.cli.control import main

pytestmark = pytest.mark.interop

PAGE = (Path(__file__).parent.parent.parent / "docs" / "queues.md").read_text("utf-8")
# A block of Python, or a command.
STEPS = re.findall(
    r"^```python\n(.*?)^```$|^    warrenctl ([^\n]*)$", PAGE, re.MULTILINE | re.DOTALL
)
PRINTED = """\
the queue is full
not a number from work rejected 1
['password reset', 'newsletter', 'digest']
queue_name\tconsumer_tag\tactive\tactivity_status
ledger\tfirst\ttrue\tsingle_active
ledger\tsecond\tfalse\twaiting
returned 0 times before
returned 1 times before
returned 2 times before
poison delivery_limit
reminder -100
"""


@pytest.fixture
def uri(tmp_path: Path) -> Iterator[str]:
    """The URI of a broker that `warrenctl` finds, too."""
    process = BrokerProcess(tmp_path / "node")
    process.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARREN_DATA_DIR", str(process.directory / "data"))
        yield f"amqp://guest:guest@127.0.0.1:{process.port}/%2F"
    process.stop()


def test_the_page_runs_in_order(uri: str) -> None:
    names: dict[str, Any] = {"uri": uri}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for program, command in STEPS:
            if program:
                exec(compile(program, "docs/queues.md", "exec"), names)
            else:
                assert main(["-q", *shlex.split(command)]) == 0
    names["channel"].connection.close()
    assert printed.getvalue() == PRINTED
