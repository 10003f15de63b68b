"""How the cost of an operation grows with what a node has: the scenario `growth`.

`axis.py` says what a thing that grows is; `command.py` lists them all.
"""
