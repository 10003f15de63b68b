"""The Celery application of `test_celery.py` and its worker; both read the same environment."""

import os
import time

from celery import Celery, Task

app = Celery("interop", broker=os.environ["INTEROP_BROKER"], backend=os.environ["INTEROP_BACKEND"])
app.conf.update(
    task_default_queue=os.environ["INTEROP_QUEUE"],
    worker_prefetch_multiplier=2,
    result_expires=60,
    broker_connection_retry_on_startup=True,
    task_track_started=True,
)


@app.task
def add(left: int, right: int) -> int:
    return left + right


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task
def fail(text: str) -> None:
    raise ValueError(text)


@app.task(bind=True, max_retries=5)
def third_time(self: Task) -> int:
    if self.request.retries < 2:
        raise self.retry(countdown=0.2)
    return int(self.request.retries)


@app.task(acks_late=True, reject_on_worker_lost=True)
def slow(seconds: float) -> str:
    time.sleep(seconds)
    return "done"


@app.task(ignore_result=True)
def nothing() -> None:
    return None
