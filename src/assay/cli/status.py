"""Exit statuses, the same for every command."""

FINE = 0
ALARM = 1
"""A gate failed or an alarm was raised."""
WRONG_USE = 2
UNDECIDED = 3
"""No decision: too few samples, infeasible, not converged."""
INTERRUPTED = 130
"""By Ctrl-C; the number that shells use."""
READER_LEFT = 141
"""Nobody reads the output any more (`| head`); the number that shells use. Says nothing about an alarm."""
