"""Administrative operations on a cluster, for commands, console pages and programs.

Every operation takes an open `Admin` or `Session` and returns values; it prints nothing, knows no
command-line options and does not exit. `mq.cli` formats the results.
"""
