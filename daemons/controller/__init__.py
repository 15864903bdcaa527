"""The controller: elects the masters of replica sets; its state and its leader are kept in etcd."""
