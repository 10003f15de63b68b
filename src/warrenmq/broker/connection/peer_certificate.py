"""A client's certificate: the user's name in it, and the fields that listings show."""

from typing import Final


class PeerCertificate:
    """The verified certificate of a client; names and times are spelled as RabbitMQ spells them.

    `user_name`: the user that the mechanism EXTERNAL logs in; b"" = the certificate names none.
    `validity`: the first and the last time, "2026-01-01T00:00:00Z - 2027-01-01T00:00:00Z".
    """

    def __init__(self, user_name: bytes, subject: str, issuer: str, validity: str) -> None:
        self.user_name: bytes = user_name
        self.subject: str = subject
        self.issuer: str = issuer
        self.validity: str = validity


# Stands for the certificate of a client without one.
NO_CERTIFICATE: Final = PeerCertificate(b"", "", "", "")
