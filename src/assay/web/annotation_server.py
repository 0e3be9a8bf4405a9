"""The annotation page on a port of this machine, until it is stopped."""

import socket
from collections.abc import Callable

from assay.errors import InputError
from assay.omniinput.annotation_queue import AnnotationQueue
from assay.omniinput.annotation_store import AnnotationStore
from assay.web.annotation import GUIDELINE, QUESTION, AnnotationPage

HOST = "127.0.0.1"


def serve_annotations(
    store: AnnotationStore,
    port: int = 8766,
    *,
    question: str = QUESTION,
    guideline: str = GUIDELINE,
    say: Callable[[str], object] = print,
) -> None:
    """Serve until interrupted. The address said holds the token, which stays that of the store."""
    import uvicorn

    page = AnnotationPage(AnnotationQueue(store), question, guideline)
    listening = _listening(port)
    say(f"annotate at http://{HOST}:{listening.getsockname()[1]}/?token={store.token}")
    config = uvicorn.Config(page.application(), log_level="warning", access_log=False, lifespan="off")
    uvicorn.Server(config).run(sockets=[listening])


def _listening(port: int) -> socket.socket:
    """Reachable from this machine only."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()  # before the address is said: whoever comes at once waits instead of failing
    except (OSError, OverflowError) as error:
        listening.close()
        raise InputError(f"cannot listen on port {port} ({error}); choose another with --port") from error
    return listening
