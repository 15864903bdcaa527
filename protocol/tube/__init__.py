"""TubeMQ's wire format: frames, the envelope of requests, messages, codes, strings. No I/O."""
