"""The metrics of a node in the formats of Prometheus.

`reading.py` asks the node, `metrics.py` has the words of a metric, `scrape.py` chooses metrics for
a page, `pages.py` serves it. The other modules describe the metrics of one subject each.
"""
