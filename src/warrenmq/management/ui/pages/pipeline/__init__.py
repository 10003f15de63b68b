"""Reader groups and sinks, by which Spark and other programs read and write queues."""
