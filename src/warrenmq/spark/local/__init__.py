"""Spark on one machine: the packages and the Java that it needs, a session, its Python workers.

Imports nothing else of the connector. Start with `session.py`.
"""
