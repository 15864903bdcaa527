"""The checks of `mq doctor`: each looks at a part of a cluster and tells what it finds."""
