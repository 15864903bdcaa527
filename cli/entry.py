"""The entry point of the process `mq`, as a script and as `python -m mq`; nothing else imports it.

While Python imports, Ctrl-C would print a traceback. Until a command handles it (`runtime.ending`),
and after the command, SIGINT has its default action: it ends the process silently.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not under nohup
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from mq.cli.main import app as app
