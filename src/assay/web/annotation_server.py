"""Serve the annotation page on a port of this machine."""

from collections.abc import Callable

from assay.omniinput.annotation.queue import AnnotationQueue
from assay.omniinput.annotation.store import AnnotationStore
from assay.web.annotation import GUIDELINE, QUESTION, AnnotationPage
from assay.web.listening import address_of, listening_socket, serve_until_stopped

HOST = "127.0.0.1"
GRACE_SECONDS = 5.0
"""For requests in progress when the server stops; a label takes milliseconds."""


def serve_annotations(
    store: AnnotationStore,
    port: int = 8766,
    *,
    question: str = QUESTION,
    guideline: str = GUIDELINE,
    say: Callable[[str], object] = print,
) -> None:
    """Serve until stopped. The address printed contains the token, which is kept in the store."""
    page = AnnotationPage(AnnotationQueue(store), question, guideline)
    place = listening_socket(HOST, port)  # reachable from this machine only
    say(f"annotate at {address_of(place)}/?token={store.token}")
    serve_until_stopped(page.application(), place, GRACE_SECONDS, log_level="warning", lifespan="off")
