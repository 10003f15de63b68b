"""Prints the ten longest files of src/ and simulator/, and the ten longest classes."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
SHOWN = 10


def main() -> None:
    files: list[tuple[int, str]] = []
    classes: list[tuple[int, str]] = []
    for folder in ("src", "simulator"):
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            text = path.read_text(encoding="utf-8")
            files.append((len(text.splitlines()), name))
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef):
                    lines = (node.end_lineno or node.lineno) - node.lineno + 1
                    methods = sum(isinstance(part, ast.FunctionDef) for part in node.body)
                    classes.append((lines, f"{name}: {node.name}, {methods} methods"))
    for title, found in (("files", files), ("classes", classes)):
        print(f"lines  longest {title}")
        for lines, name in sorted(found, reverse=True)[:SHOWN]:
            print(f"{lines:5}  {name}")


if __name__ == "__main__":
    main()
