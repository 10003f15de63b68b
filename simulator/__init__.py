"""The simulator: a whole node on a simulated disk and clock, crashed and damaged by seed.

A seed gives a history: operations of clients, moments at which disk jobs run, calls that fail,
moments at which the power fails. The oracle knows which messages a broker may lose and which it
must keep. The same seed always gives the same history, so a failure can be replayed as often as
needed; it is shrunk first. Start with `simulation.py`.

`workload/` runs real clients on real nodes and records their history; `checker/` judges it by what
was promised. `failing_node.py` is a node that dies, waits or fails at named points.

Tests import this package from the root of the repository. It may import every package of warren,
and none imports it.
"""
