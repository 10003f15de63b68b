"""Brings the directory of a stopped RabbitMQ node over. Start with `import_job.py`."""
