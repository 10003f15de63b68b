"""Instructions that the engine executes for one message: the fixed trace, and the kept counts.

A count hardly depends on the machine's load, so a change that costs 3 % shows at once. Start with
`trace.py`, which has the parts; `command.py` is the command line.
"""
