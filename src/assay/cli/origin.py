"""Where a report came from: the command as it was typed, and the options that matter."""

import shlex
import sys


def origin(**facts: object) -> dict[str, object]:
    """The command, and the facts that have a value."""
    command = shlex.join(["assay", *sys.argv[1:]])
    return {"command": command, **{name: value for name, value in facts.items() if value is not None}}
