"""The rule that a new password must satisfy (`credential_validator` of rabbitmq.conf)."""

from typing import Final

from warrenmq.vocabulary.patterns.pattern import Pattern, compiled

ACCEPT_EVERYTHING: Final = "rabbit_credential_validator_accept_everything"
MIN_LENGTH: Final = "rabbit_credential_validator_min_password_length"
REGEXP: Final = "rabbit_credential_validator_password_regexp"


class CredentialRules:
    """One rule, by RabbitMQ's name of it; `min_length` and `regexp` are the rules' arguments.

    A `regexp` that is invalid or not supported raises PatternError.
    """

    def __init__(
        self, validator: str = ACCEPT_EVERYTHING, min_length: int = 8, regexp: str = ""
    ) -> None:
        self._validator: str = validator
        self._min_length: int = min_length
        self._regexp: Pattern = compiled(regexp)

    def refusal(self, password: bytes) -> str:
        """Why `password` is refused, in RabbitMQ's words; "" = it is accepted."""
        if self._validator == MIN_LENGTH and len(password) < self._min_length:
            return f"minimum required password length is {self._min_length}"
        if self._validator == REGEXP and not self._regexp.is_found_in(password):
            return "provided password does not match the validator regular expression"
        return ""
