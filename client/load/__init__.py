"""Load for measurements: sends and pulls at a high rate, with the latency of each one.

A worker is a process that reads its plan from standard input and writes its results to standard
output; `mq bench` starts several and adds up the results.
"""
