"""Clusters of simulated nodes: real brokers and links, a model of etcd, and a network in memory.

`simulation.py` runs the steps of a history (`histories.py`), `world.py` has the nodes (`member.py`)
and the time, and `recording/recording.py` has the checker judge what clients have seen. May import
every other part of the simulator but `simulate.py` and `shrink.py`.
"""
