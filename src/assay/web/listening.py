"""A socket that listens, before anybody is told its address."""

import os
import socket

from assay.errors import InputError


def listening(host: str, port: int) -> socket.socket:
    """Whoever comes at once waits instead of failing; what is sent goes out at once."""
    if not 0 <= port <= 65535:
        raise InputError(f"expected a port from 0 to 65535, got {port}; choose another --port")
    try:
        found = socket.create_server((host, port))
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise InputError(
            f"expected a free address, got {host}:{port} ({reason}); choose another --port"
        ) from error
    # Connections inherit it. Without it the body of an answer waits 40 ms for the client to acknowledge its
    # headers; asyncio sets it by itself only on sockets whose protocol was named.
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found
