"""Settings of a JVM for tests: less memory. `is_light` of a session gives the quick JVM."""

FAST_SETTINGS = {"spark.driver.memory": "1g"}
