"""Spark sources, sinks and jobs on RocketMQ topics."""
