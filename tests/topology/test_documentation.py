"""The blocks of docs/topology.md run one after the other and print what the page says."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from tests.support.brokers.node_thread import NodeThread
from warrenmq.topology import DocumentError, Topology

pytestmark = pytest.mark.interop

PAGE = (Path(__file__).parent.parent.parent / "docs" / "topology.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PROGRAMS = [text for language, text in BLOCKS if language == "python"]
(DOCUMENT,) = [text for language, text in BLOCKS if language == "yaml"]
PLAN, ERROR = [text for language, text in BLOCKS if not language]


def test_the_blocks_run_in_order(tmp_path: Path) -> None:
    node = NodeThread(tmp_path)
    try:
        names = {"uri": node.uri}
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            for program in PROGRAMS:
                exec(compile(program, "docs/topology.md", "exec"), names)
        assert printed.getvalue() == PLAN
        assert Topology.from_yaml(DOCUMENT) == names["topology"]
    finally:
        node.stop()


def test_the_error_is_what_a_wrong_value_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("shop.yaml")
    file.write_text(DOCUMENT.replace("60000", "soon"))
    with pytest.raises(DocumentError) as caught:
        Topology.from_yaml(file)
    assert f"{caught.value}\n" == ERROR


def test_every_field_is_on_the_page() -> None:
    from dataclasses import fields

    from warrenmq.topology import Exchange, Queue

    for each in (*fields(Exchange), *fields(Queue)):
        if "argument" in each.metadata:
            assert f"`{each.name}" in PAGE
            assert f"`{each.metadata['argument']}" in PAGE
