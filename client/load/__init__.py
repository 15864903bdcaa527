"""Load for measuring: sends and pulls by the hundred thousand, each latency known.

A worker is a process of its own that reads its plan from standard input and writes what it has
measured to standard output; `mq bench` starts some and adds up.
"""
