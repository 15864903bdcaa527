"""The queues that a member of a group owns: assignment, locks, pulls, commits, and revoking."""
