"""The data source "warren" for brokers of other kinds, by AMQP alone. Start with `source.py`.

What is read goes through a spool of files (`spool.py`), as such a broker has no reader groups; what is written waits for confirms.
"""
