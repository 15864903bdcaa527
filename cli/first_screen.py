"""What `mq` alone prints: what it is, what one types first, and where the rest is.

It loads nothing, so that it is there at once.
"""

WHAT = """\
mq is RocketMQ in Python: topics, groups and messages of brokers of this
project and of Apache's, and the daemons themselves, by one command.
"""

# Each with an example; by what one wants, in the order in which one wants it.
FIRST = (
    (
        "To begin with",
        (
            ("mq standalone", "a name server and a broker"),
            ("mq topic create Orders", "create a topic"),
            ("mq produce Orders", "send each line as a message"),
            ("mq tail Orders --last 10", "the ten newest, then what comes"),
        ),
    ),
    (
        "To look",
        (
            ("mq topic list", "every topic"),
            ("mq topic describe Orders", "queues, settings and groups"),
            ("mq group list", "the lag of every consumer group"),
            ("mq group describe billing", "lag, members and settings"),
            ("mq cluster describe", "brokers, topics and groups"),
            ("mq doctor", "is everything as it should be?"),
        ),
    ),
    (
        "To go back",
        (("mq group seek billing Orders 1h", "read the last hour again"),),
    ),
)

REST = """\
Which cluster: -n HOST:9876, --context, NAMESRV_ADDR, or the current context.

  mq COMMAND --help    what a command does, with examples
  mq help topic        the commands about topics (group, message, offset, …)
  mq help all          all commands, by subject
  mq help options      what all commands take, such as -n and -o
  mq cheat topic       examples to copy
"""


def text() -> str:
    """The screen: 40 lines at most, of 80 columns."""
    lines = [WHAT, "Usage: mq COMMAND [OPTIONS]"]
    for title, commands in FIRST:
        lines += ["", f"{title}:"]
        lines += [f"  {command:<35}{words}" for command, words in commands]
    return "\n".join([*lines, "", REST])
