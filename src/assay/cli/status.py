"""Exit statuses, the same for every command."""

FINE = 0
ALARM = 1
"""A gate failed or an alarm was raised."""
WRONG_USE = 2
UNDECIDED = 3
"""Cannot decide: too few samples, infeasible, not converged."""
INTERRUPTED = 130
"""By Ctrl-C, as shells have it."""
READER_LEFT = 141
"""Nobody reads the output any more (`| head`), as shells have it: whether there is an alarm is not said."""
