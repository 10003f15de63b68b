"""The notebook of examples/ runs from its first cell to its last, and is kept without outputs."""

import json
from pathlib import Path
from shutil import copy

import pytest

from tests.support.brokers.fixtures import broker_uri
from tests.support.documented_commands import run_commands

__all__ = ["broker_uri"]

NOTEBOOK = Path(__file__).parent.parent.parent / "examples" / "queues.ipynb"
# A kernel and a JVM start, on a machine that may be busy.
TIMEOUT_S = 500


def outputs(path: Path) -> dict[str, str]:
    """What each cell of code printed, by the cell's id."""
    cells = json.loads(path.read_text())["cells"]
    return {
        cell["id"]: "".join("".join(output.get("text", "")) for output in cell["outputs"])
        for cell in cells
        if cell["cell_type"] == "code"
    }


def test_it_is_kept_without_outputs() -> None:
    """Outputs would change with each run, and hide what a change of the notebook changes."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["id"] for cell in code if cell["outputs"] or cell["execution_count"]] == []


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 60)
def test_it_runs(broker_uri: str, tmp_path: Path) -> None:
    """The command of docs/spark/index.md runs all cells; they show what was published."""
    copy(NOTEBOOK, tmp_path)
    (command,) = [
        line.strip()
        for line in (NOTEBOOK.parent.parent / "docs/spark/index.md").read_text().splitlines()
        if line.startswith("    jupyter execute")
    ]
    command = command.replace("examples/", "")
    run_commands(command, tmp_path, TIMEOUT_S, WARREN_URI=broker_uri)
    shown = outputs(tmp_path / "executed.ipynb")
    assert "|orders.Bonn|     334|" in shown["table"]
    assert "0 messages behind" in shown["stream"]
    assert "|Bonn|   334|" in shown["count"]
    assert '|totals.Bonn|{"city":"Bonn","orders":334,' in shown["publish"]
