"""Timer: delivers timed messages, with the files of RocketMQ 5's timer."""
