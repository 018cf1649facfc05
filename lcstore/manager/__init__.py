"""When a training loop saves, and what is done beside it: schedules, preemption, upkeep, resuming."""
