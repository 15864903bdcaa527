"""The machine that mq runs on: clocks, random numbers, files, threads, and resource usage.

Everything that the daemons and the client use of the operating system, apart from the event loop,
goes through these modules; tests/test_seams.py finds violations. They are names for functions of
the standard library, so that a call costs the same, and tests/simulation replaces them before
anything else is imported (docs/decisions/0046).
"""
