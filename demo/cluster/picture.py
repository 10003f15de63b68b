"""The confirms of a run as a picture of characters, and the gaps as a table.

A row is a publisher, a cell a tenth of a second, its height the number of confirms; a dot is a
tenth of a second without any. A long run goes on in the next block of rows.
"""

from statistics import median

from rich.table import Table
from rich.text import Text

from demo.cluster.confirms import Confirms, Fault

CELL_US = 100_000
_LEVELS = "▁▂▃▄▅▆▇█"
_NONE = "·"
_START = "▼"
_END = "▲"
# Cells between two moments on the axis.
_TICK_CELLS = 20


def draw(confirms: Confirms, faults: list[Fault], names: dict[str, str], width: int) -> list[Text]:
    """The picture, at most `width` characters wide; `names`: those of the rows, by publisher."""
    cells = (confirms.end_us - confirms.start_us) // CELL_US
    counts = {name: _counts(moments, confirms, cells) for name, moments in confirms.of.items()}
    busy = [count for row in counts.values() for count in row if count]
    # A cell of the usual rate has half the height; what waited comes in a burst.
    top = 2 * median(busy) if busy else 1
    label_width = max(map(len, names.values())) + 2
    block = max(_TICK_CELLS, (width - label_width) // _TICK_CELLS * _TICK_CELLS)
    marks = sorted(
        [(_cell(fault.start_us, confirms), f"{_START} {fault.what}") for fault in faults]
        + [(_cell(fault.end_us, confirms), f"{_END} {fault.over}") for fault in faults]
    )
    lines = []
    for first in range(0, cells, block):
        until = min(first + block, cells)
        here = [(cell - first, text) for cell, text in marks if first <= cell < first + block]
        for text in _mark_rows(here, width - label_width):
            lines.append(Text(" " * label_width + text, style="bold yellow"))
        for publisher, name in names.items():
            row = counts.get(publisher, [0] * cells)[first:until]
            lines.append(Text(name.rjust(label_width - 1) + " ") + _row(row, top))
        lines.append(Text(" " * label_width + _axis(first, until), style="dim"))
    return lines


def gap_table(confirms: Confirms, faults: list[Fault], names: dict[str, str]) -> Table:
    """The longest time without a confirm from the start of each fault to that of the next one."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("longest time without a confirm")
    table.add_column("the queue", justify="right")
    for name in names.values():
        table.add_column(name, justify="right")
    for number, fault in enumerate(faults):
        later = faults[number + 1 :]
        until = later[0].start_us if later else confirms.end_us
        everybody = confirms.gap_us(fault.start_us, until, confirms.of)
        each = [confirms.gap_us(fault.start_us, until, [name]) for name in names]
        role = "the master" if fault.was_master else "a mirror"
        table.add_row(
            f"{fault.what}, {role}", *(f"{gap / 1e6:.2f} s" for gap in (everybody, *each))
        )
    return table


def _cell(moment_us: int, confirms: Confirms) -> int:
    return (moment_us - confirms.start_us) // CELL_US


def _counts(moments: list[int], confirms: Confirms, cells: int) -> list[int]:
    counts = [0] * cells
    for moment in moments:
        cell = _cell(moment, confirms)
        if 0 <= cell < cells:
            counts[cell] += 1
    return counts


def _row(counts: list[int], top: float) -> Text:
    row = Text()
    for count in counts:
        if count:
            level = min(len(_LEVELS) - 1, int(count / top * len(_LEVELS)))
            row.append(_LEVELS[level], style="green")
        else:
            row.append(_NONE, style="red")
    return row


def _mark_rows(marks: list[tuple[int, str]], width: int) -> list[str]:
    """The marks at their cells, in as few rows as they need."""
    rows: list[str] = []
    for cell, text in marks:
        # A mark near the right edge has its text on the left of its arrow.
        start = cell
        if cell + len(text) > width:
            text = f"{text[2:]} {text[0]}"
            start = max(0, cell + 1 - len(text))
        for number, row in enumerate(rows):
            if len(row) < start:
                rows[number] = row.ljust(start) + text
                break
        else:
            rows.append(" " * start + text)
    return rows


def _axis(first: int, until: int) -> str:
    axis = ""
    for cell in range(first, until, _TICK_CELLS):
        axis = axis.ljust(cell - first) + f"{cell * CELL_US / 1e6:.0f} s"
    return axis
