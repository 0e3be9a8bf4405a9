"""The reader of the output, which may stop reading before the end (`assay ... | head`)."""

import os
import select
import sys


class Reader:
    """The reader of standard output and standard error, as they were when the command began."""

    def __init__(self) -> None:
        streams = [stream for stream in (sys.__stdout__, sys.__stderr__) if stream is not None]
        self.ends = [stream.fileno() for stream in streams if not stream.closed]
        # Rich drops an output that nobody reads; the copies still show it afterwards.
        self.copies = [os.dup(end) for end in self.ends]

    def has_left(self) -> bool:
        """Whether nobody reads the output any more; a broken pipe to a worker is an error instead."""
        if not hasattr(select, "poll"):  # Windows
            return True
        waiting = select.poll()
        for end in self.copies:
            waiting.register(end, 0)
        return any(event & select.POLLERR for _, event in waiting.poll(0))

    def discard_output(self) -> None:
        """Discard all further output, even when the interpreter exits."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for end in self.ends:
            os.dup2(nowhere, end)
