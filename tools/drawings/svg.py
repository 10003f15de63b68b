"""An SVG picture with the colours of the reader's system, light or dark, on a card of its own."""

from html import escape
from typing import Final

# CSS classes: text `ink`, `dim` and `bold`; fills and lines in the colour of a thing.
STYLE: Final = """
svg{--card:#fff;--ink:#24292f;--dim:#57606a;--grid:#d8dee4;--warren:#2a6fc9;--other:#c4650b;
--good:#1a7f37;--bad:#cf222e;--soft:#eaf2fd}
@media (prefers-color-scheme:dark){svg{--card:#0d1117;--ink:#e6edf3;--dim:#9da7b1;--grid:#3a424b;
--warren:#58a6ff;--other:#f0a04b;--good:#56d364;--bad:#ff7b72;--soft:#14263d}}
text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:var(--ink)}
.dim{fill:var(--dim)}.bold{font-weight:600}.small{font-size:12px}.mark{font-size:15px}
.warren{fill:var(--warren)}.other{fill:var(--other)}.good{fill:var(--good)}.bad{fill:var(--bad)}
.ink{fill:var(--ink)}.card,.box{fill:var(--card)}.soft{fill:var(--soft)}.on{fill:var(--card)}
.frame{fill:none;stroke:var(--grid)}.node-warren{fill:var(--warren)}
polyline{fill:none}[class*=l-]{stroke-width:2}
.grid{stroke:var(--grid);stroke-width:1}.l-dim{stroke:var(--dim);stroke-width:1.4}
.l-ink{stroke:var(--ink);stroke-width:1.6}.l-warren{stroke:var(--warren)}
.l-other{stroke:var(--other)}
.l-good{stroke:var(--good)}.l-bad{stroke:var(--bad)}.dash{stroke-dasharray:5 4}
""".replace("\n", "")
MARGIN: Final = 16


class Picture:
    """Collects shapes; sizes and places are pixels from the top left corner, inside the margin."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def text(self, x: float, y: float, words: str, anchor: str = "start", look: str = "") -> None:
        """Words on a line at y; `anchor` is start, middle or end, `look` a list of classes."""
        self._add("text", f"x='{x:g}' y='{y:g}'", look, words, anchor)

    def bar(
        self, x: float, y: float, width: float, height: float, look: str, radius: float
    ) -> None:
        """A rectangle with round corners."""
        place = f"x='{x:g}' y='{y:g}' width='{width:.1f}' height='{height:g}' rx='{radius:g}'"
        self._add("rect", place, look)

    def dot(self, x: float, y: float, radius: float, look: str) -> None:
        """A circle around a point."""
        self._add("circle", f"cx='{x:.1f}' cy='{y:.1f}' r='{radius:g}'", look)

    def line(self, points: list[tuple[float, float]], look: str) -> None:
        """A line through points."""
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._add("polyline", f"points='{corners}'", look)

    def path(self, commands: str, look: str) -> None:
        """A path in the commands of SVG."""
        self._add("path", f"d='{commands}'", look)

    def open(self, x: float, y: float) -> None:
        """Count places from here until `close`."""
        self._parts.append(f"<g transform='translate({x:g} {y:g})'>")

    def close(self) -> None:
        """End what `open` began."""
        self._parts.append("</g>")

    def drawing(self, width: float, height: float) -> str:
        """The file, for shapes in a field of this size."""
        outer = f"{width + 2 * MARGIN:g}", f"{height + 2 * MARGIN:g}"
        head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {outer[0]} {outer[1]}'>"
        card = f"<rect class='card' width='{outer[0]}' height='{outer[1]}' rx='8'/>"
        inner = f"<g transform='translate({MARGIN} {MARGIN})'>"
        return "\n".join(
            [head, f"<style>{STYLE}</style>", card, inner, *self._parts, "</g></svg>\n"]
        )

    def _add(self, tag: str, place: str, look: str, words: str = "", anchor: str = "start") -> None:
        aligned = "" if anchor == "start" else f" text-anchor='{anchor}'"
        classes = f" class='{look}'" if look else ""
        end = f">{escape(words)}</{tag}>" if words else "/>"
        self._parts.append(f"<{tag} {place}{aligned}{classes}{end}")
