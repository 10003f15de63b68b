"""Benchmarks: warren against RabbitMQ on one machine, and the load generator against a null server.

`python -m bench` runs the workloads of `workloads.py` with `warren perf` as the load generator;
docs/benchmarking.md explains the method. Start reading at `__main__.py`.
"""
