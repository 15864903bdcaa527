"""Where the process `mq` begins, as a script and as `python -m mq`; nothing else imports this.

Ctrl-C while Python imports would print a trace. Until a command can answer it (`runtime.ending`),
and when it has ended, it does what it does to a program in C: it ends the process without a word.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not so under nohup
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from mq.cli.main import app as app
