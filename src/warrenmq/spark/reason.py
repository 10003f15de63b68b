"""The one line of an error that says what has happened, out of the pages that Spark makes of it.

Spark hands an error of a data source on as text: the Python worker's traceback, with text of the
query, the plan and the JVM around it.
"""

import re
from typing import Final

# An error of warren inside the traceback of a Python worker.
_OURS: Final = re.compile(r"\bwarrenmq\.[\w.]+(?:Error|Exception): (.+)")
# Texts before an error that only name the call, or the query, that has failed.
_CALL: Final = re.compile(r"An error occurred while calling \S+\.\n: (?:[\w.$]+: )?")
_QUERY: Final = re.compile(r"\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ")


def reason_of(error: BaseException) -> str:
    """The reason in one line: of warren when the error comes from there, else Spark's first line.

    `error` is what a failed query or action of Spark raises, or what `StreamingQuery.exception()`
    returns. Errors that are not Spark's give their first line.
    """
    return one_line(str(error))


def one_line(text: str) -> str:
    """The line in the text of an error that `reason_of` gives."""
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1]).strip()
    text = _QUERY.sub("", _CALL.sub("", text))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "Spark failed without an error message"
