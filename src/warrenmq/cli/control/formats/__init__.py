"""The formats of results: tables, JSON, and Erlang terms as rabbitmqctl prints them.

Imports nothing else of this package. Start with `output.py`.
"""
