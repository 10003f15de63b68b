"""Rates and history of what nodes count, for the `X_details` fields of the HTTP API.

A feed tells `Statistics` which figures of which objects have changed, tick by tick; requests read.

`retention.py`   for how long samples are kept, and at which intervals
`samples.py`     the differences of figures over time, in a memory that is bounded
`figures.py`     one object, and the figures that it has
`node.py`        all objects of one node, and the sums over its vhosts
`history.py`     what a request asks for: rates, samples and averages
`stores.py`      what stores have done over time, and the forms of messages
`statistics.py`  the sink of the feed, and all nodes
`file.py`        the history on disk
"""
