"""Reader groups, sinks, jobs and schedules: how Spark and other programs read and write queues."""
