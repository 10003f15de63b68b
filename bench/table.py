"""Markdown tables of results: medians, ranges and ratios."""

from statistics import median

from bench.measure import Result

# Units in which less is better: their ratio is inverted, so that above 1 the first broker is
# better.
LOWER_IS_BETTER = ("ms", "s", "MiB")
# Units whose figures get a ratio.
COMPARED = ("msg/s", *LOWER_IS_BETTER)
NO_FIGURE = "-"


def markdown_table(
    rows: list[str], results: list[Result], brokers: list[str], failures: dict[tuple[str, str], str]
) -> str:
    """Return a table with one line a row name, and ratios of the first broker to each other one.

    `failures` maps (row, broker) to the text shown instead of a figure.
    """
    head = ["workload"]
    for broker in brokers:
        head += [broker, "CPU µs/msg", "RSS MiB"]
    for broker in brokers[1:]:
        to = f" to {broker}" if len(brokers) > 2 else ""
        head += [f"ratio{to}", f"CPU ratio{to}"]
    lines = [line(head), line(["---"] + ["---:"] * (len(head) - 1))]
    for row in rows:
        cells = [row]
        values: list[float | None] = []
        cpus: list[float | None] = []
        unit = ""
        for broker in brokers:
            chosen = [
                result for result in results if result.workload == row and result.broker == broker
            ]
            values.append(median([result.value for result in chosen]) if chosen else None)
            cpus.append(median_of([result.cpu_us_per_message for result in chosen]))
            unit = chosen[0].unit if chosen else unit
            cells.append(
                figure([result.value for result in chosen], unit)
                if chosen
                else failures.get((row, broker), NO_FIGURE)
            )
            cells.append(plain(cpus[-1], 2))
            cells.append(plain(median_of([result.rss_mib for result in chosen]), 0))
        for value, cpu in zip(values[1:], cpus[1:], strict=True):
            cells.append(ratio(values[0], value, unit in LOWER_IS_BETTER))
            cells.append(ratio(cpus[0], cpu, True))
        lines.append(line(cells))
    return "\n".join(lines)


def line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def median_of(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def figure(values: list[float], unit: str) -> str:
    """Format the median, and the range of several rounds; a wide range means a busy machine."""
    digits = 0 if unit == "msg/s" else 2
    text = f"{median(values):,.{digits}f} {unit}"
    if len(values) > 1:
        text += f" ({min(values):,.{digits}f}-{max(values):,.{digits}f})"
    return text


def plain(value: float | None, digits: int) -> str:
    return NO_FIGURE if value is None else f"{value:,.{digits}f}"


def ratio(ours: float | None, theirs: float | None, lower_is_better: bool) -> str:
    """Format how many times better the first broker is."""
    if not ours or not theirs:
        return NO_FIGURE
    return f"{theirs / ours if lower_is_better else ours / theirs:.2f}"


def figure_table(figures: dict[str, list[tuple[str, float, str]]]) -> str:
    """Return a table of figures (name, value, unit) by broker, one line a name, in given order."""
    brokers = list(figures)
    values = {
        broker: {name: (value, unit) for name, value, unit in taken}
        for broker, taken in figures.items()
    }
    names = dict.fromkeys(name for taken in figures.values() for name, _, _ in taken)
    head = ["figure", *brokers] + (["ratio"] if len(brokers) == 2 else [])
    lines = [line(head), line(["---"] + ["---:"] * (len(head) - 1))]
    for name in names:
        found = [values[broker].get(name) for broker in brokers]
        cells = [name] + [NO_FIGURE if each is None else measured(*each) for each in found]
        if len(brokers) == 2:
            ours, theirs = found
            is_comparable = ours is not None and theirs is not None and ours[1] in COMPARED
            cells.append(
                ratio(ours[0], theirs[0], ours[1] in LOWER_IS_BETTER)
                if is_comparable and ours is not None and theirs is not None
                else NO_FIGURE
            )
        lines.append(line(cells))
    return "\n".join(lines)


def measured(value: float, unit: str) -> str:
    """Format a value with its unit: rates and counts without decimals, others with two."""
    digits = 0 if unit in ("msg/s", "") else 2
    return f"{value:,.{digits}f} {unit}".rstrip()
