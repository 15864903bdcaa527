"""The controller: elects the masters of broker sets, its state and its leader kept in etcd."""
