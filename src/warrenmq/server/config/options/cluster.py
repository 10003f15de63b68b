"""The options of a node in a cluster."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from warrenmq.server.config.errors import ConfigError

CLUSTER_PORT: Final = 25672


@dataclass(frozen=True)
class ClusterOptions:
    """Where a node meets the others; without a `name` it runs alone."""

    name: str = ""
    # URLs at which clients reach the etcd servers that hold the cluster's decisions.
    etcd: tuple[str, ...] = ()
    etcd_username: str = ""
    etcd_password: str = field(default="", repr=False)
    etcd_cacertfile: Path | None = None
    etcd_certfile: Path | None = None
    etcd_keyfile: Path | None = None
    # (host, port) of the listener for other nodes; host "" = every address, port 0 = a free port.
    listen: tuple[str, int] = ("", CLUSTER_PORT)
    # The address that other nodes dial; None: the address of the listener.
    advertise: tuple[str, int] | None = None
    # The secret that the nodes share; "" = the first node makes one and keeps it in etcd.
    secret: str = field(default="", repr=False)
    # With certificates, links between nodes use TLS, and both ends need one of this authority.
    cacertfile: Path | None = None
    certfile: Path | None = None
    keyfile: Path | None = None
    # Where new queues go whose arguments and policy do not tell.
    locator: str = "client-local"


def etcd_urls(value: str) -> tuple[str, ...]:
    """The URLs in a list with commas. Raises ConfigError."""
    urls = tuple(part.strip().rstrip("/") for part in value.split(",") if part.strip())
    for url in urls:
        if not url.startswith(("http://", "https://")):
            # Such a text may have a password in it.
            raise ConfigError("expected URLs that begin with http:// or https://")
    if not urls:
        raise ConfigError("expected URL or URL,URL,...")
    return urls


def fault_of(options: ClusterOptions) -> str:
    """The fault of `options` that lack something, or ""."""
    if options.name and not options.etcd:
        return "cluster.name needs cluster.etcd (--etcd URL,...)"
    if options.etcd and not options.name:
        return "cluster.etcd needs cluster.name (--cluster NAME)"
    files = (options.cacertfile, options.certfile, options.keyfile)
    if any(files) and not all(files):
        return "cluster.ssl_options needs cacertfile, certfile and keyfile"
    if (options.etcd_certfile is None) != (options.etcd_keyfile is None):
        return "cluster.etcd.certfile and cluster.etcd.keyfile belong together"
    return ""
