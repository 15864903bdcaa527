"""The execution of a command: environment, options, effects, errors and statuses."""
