"""Settings for brokers that are killed: the number of rounds, and files so small that each round
rolls some.
"""

import os

ROUNDS = int(os.environ.get("MQ_CRASH_ROUNDS", 30 if os.environ.get("MQ_TEST_LONG") else 2))
# Small files, so that every round rolls logs and queues, and uses the checkpoint.
SETTINGS = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": str(1024 * 1024),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "flushIntervalConsumeQueue": "100",
    "diskMaxUsedSpaceRatio": "95",
}
