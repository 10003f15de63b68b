"""The options of one subject each, as the node uses them: cluster, log, listeners, TLS.

May import: the error of a configuration. Start with `log.py`.
"""
