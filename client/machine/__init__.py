"""The machine that mq runs on: clocks, chance, files, threads, and what is used of it.

Whatever the daemons and the client take from the system beneath them, apart from the event loop,
goes through these modules, and tests/test_seams.py finds what does not. They are names for
functions of the standard library, so that a call costs what it did, and tests/simulation puts
others in their place before anything else is imported (docs/decisions/0046).
"""
