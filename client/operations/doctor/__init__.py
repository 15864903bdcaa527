"""The checks of `mq doctor`: each one inspects a part of a cluster and reports findings."""
