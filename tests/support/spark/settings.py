"""Settings of a JVM for tests: less compilation, a faster start, less memory."""

FAST_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+ExitOnOutOfMemoryError -XX:TieredStopAtLevel=1",
}
