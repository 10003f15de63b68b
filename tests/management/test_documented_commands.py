"""The commands of docs/http-api.md run in their order, with curl, and succeed."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.brokers.http_api import HttpNode

pytestmark = pytest.mark.interop

PAGE = (Path(__file__).parent.parent.parent / "docs" / "http-api.md").read_text("utf-8")
# A heading, or a block of commands.
BLOCK = r"^#+ ([^\n]*)$|^```sh\n(.*?)^```$"
# A refused request fails its block, and only replies are printed.
CURL = "fail-with-body\nsilent\nshow-error\n"


def run(node: HttpNode, directory: Path) -> dict[str, str]:
    """What the blocks print, by the heading above them."""
    (directory / ".curlrc").write_text(CURL)
    page = PAGE.replace("http://127.0.0.1:15672/", node.url)
    page = page.replace("port-listener/5672", f"port-listener/{node.node.port}")
    printed: dict[str, str] = {}
    script, heading = "", ""
    for title, block in re.findall(BLOCK, page, re.MULTILINE | re.DOTALL):
        heading = title or heading
        if block:
            # A block may use variables of those before it.
            script += "".join(re.findall(r"^\w+=.*\n", block, re.MULTILINE))
            ended = subprocess.run(
                ["sh", "-e", "-c", script + block],
                cwd=directory,
                env=os.environ | {"HOME": str(directory)},
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert ended.returncode == 0, (block, ended.stdout, ended.stderr)
            printed[heading] = printed.get(heading, "") + ended.stdout
    return printed


def test_the_commands_of_the_page(http_node: HttpNode, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    printed = run(http_node, tmp_path)
    assert json.loads(printed["Let a new user into a new vhost"]) == [
        {"name": "shop", "description": "Orders and stock"}
    ]
    routed, got = printed["Try a route"].split("}", 1)
    assert json.loads(routed + "}") == {"routed": True}
    assert json.loads(got)[0]["payload"] == "{}"
    assert json.loads((tmp_path / "definitions.json").read_text())["rabbit_version"] == "3.10.8"
    queues = json.loads(printed["Find queues that nobody consumes"])["items"]
    assert {"vhost": "shop", "name": "shop.orders", "consumers": 0, "messages": 1} in queues
    health = printed["Check the health of a node for a load balancer"]
    assert health.startswith("200\n") and health.count('"status":"ok"') == 2
    assert '"policy":"mirrors"' in printed["Mirror queues by a policy"]
    assert '"messages":1' in printed["Read counters"]
    assert '"name":"nightly"' in printed["Jobs and schedules"]
