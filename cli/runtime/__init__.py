"""How a command runs: its surroundings, options, effects, errors and statuses."""
