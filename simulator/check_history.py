"""`python -m simulator.check_history FILE...`: judge a recorded history, again if needed.

Several files are one history: that of the clients, and that of whoever caused the faults. The exit
status is 0 if the broker kept its promises, 1 if not, and 2 if a file is no history.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from simulator.checker.history import HistoryError, read_history
from simulator.checker.story import story
from simulator.checker.verdict import WINDOW_MS, judge

console = Console(highlight=False, soft_wrap=True)


def main(
    files: Annotated[list[Path], typer.Argument(help="The files of one history.")],
    window_ms: Annotated[
        int, typer.Option(help="How long around the start of a fault acks may be undone.")
    ] = WINDOW_MS,
    message: Annotated[str, typer.Option(help="Tell what happened to this message instead.")] = "",
) -> None:
    """Judge the history of a workload."""
    try:
        events = read_history(files)
        if message:
            for line in story(events, message):
                console.print(line, markup=False)
            return
        verdict = judge(events, window_ms)
    except (HistoryError, OSError) as error:
        console.print(str(error), markup=False)
        raise typer.Exit(2) from None
    console.print(verdict.text(), markup=False)
    raise typer.Exit(0 if verdict.is_clean else 1)


if __name__ == "__main__":
    typer.run(main)
