"""`warrenctl`: rabbitmqctl's commands, arguments, formats and exit codes, for a warren node.

`main.py` runs a command line; `programs.py` has all commands, one family of them a module;
`parsing.py`, `formats/output.py` and `formats/values.py` are rabbitmqctl's manners without a node,
and `link.py` finds the node. Nothing here imports a broker or Typer: a script starts the command
for every call.
"""

from warrenmq.cli.control.main import main, script

__all__ = ["main", "script"]
