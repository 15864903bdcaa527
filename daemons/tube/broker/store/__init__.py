"""The message store of a TubeMQ broker: data and index files of each (topic, store)."""
