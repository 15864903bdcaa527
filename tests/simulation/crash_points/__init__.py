"""Crash points: a short workload on one machine, and a start from every state a crash may leave.

A workload runs once. Before each of its operations on files the disk is copied (image.py): that is
a point. From each point the store is started again: as a kill leaves it, and as a power cut leaves
it with each subset of what was not synced, all of them where they are few. What such a start does
has points, too, from which it is started once more.

    machine.py    runs something on a machine with a given disk, and keeps its points
    model.py      what was done, and what has to be there behind a crash
    workloads.py  what is done with a store; failing.py on a disk that fails, java.py with Java's
    broker.py     a whole broker; what is done with it: delivery.py, offsets.py, popping.py
    explore.py    goes through points and subsets, and tells what failed
    command.py    python -m tests.simulation points
"""
