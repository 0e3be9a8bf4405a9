"""The reader of our output, who may leave before the end (`assay ... | head`)."""

import os
import select
import sys


class Reader:
    """Of standard output and standard error, as they were when the command began."""

    def __init__(self) -> None:
        streams = [stream for stream in (sys.__stdout__, sys.__stderr__) if stream is not None]
        self.ends = [stream.fileno() for stream in streams if not stream.closed]
        # Rich lets go of an output that nobody reads; the copies still say so afterwards.
        self.copies = [os.dup(end) for end in self.ends]

    def has_left(self) -> bool:
        """Whether our own output has no reader any more; that a pipe to a worker broke is an error."""
        if not hasattr(select, "poll"):  # Windows
            return True
        waiting = select.poll()
        for end in self.copies:
            waiting.register(end, 0)
        return any(event & select.POLLERR for _, event in waiting.poll(0))

    def let_go(self) -> None:
        """Nothing more is written where nobody reads, not even when the interpreter ends."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for end in self.ends:
            os.dup2(nowhere, end)
