"""The nodes of the cluster: memory, disk, alarms, links, and the health of etcd."""
