"""Where the process `mq` begins, as a script and as `python -m mq`; nothing else imports this.

Ctrl-C while Python imports would print a trace. Until the command can answer it, and again when the
interpreter ends, it does what it does to a program in C: it ends the process without a word.
"""

import signal
import sys

_answered = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not so under nohup
if _answered:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from mq.cli.main import app as _app  # noqa: E402  (the signal comes first)


def app() -> None:
    """Run `mq` in this process and exit."""
    try:
        if _answered:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        _app()
    except KeyboardInterrupt:  # beside the command: amid what begins or ends it
        sys.exit(130)
    finally:
        if _answered:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
