"""Code that mypyc accepts silently and runs differently from Python is found in the source."""

import ast
from collections import defaultdict
from pathlib import Path

from warrenmq.build import compiled_module_paths

PACKAGE = Path(__file__).parent.parent.parent / "src" / "warrenmq"


def test_an_except_target_has_one_type() -> None:
    """The target of all `except` clauses of a function has one type.

    Compiled, a name has one type in a function: a second `except OtherError as error` raises
    TypeError.
    """
    bad = []
    for path in compiled_module_paths(PACKAGE):
        for function in ast.walk(ast.parse(Path(path).read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            types: defaultdict[str, set[str]] = defaultdict(set)
            for node in ast.walk(function):
                if isinstance(node, ast.ExceptHandler) and node.name and node.type:
                    types[node.name].add(ast.unparse(node.type))
            for name, found in types.items():
                if len(found) > 1:
                    where = Path(path).relative_to(PACKAGE)
                    bad.append(f"{where}:{function.name}: {name} is {' and '.join(sorted(found))}")
    assert bad == []
