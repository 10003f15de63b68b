"""Benchmarks: warren against RabbitMQ on one machine, and the load generator against nothing.

`python -m bench` runs the workloads of `workloads.py` with `warren perf` as the load generator; docs/benchmarks.md says
how it measures. Start reading at `__main__.py`.
"""
