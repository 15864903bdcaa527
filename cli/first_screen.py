"""The output of `mq` without arguments: what it is, first commands, and where to read more.

It imports nothing, so that it starts fast.
"""

WHAT = """\
mq is RocketMQ in Python. One command manages topics, groups and messages of
this project's and of Apache's brokers, and runs the daemons themselves.
"""

# Command and description, by purpose, in the order in which users need them.
FIRST = (
    (
        "Get started",
        (
            ("mq standalone", "a name server and a broker"),
            ("mq topic create Orders", "create a topic"),
            ("mq produce Orders", "send each line as a message"),
            ("mq tail Orders --last 10", "the last ten, then new messages"),
        ),
    ),
    (
        "Inspect",
        (
            ("mq topic list", "every topic"),
            ("mq topic describe Orders", "queues, settings and groups"),
            ("mq group list", "the lag of every consumer group"),
            ("mq group describe billing", "lag, members and settings"),
            ("mq cluster describe", "brokers, topics and groups"),
            ("mq doctor", "check the cluster for problems"),
        ),
    ),
    (
        "Replay",
        (("mq group seek billing Orders 1h", "read the last hour again"),),
    ),
)

REST = """\
Cluster: -n HOST:9876, --context, NAMESRV_ADDR, or the current context.
  mq COMMAND --help    help for a command, with examples
  mq help topic        commands about topics (group, message, offset, …)
  mq help all          all commands, by subject
  mq help options      options of all commands, such as -n and -o
  mq cheat topic       examples to copy
"""


def text() -> str:
    """Return the screen: at most 40 lines of 80 columns."""
    lines = [WHAT, "Usage: mq COMMAND [OPTIONS]"]
    for title, commands in FIRST:
        lines += ["", f"{title}:"]
        lines += [f"  {command:<35}{words}" for command, words in commands]
    return "\n".join([*lines, "", REST])
