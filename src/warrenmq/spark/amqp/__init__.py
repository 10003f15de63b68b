"""The data source "warren" for brokers of other kinds, through AMQP alone; start with `source.py`.

Reading goes through a spool of files (`spool.py`), because such a broker has no reader groups.
Writing waits for publisher confirms.
"""
