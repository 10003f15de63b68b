"""What the runner keeps of what a job says."""

import json

from warrenmq.management.jobs.runner import LOG_BYTES_MAX, JobLog


def step(name: str, done: int) -> str:
    return json.dumps({"name": name, "done": done, "total": 9, "unit": "files", "note": ""})


def test_progress_is_the_last_step_and_the_log_has_each_step_once() -> None:
    log = JobLog()
    for line in (
        step("reading", 1), step("reading", 2), '{"notice": "waiting"}', '{"a": 1}', "{",
        step("writing", 3), "warren: no",
    ):  # fmt: skip
        log.take(line)
    assert (log.progress["name"], log.progress["done"]) == ("writing", 3)
    lines = [line.partition(" ")[2] for line in log.encoded().decode().splitlines()]
    assert lines == ["reading", "waiting", '{"a": 1}', "{", "writing", "warren: no"]
    assert log.last_line == "warren: no"


def test_the_end_of_a_long_log_is_kept() -> None:
    log = JobLog()
    for number in range(3000):
        log.take(f"{number} " + "ä" * (number % 5000))
    kept = log.encoded()
    assert LOG_BYTES_MAX - 5000 < len(kept) <= LOG_BYTES_MAX
    assert kept.splitlines()[-1].split()[1] == b"2999"
