"""TLS of a node's listeners: contexts made from `TlsOptions`, and what is wrong with them.

Python's `ssl` offers no choice of TLS 1.3 cipher suites and no limit on the length of a chain:

* A list of ciphers without any TLS 1.3 suite turns TLS 1.3 off, and a list of nothing else turns
  the older versions off. Among the suites of TLS 1.3, OpenSSL chooses.
* `PeerChains` measures the chain after the handshake.
"""

import asyncio
import logging
import re
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from warrenmq.server.config.options.tls import TlsOptions
from warrenmq.server.config.settings import Config
from warrenmq.server.file_stamps import WATCH_INTERVAL_S, Stamps, stamps

_VERSIONS: Final = {
    "tlsv1": ssl.TLSVersion.TLSv1,
    "tlsv1.1": ssl.TLSVersion.TLSv1_1,
    "tlsv1.2": ssl.TLSVersion.TLSv1_2,
    "tlsv1.3": ssl.TLSVersion.TLSv1_3,
}
_OLD_VERSIONS: Final = ("tlsv1", "tlsv1.1")
_DEFAULT_VERSIONS: Final = ("tlsv1.2", "tlsv1.3")
# Options that leave a version out between the lowest and the highest one.
_LEFT_OUT: Final = {"tlsv1.1": ssl.OP_NO_TLSv1_1, "tlsv1.2": ssl.OP_NO_TLSv1_2}
# The names of all TLS 1.3 suites begin so, and no others do.
_TLS_1_3_PREFIX: Final = "TLS_"
# OpenSSL refuses the signatures of TLS 1.0 and 1.1 from its security level 1 on.
_OLD_SECURITY: Final = ":@SECLEVEL=0"

# A certificate in a file of PEM, which may hold keys and comments as well.
_CERTIFICATE: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL
)

# What the keys of the listeners of AMQP begin with.
_PREFIX: Final = "ssl_options"

logger = logging.getLogger("warren.listener")


class TlsError(Exception):
    """TLS options that cannot be honoured; the text names the key, the file and the reason."""


def check_tls(options: TlsOptions, prefix: str = _PREFIX) -> str:
    """The reason why no listener can work with `options`; "" when all is well.

    `prefix` is what the names of their keys begin with.
    """
    try:
        server_context(options, prefix)
    except TlsError as error:
        return str(error)
    return ""


def check_config(config: Config) -> str:
    """The first fault in the TLS of all listeners of `config`; "" when all is well."""
    checks = [("ssl_options", config.tls)] if config.ssl_listeners else []
    for prefix, listening in (
        ("management.ssl", config.management.api_listeners()),
        ("prometheus.ssl", config.prometheus.metrics_listeners()),
    ):
        checks += [(prefix, each.tls) for each in listening if each.tls is not None]
    return next(filter(None, [check_tls(options, prefix) for prefix, options in checks]), "")


def server_context(options: TlsOptions, prefix: str = _PREFIX) -> ssl.SSLContext:
    """A context for the server's side of connections. Reads the files; raises TlsError.

    `prefix` is what the names of the keys of `options` begin with.
    """
    try:
        return _server_context(options)
    except TlsError as error:
        raise TlsError(f"{prefix}.{error}") from None


def _server_context(options: TlsOptions) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A client must not make the node repeat its part of a handshake again and again.
    context.options |= ssl.OP_NO_RENEGOTIATION
    if not options.honor_cipher_order:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    _set_versions(context, options)
    _load_identity(context, options)
    if options.cacertfile is not None:
        _load_authorities(context, "cacertfile", options.cacertfile)
    elif options.verify == "verify_peer":
        raise TlsError("verify: verify_peer needs cacertfile")
    if options.verify == "verify_peer":
        context.verify_mode = (
            ssl.CERT_REQUIRED if options.fail_if_no_peer_cert else ssl.CERT_OPTIONAL
        )
    return context


def certificate_texts(options: TlsOptions) -> tuple[str, str]:
    """The certificates in `certfile` and in `cacertfile` as PEM, without keys and comments.

    A file that cannot be read has none.
    """
    return _certificates(options.certfile), _certificates(options.cacertfile)


