"""Dead letters: the properties that a message gets when its queue gives it to another exchange.

`death_headers.py` writes the headers that tell why, where and how often a message died, and finds
the queues in which a dead letter would circle. `raw_table.py` changes single fields of a headers
table and leaves the bytes of all others as they came.
"""
