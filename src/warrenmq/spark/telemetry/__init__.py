"""What a broker knows of itself, as tables: the data sources "warren_events" and "warren_metrics".

- `events.py` is "warren_events": a stream of events, through the reader group of a queue.
- `metrics.py` is "warren_metrics": the samples of figures that nodes keep, as a stream or a table.
"""
