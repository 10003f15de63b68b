"""Why a node cannot be part of its cluster."""


class ClusterError(Exception):
    """The node cannot be part of its cluster; the text is one line."""
