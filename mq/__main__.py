"""`python -m mq` is the command `mq`."""

from mq.cli.entry import app

app()
