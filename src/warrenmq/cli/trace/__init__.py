"""`warren trace`: prints messages as they are published and delivered. Start in `command.py`.

`firehose.py` gets the copies of a vhost's messages and switches tracing off again, `event.py` reads
a copy and shows it, `filters.py` chooses.
"""
