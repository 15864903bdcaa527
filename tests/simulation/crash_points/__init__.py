"""Crash points: a short workload on one machine, and a start from every state that a crash may
leave.

A workload runs once. Before each of its file operations the disk is copied (image.py): that is a
point. The store is started from each point: as a kill leaves it, and as a power cut leaves it with
each subset of the unsynced changes, all of them if they are few. Such a start has points, too, from
which it is started once more.

  machine.py    runs something on a machine with a given disk, and keeps its points
  model.py      the actions, and what must be there after a crash
  workloads.py  workloads of a store; failing.py on a disk that fails, java.py on Java's stores
  broker.py     a whole broker; its workloads: delivery.py, offsets.py, popping.py
  explore.py    tries points and subsets, and reports failures
  command.py    python -m tests.simulation points
"""
