"""Load generator: publishers and consumers over raw AMQP 0-9-1 frames, as fast as one core allows.

The package is compiled together with the broker's hot path, because an interpreted generator would
be slower than the broker that it measures. It imports `warrenmq.wire` only, and speaks to any AMQP
0-9-1 broker. Start reading at `run.py` (one run, from set-up to report), then `loop.py` (the
sockets of one process), `publisher.py` and `consumer.py`; the command line is `warrenmq.cli.perf`.
"""
