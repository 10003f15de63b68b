"""The rights of who creates a vhost over HTTP: everything in it, as in RabbitMQ."""

from warrenmq.admin.protocol.control import SetPermissions

_ALL = ".*"


def all_rights(vhost: str, user: str) -> SetPermissions:
    """The request that gives the user all rights in the vhost."""
    return SetPermissions(vhost=vhost, user=user, configure=_ALL, write=_ALL, read=_ALL)
