"""The error of documents that are no topology; a module of its own, since it needs no PyYAML."""


class DocumentError(ValueError):
    """A document is no topology; the text says where and why.

    `line` and `column` count from 1, and are 0 when the error has no place.
    """

    def __init__(self, source: str, line: int, column: int, path: str, why: str) -> None:
        at = [source] if source else []
        if line:
            at.append(f"line {line}, column {column}")
        if path:
            at.append(path)
        super().__init__(f"{', '.join(at)}: {why}" if at else why)
        self.line = line
        self.column = column
