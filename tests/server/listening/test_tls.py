"""TLS options do what RabbitMQ's do, shown by handshakes in memory; faulty files are named."""

import ssl
from pathlib import Path

import pytest

from tests.support.certificates import Authority, Certificate, chain_file, encrypted_key
from warrenmq.server.config.options.tls import TlsOptions
from warrenmq.server.listening.tls import PeerChains, TlsError, check_tls, server_context

# Old versions are tested on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:ssl.:DeprecationWarning")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def options(authority: Authority) -> TlsOptions:
    server = authority.issue("server")
    return TlsOptions(authority.certfile, server.certfile, server.keyfile)


def client(authority: Authority, identity: Certificate | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.certfile)
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    if identity is not None:
        context.load_cert_chain(identity.certfile, identity.keyfile)
    return context


def shake(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both sides after the handshake. Raises ssl.SSLError when one of them refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
    )
    waiting = set(sides)
    while waiting:
        for side in sides:
            try:
                side.do_handshake()
                waiting.discard(side)
            except ssl.SSLWantReadError:
                pass
    return sides


def test_the_newest_version_without_a_clients_certificate(
    options: TlsOptions, authority: Authority
) -> None:
    server, _ = shake(server_context(options), client(authority))
    assert server.version() == "TLSv1.3"
    # By default a certificate is neither asked for nor read.
    server, _ = shake(server_context(options), client(authority, authority.issue("client")))
    assert server.getpeercert(binary_form=True) is None


@pytest.mark.parametrize(
    ("versions", "ciphers", "agreed"),
    [
        (("tlsv1.2",), (), "TLSv1.2"),
        (("tlsv1.3",), (), "TLSv1.3"),
        (("tlsv1.2", "tlsv1.3"), ("ECDHE-ECDSA-AES128-GCM-SHA256",), "TLSv1.2"),
        (("tlsv1.2", "tlsv1.3"), ("TLS_AES_256_GCM_SHA384",), "TLSv1.3"),
        (("tlsv1.1", "tlsv1"), (), "TLSv1.1"),
        (("tlsv1",), (), "TLSv1"),
        (("tlsv1", "tlsv1.3"), (), "TLSv1.3"),
    ],
)
def test_versions_and_ciphers(
    options: TlsOptions,
    authority: Authority,
    versions: tuple[str, ...],
    ciphers: tuple[str, ...],
    agreed: str,
) -> None:
    context = server_context(options._replace(versions=versions, ciphers=ciphers))
    server, _ = shake(context, client(authority))
    assert server.version() == agreed
    cipher = server.cipher()
    assert cipher is not None and (not ciphers or cipher[0] in ciphers)
    # Every version that is not named is refused.
    allowed = [agreed] if ciphers else [name.replace("tls", "TLS") for name in versions]
    for version in ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3:
        only = client(authority)
        only.minimum_version = only.maximum_version = version
        name = version.name.replace("_", ".")
        if name not in allowed:
            with pytest.raises(ssl.SSLError):
                shake(context, only)


@pytest.mark.parametrize("prefers_server", [True, False])
def test_whose_order_of_ciphers_decides(
    options: TlsOptions, authority: Authority, prefers_server: bool
) -> None:
    names = ("ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256")
    context = server_context(options._replace(ciphers=names, honor_cipher_order=prefers_server))
    other = client(authority)
    other.set_ciphers(":".join(reversed(names)))
    server, _ = shake(context, other)
    cipher = server.cipher()
    assert cipher is not None and cipher[0] == (names[0] if prefers_server else names[1])


