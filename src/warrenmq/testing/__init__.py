"""Brokers as fixtures of pytest, for the tests of users.

`pytest_plugin.py` has the fixtures, on top of `broker.py`, a real node in a process of its own.
Nothing in this package runs in a broker.
"""
