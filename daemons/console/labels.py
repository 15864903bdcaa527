"""Codes that pages show as words: kinds and states of brokers, groups and findings.

They are values of the API, too, and stay English there; templates translate them.
"""

from mq.daemons.console.route import N_

WORDS = (
    # kinds of topics
    *(N_("normal"), N_("delay"), N_("fifo"), N_("transaction"), N_("mixed"), N_("retry")),
    *(N_("dlq"), N_("system"), N_("unspecified")),
    # states of groups
    *(N_("online"), N_("offline"), N_("unknown")),
    # kinds of clients, severities of findings
    *(N_("producer"), N_("consumer"), N_("warning"), N_("critical")),
)
