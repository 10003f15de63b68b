"""What users get for their tests: brokers as fixtures of pytest.

`pytest_plugin.py` has the fixtures, on top of `broker.py`, a real node in a process of its own.
Nothing in this package runs in a broker.
"""
