"""Jobs of `warren pipeline` that users start over HTTP, or that schedules start."""
