"""TubeMQ's wire: frames, the envelope of requests, messages, codes, strings. No I/O."""
