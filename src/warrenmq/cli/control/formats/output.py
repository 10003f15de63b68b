"""Results of commands, and how each format shows them."""

from collections.abc import Callable
from typing import Any, Final, Literal

from msgspec import Struct

from warrenmq.cli.control.formats.values import cell_text, json_text

# Switches between VT100's characters and its line drawing.
_LINES: Final = "\x1b(0"
_TEXT: Final = "\x1b(B"
# Characters of VT100's line drawing, and what stands for them where no terminal reads them.
_PLAIN_LINES: Final = str.maketrans("lwktnumvjqx", "+++++++++-|")


class Table(Struct, frozen=True):
    """Rows of a listing.

    `is_stream`: RabbitMQ prints such rows one by one, so that nothing stands for no rows.
    `has_header`: whether a table has a header row at all. `data`: what JSON shows instead of rows.
    `has_maps`: rows are maps in Erlang. `failures`: why rows are missing. They go to standard
    error, and the command fails after it has printed the others.
    """

    columns: tuple[str, ...]
    rows: list[list[Any]]
    is_stream: bool = False
    has_header: bool = True
    data: Any = None
    has_maps: bool = False
    failures: list[str] = []


class Text(Struct, frozen=True):
    """A message, or a report of several lines.

    `data` is what JSON shows, `{"message": text}` if there is none. `report`: data that Erlang
    shows instead of the text. `hidden_by`: the option that suppresses the text.
    """

    text: str
    data: Any = None
    hidden_by: Literal["", "quiet", "silent"] = ""
    report: Any = None


Output = Table | Text | None


class Style(Struct, frozen=True):
    """How an output is shown."""

    has_headers: bool = True
    is_quiet: bool = False
    is_silent: bool = False
    # Whether a terminal shows the output, rather than a file or a program.
    is_terminal: bool = False
    node: Callable[[], str] = str


def table(output: Output, style: Style) -> str:
    """Lines of values with a tab between them, under a line with the names of columns."""
    if not isinstance(output, Table):
        return _message(output, style)
    if not output.rows:
        return "" if output.is_stream else "\n"
    lines = [output.columns] if style.has_headers and output.has_header else []
    cells = [[cell_text(value) for value in row] for row in output.rows]
    return "".join(["\t".join(line) + "\n" for line in [*lines, *cells]])


def csv(output: Output, style: Style) -> str:
    """Lines of quoted values with a comma between them; the names of columns are the first."""
    if isinstance(output, Text):
        output = Table(("message",), [[output.text]])
    if output is None or not output.rows:
        return ""
    cells = [[cell_text(value) for value in row] for row in output.rows]
    lines = [[_csv_cell(cell) for cell in line] for line in [list(output.columns), *cells]]
    return "".join([",".join(line) + "\n" for line in lines])


def json(output: Output, style: Style) -> str:
    """One object a row, each on its line, in an array; or one object for a message."""
    if isinstance(output, Text):
        data = {"message": output.text} if output.data is None else output.data
        return json_text(data) + "\n"
    if output is None:
        return json_text({"node": style.node(), "result": "ok"}) + "\n"
    if output.data is not None:
        return json_text(output.data) + "\n"
    if not output.rows and not output.is_stream:
        return "[]\n"
    objects = [
        json_text(
            {
                name: "" if value is None else value
                for name, value in zip(output.columns, row, strict=True)
            }
        )
        for row in output.rows
    ]
    return "[\n" + "\n,".join(objects) + ("\n]\n" if objects else "]\n")


def pretty_table(output: Output, style: Style) -> str:
    """A table with lines: those of a VT100 terminal, or plain characters where none reads them."""
    if not isinstance(output, Table):
        return _message(output, style)
    if not output.rows:
        return ""
    cells = [
        list(output.columns),
        *[[_pretty_cell(value) for value in row] for row in output.rows],
    ]
    widths = [max([len(line[index]) for line in cells]) for index in range(len(output.columns))]
    bar = _drawn("x", style)
    rows = [
        "".join([f"{bar} {cell:{width}} " for cell, width in zip(line, widths, strict=True)])
        + f"{bar}\n"
        for line in cells
    ]
    top, between, bottom = [
        _drawn(_rule(widths, corners), style) + "\n"
        for corners in (("l", "w", "k"), ("t", "n", "u"), ("m", "v", "j"))
    ]
    return top + between.join(rows) + bottom


def erlang(output: Output, style: Style) -> str:
    """Erlang terms: a list of rows, or the text of a message."""
    # Imported only here: the other formats do not wait for it.
    from warrenmq.cli.control.formats.erlang import data_term, row_map, row_term
    from warrenmq.cli.control.formats.erlang_terms import term_lines

    if isinstance(output, Table):
        if output.has_maps and not output.rows:
            return "#{}\n"
        make = row_map if output.has_maps else row_term
        return term_lines([make(output.columns, row) for row in output.rows]) + "\n"
    if output is not None and output.report is not None:
        return term_lines(data_term(output.report)) + "\n"
    text = _message(output, style)
    return term_lines(text.removesuffix("\n")) + "\n" if text else ""


FORMATS: Final[dict[str, Callable[[Output, Style], str]]] = {
    "table": table,
    "csv": csv,
    "json": json,
    "pretty_table": pretty_table,
    "erlang": erlang,
}
# The formats that are for programs: nothing but the result is printed.
WITHOUT_BANNER: Final = ("json", "csv")


def _message(output: Text | None, style: Style) -> str:
    if output is None or not output.text:
        return ""
    is_hidden = (output.hidden_by == "quiet" and (style.is_quiet or style.is_silent)) or (
        output.hidden_by == "silent" and style.is_silent
    )
    return "" if is_hidden else output.text + "\n"


def _csv_cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _pretty_cell(value: Any) -> str:
    """A list of names without brackets, everything else as in a plain table."""
    if isinstance(value, list):
        return ", ".join([cell_text(each) for each in value])
    return "" if value == {} else cell_text(value)


def _rule(widths: list[int], corners: tuple[str, str, str]) -> str:
    left, between, right = corners
    return left + between.join(["q" * (width + 2) for width in widths]) + right


def _drawn(lines: str, style: Style) -> str:
    """Characters of line drawing for what shows the output."""
    return f"{_LINES}{lines}{_TEXT}" if style.is_terminal else lines.translate(_PLAIN_LINES)
