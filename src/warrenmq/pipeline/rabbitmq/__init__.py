"""Imports the data directory of a stopped RabbitMQ node. Start with `import_job.py`."""
