"""Small faults at one place of a source file, found by walking over its syntax tree."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
# These functions are for people and for tests; the program's behaviour does not depend on them.
_SKIPPED_FUNCTIONS = {"check", "__repr__"}
_INTEGERS = {"int", "i64"}


@dataclass(frozen=True)
class Fault:
    """`new` in place of `old`, which begins at `line` (from 1) and at byte `start` of the file."""

    path: str
    line: int
    start: int
    old: str
    new: str
    kind: str

    def applied_to(self, text: str) -> str:
        """The source with the fault in it."""
        data = text.encode()
        old = self.old.encode()
        assert data[self.start : self.start + len(old)] == old, (
            f"{self.path}:{self.line} is another source"
        )
        return (data[: self.start] + self.new.encode() + data[self.start + len(old) :]).decode()


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.found: list[Fault] = []
        # The byte at which each line begins.
        self._lines = [0]
        for line in text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line.encode()))
        self._returns: list[str] = []
        self._functions: list[str] = []

    def _add(self, node: ast.expr | ast.stmt, new: str, kind: str) -> None:
        old = ast.get_source_segment(self.text, node)
        if old is not None and old != new:
            start = self._lines[node.lineno - 1] + node.col_offset
            self.found.append(Fault(self.path, node.lineno, start, old, new, kind))

    def _add_changed(self, node: ast.expr, changed: ast.expr, kind: str) -> None:
        # Brackets keep a line break inside the expression, and the expression apart from its
        # neighbours.
        self._add(node, f"({ast.unparse(changed)})", kind)

    # -- what is left out --------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in _SKIPPED_FUNCTIONS:
            return
        self._functions.append(node.name)
        self._returns.append(ast.unparse(node.returns) if node.returns is not None else "")
        for statement in node.body:
            self.visit(statement)
        self._returns.pop()
        self._functions.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_Raise(self, node: ast.Raise) -> None:
        pass

    # -- faults ------------------------------------------------------------------------------------

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            changed = copy.copy(node)
            changed.ops = [_COMPARISONS[type(node.ops[0])]()]
            self._add_changed(node, changed, "comparison")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        changed = copy.copy(node)
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._add_changed(node, changed, "and/or")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Add | ast.Sub) and not _has_text(node):
            changed = copy.copy(node)
            changed.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            self._add_changed(node, changed, "sum")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self._add(node.test, f"(not ({ast.unparse(node.test)}))", "condition")
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, str(not node.value), "constant")
        elif isinstance(node.value, int):
            self._add(node, str(node.value + 1), "constant")

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and not ast.unparse(node.value.func).startswith(
            "_log."
        ):
            self._add(node, "pass", "statement")
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if isinstance(node.targets[0], ast.Attribute) and "__init__" not in self._functions:
            self._add(node, "pass", "statement")
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add(node, "pass", "statement")
        self.visit(node.value)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            return
        if self._returns[-1] == "bool":
            self._add(node.value, f"(not ({ast.unparse(node.value)}))", "return")
        elif self._returns[-1] in _INTEGERS:
            self._add(node.value, f"(({ast.unparse(node.value)}) + 1)", "return")
        self.visit(node.value)


def _has_text(node: ast.AST) -> bool:
    return any(
        isinstance(one, ast.Constant) and isinstance(one.value, str | bytes)
        for one in ast.walk(node)
    )


def faults(path: str, text: str) -> Iterator[Fault]:
    """Every fault that the source `text` of the file `path` can have, in the order of the file."""
    finder = _Finder(path, text)
    finder.visit(ast.parse(text))
    # The same text at the same place is the same fault, even if two rules found it.
    yield from sorted(set(finder.found), key=lambda fault: (fault.start, len(fault.old), fault.new))