def _certificates(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    return "".join([f"{block}\n" for block in _CERTIFICATE.findall(text)])


def file_stamps(options: TlsOptions) -> Stamps:
    """Stamps that change when a file is written or replaced; None for a file that is gone."""
    return stamps([path for _, path in _files(options)])


def _files(options: TlsOptions) -> Iterator[tuple[str, Path]]:
    for key in ("cacertfile", "certfile", "keyfile"):
        path: Path | None = getattr(options, key)
        if path is not None:
            yield key, path


def _set_versions(context: ssl.SSLContext, options: TlsOptions) -> None:
    names = set(options.versions or _DEFAULT_VERSIONS)
    for name in sorted(names - _VERSIONS.keys()):
        raise TlsError(f"versions: {name!r} is none of {', '.join(_VERSIONS)}")
    older_ciphers = [name for name in options.ciphers if not name.startswith(_TLS_1_3_PREFIX)]
    for name in options.ciphers:
        _check_cipher(name)
    if options.ciphers:
        if len(older_ciphers) == len(options.ciphers):
            names -= {"tlsv1.3"}
        elif not older_ciphers:
            names &= {"tlsv1.3"}
        if not names:
            raise TlsError("ciphers: no cipher fits the versions")
    chosen = [name for name in _VERSIONS if name in names]
    # OpenSSL's own configuration may forbid old versions; the node's configuration decides.
    context.minimum_version = _VERSIONS[chosen[0]]
    context.maximum_version = _VERSIONS[chosen[-1]]
    between = list(_VERSIONS)[list(_VERSIONS).index(chosen[0]) : list(_VERSIONS).index(chosen[-1])]
    for name, option in _LEFT_OUT.items():
        if name in between and name not in names:
            context.options |= option
    security = _OLD_SECURITY if names.intersection(_OLD_VERSIONS) else ""
    if older_ciphers or security:
        context.set_ciphers((":".join(older_ciphers) or "DEFAULT") + security)


def _check_cipher(name: str) -> None:
    scratch = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if name.startswith(_TLS_1_3_PREFIX):
        is_known = any(name == cipher["name"] for cipher in scratch.get_ciphers())
    else:
        try:
            scratch.set_ciphers(name)
            is_known = True
        except ssl.SSLError:
            is_known = False
    if not is_known:
        raise TlsError(f"ciphers: OpenSSL has no cipher suite {name!r}")


def _load_identity(context: ssl.SSLContext, options: TlsOptions) -> None:
    """Load the node's certificate and key."""
    for key in ("certfile", "keyfile"):
        if getattr(options, key) is None:
            raise TlsError(f"{key} is not set, and a TLS listener needs it")
    certfile, keyfile = options.certfile, options.keyfile
    assert certfile is not None and keyfile is not None
    # Loading the certificate alone first tells its faults from those of the key.
    _load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), "certfile", certfile)
    _read("keyfile", keyfile)
    try:
        # Without the callable OpenSSL would ask for the password on the terminal.
        context.load_cert_chain(certfile, keyfile, lambda: options.password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsError(
                f"keyfile: {keyfile} is not the key of the certificate {certfile}"
            ) from None
        if _is_encrypted(keyfile):
            raise TlsError(
                f"keyfile: {keyfile} is encrypted, and the password does not open it"
            ) from None
        raise TlsError(f"keyfile: {keyfile} holds no usable private key") from None
    except (OSError, ValueError) as error:
        raise TlsError(f"keyfile: {keyfile} cannot be used: {error}") from None


def _load_authorities(context: ssl.SSLContext, key: str, path: Path) -> None:
    _read(key, path)
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError):
        raise TlsError(f"{key}: {path} holds no certificate in PEM form") from None


def _read(key: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TlsError(f"{key}: {path} cannot be read: {error.strerror}") from None


def _is_encrypted(path: Path) -> bool:
    return b"ENCRYPTED" in _read("keyfile", path)


class PeerChains:
    """The limit on the chains of clients' certificates; one object for each context.

    A resumed session has no chain. It passes if its client's certificate has passed in a whole
    handshake with the same context: sessions of other contexts cannot be resumed.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._passed: set[bytes] = set()

    def is_too_long(self, connection: ssl.SSLObject) -> bool:
        """Whether to refuse the client after its handshake."""
        certificate = connection.getpeercert(binary_form=True)
        if certificate is None or certificate in self._passed:
            return False
        # `get_verified_chain` became public in Python 3.13.
        shell: Any = connection
        chain = shell._sslobj.get_verified_chain() or ()
        # The chain also counts the client's own certificate and the root.
        if not chain or len(chain) - 2 > self._depth:
            return True
        self._passed.add(certificate)
        return False


class ListenerTls:
    """The TLS in force on a node's listeners; takes new certificates while the node runs.

    New connections use the new files and options; old connections live on. Faulty files change
    nothing. Raises TlsError when the first options cannot be honoured. `prefix` is what the names
    of their keys begin with.
    """

    def __init__(self, options: TlsOptions, prefix: str = _PREFIX) -> None:
        self._prefix = prefix
        # Stamps of the files as they were last read, even if the files were faulty.
        self._stamps = file_stamps(options)
        self.context: ssl.SSLContext = server_context(options, prefix)
        self.chains = PeerChains(options.depth)
        # The node's own certificates and the trusted ones, as PEM.
        self.certificates = certificate_texts(options)

    def reload(self, options: TlsOptions) -> str:
        """Read the files again; returns why they cannot be used, or "".

        One line of the log has the outcome.
        """
        self._stamps = file_stamps(options)
        try:
            context = server_context(options, self._prefix)
        except TlsError as error:
            logger.error("the certificates in use stay, because the new ones are faulty: %s", error)
            return str(error)
        self.context = context
        self.chains = PeerChains(options.depth)
        self.certificates = certificate_texts(options)
        logger.info("certificates reloaded: %s", options.certfile)
        return ""

    async def watch(self, options: Callable[[], TlsOptions]) -> None:
        """Reload whenever a file has changed; runs until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            # A file system that hangs must not stop the loop.
            latest = await loop.run_in_executor(None, file_stamps, options())
            if latest != self._stamps:
                self.reload(options())
