"""`python -m mq` is the command `mq`."""

from mq.cli.main import app

app()