def test_clients_certificates(options: TlsOptions, authority: Authority, tmp_path: Path) -> None:
    """verify_peer refuses strangers; with fail_if_no_peer_cert also whoever has no certificate."""
    asking = options._replace(verify="verify_peer")
    mine = client(authority, authority.issue("client"))
    stranger = client(authority, Authority(tmp_path, "other").issue("stranger"))
    server, _ = shake(server_context(asking), mine)
    assert server.getpeercert() != {}
    shake(server_context(asking), client(authority))
    for verifying in (asking, asking._replace(fail_if_no_peer_cert=True)):
        with pytest.raises(ssl.SSLError, match=r"(?i)unknown.ca|verify failed"):
            shake(server_context(verifying), stranger)
    with pytest.raises(ssl.SSLError, match=r"(?i)did not return a certificate|required"):
        shake(server_context(asking._replace(fail_if_no_peer_cert=True)), client(authority))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_depth_counts_the_certificates_between_client_and_root(
    options: TlsOptions, authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """A chain that was refused is refused as well when its session is resumed."""
    first = Authority(tmp_path, "first", authority)
    second = Authority(tmp_path, "second", first)
    context = server_context(options._replace(verify="verify_peer"))
    chains = PeerChains(1)
    for issuer, between in ((authority, []), (first, [first]), (second, [second, first])):
        leaf = issuer.issue("leaf")
        path = chain_file(tmp_path / "chain.pem", leaf, *between)
        from_chain = client(authority, Certificate(path, leaf.keyfile))
        from_chain.maximum_version = version
        for _ in range(2):
            server, mine = shake(context, from_chain)
            assert chains.is_too_long(server) == (len(between) > 1)
            resumed = mine.session
            if resumed is not None and version == ssl.TLSVersion.TLSv1_2:
                again = resume(context, from_chain, resumed)
                assert again.session_reused
                assert chains.is_too_long(again) == (len(between) > 1)
                assert PeerChains(1).is_too_long(again)


def resume(
    server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession
) -> ssl.SSLObject:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    mine = client.wrap_bio(to_client, to_server, server_hostname="localhost", session=session)
    node = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = {mine, node}
    while waiting:
        for side in (mine, node):
            try:
                side.do_handshake()
                waiting.discard(side)
            except ssl.SSLWantReadError:
                pass
    return node


def test_an_encrypted_key(options: TlsOptions, authority: Authority) -> None:
    server = authority.issue("server")
    locked = options._replace(
        certfile=server.certfile,
        keyfile=encrypted_key(server, "sesame"),
        password="sesame",
    )
    shake(server_context(locked), client(authority))
    assert (
        check_tls(locked._replace(password="open"))
        == check_tls(locked._replace(password=""))
        == (
            f"ssl_options.keyfile: {locked.keyfile} is encrypted, and the password does not open it"
        )
    )


def test_faulty_options_are_named(
    options: TlsOptions, authority: Authority, tmp_path: Path
) -> None:
    assert check_tls(options) == ""
    gone = tmp_path / "gone.pem"
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("nothing")
    other = authority.issue("other")
    for changed, text in (
        (options._replace(certfile=None), "ssl_options.certfile is not set, and a TLS listener needs it"),
        (options._replace(keyfile=None), "ssl_options.keyfile is not set, and a TLS listener needs it"),
        (options._replace(certfile=gone), f"ssl_options.certfile: {gone} cannot be read: No such file or directory"),
        (options._replace(keyfile=gone), f"ssl_options.keyfile: {gone} cannot be read: No such file or directory"),
        (options._replace(cacertfile=tmp_path), f"ssl_options.cacertfile: {tmp_path} cannot be read: Is a directory"),
        (options._replace(certfile=nothing), f"ssl_options.certfile: {nothing} holds no certificate in PEM form"),
        (options._replace(cacertfile=nothing), f"ssl_options.cacertfile: {nothing} holds no certificate in PEM form"),
        (options._replace(keyfile=nothing), f"ssl_options.keyfile: {nothing} holds no usable private key"),
        (
            options._replace(keyfile=other.keyfile),
            f"ssl_options.keyfile: {other.keyfile} is not the key of the certificate {options.certfile}",
        ),
        (
            options._replace(cacertfile=None, verify="verify_peer"),
            "ssl_options.verify: verify_peer needs cacertfile",
        ),
        (options._replace(ciphers=("AES-0",)), "ssl_options.ciphers: OpenSSL has no cipher suite 'AES-0'"),
        (options._replace(ciphers=("TLS_X",)), "ssl_options.ciphers: OpenSSL has no cipher suite 'TLS_X'"),
        (
            options._replace(ciphers=("TLS_AES_128_GCM_SHA256",), versions=("tlsv1.2",)),
            "ssl_options.ciphers: no cipher fits the versions",
        ),
    ):  # fmt: skip
        assert check_tls(changed) == text
        with pytest.raises(TlsError):
            server_context(changed)
