"""The addresses of the other nodes of a cluster, for a client that was given the URI of one."""

from urllib.parse import urlsplit, urlunsplit

from warrenmq.admin.protocol.homes import NodePlace


def uri_at(uri: str, host: str, port: int) -> str:
    """`uri` with another host and port; user, password, vhost and parameters stay."""
    parts = urlsplit(uri)
    login, at, _ = parts.netloc.rpartition("@")
    where = f"[{host}]" if ":" in host else host
    return urlunsplit(parts._replace(netloc=f"{login}{at}{where}:{port}"))


def listener_for(uri: str, node: NodePlace) -> tuple[str, int] | None:
    """Host and port where clients like that of `uri`, with TLS or without, reach `node`.

    None when it has no listener for them.
    """
    wanted = "amqp/ssl" if urlsplit(uri).scheme == "amqps" else "amqp"
    for protocol, host, port in node.listeners:
        if protocol == wanted:
            return host, port
    return None
