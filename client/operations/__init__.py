"""What administrators do with a cluster, for whoever asks: a command, a page, a program.

Everything here takes an open `Admin` or `Session` and gives values back; it prints nothing, knows
no options and ends nothing. `mq.cli` puts words to it.
"""
