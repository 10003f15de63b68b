"""How a command ends: RabbitMQ's exit codes, and the failures that carry them."""

from typing import Final

from warrenmq.vocabulary import error_codes

OK: Final = 0
USAGE: Final = 64
DATA: Final = 65
NO_USER: Final = 67
UNAVAILABLE: Final = 69
SOFTWARE: Final = 70
TEMPORARY: Final = 75

# The exit code for each code of a refused request; others end with UNAVAILABLE.
BY_REFUSAL: Final = {
    error_codes.NO_SUCH_USER: NO_USER,
    error_codes.EXISTS: SOFTWARE,
    error_codes.STORAGE_FAILED: TEMPORARY,
    error_codes.INTERNAL: SOFTWARE,
}


class CommandError(Exception):
    """The command failed: `text` goes to standard error as it is, `code` is the exit code."""

    def __init__(self, text: str, code: int = UNAVAILABLE) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


class UsageError(Exception):
    """The command line is not valid; arguments and usage of the command are shown below `text`."""

    def __init__(
        self, text: str, code: int = USAGE, title: str = "Error (argument validation)"
    ) -> None:
        super().__init__(text)
        self.text = f"{title}: {text}"
        self.code = code


def bad_argument(text: str = "") -> UsageError:
    """An argument whose value is wrong."""
    return UsageError(f"Bad argument: {text}" if text else "Bad argument.", DATA)
