"""The annotation page on a port of this machine, until it is stopped."""

from collections.abc import Callable

from assay.omniinput.annotation.queue import AnnotationQueue
from assay.omniinput.annotation.store import AnnotationStore
from assay.web.annotation import GUIDELINE, QUESTION, AnnotationPage
from assay.web.listening import address_of, listening_socket, serve_until_stopped

HOST = "127.0.0.1"
GRACE_SECONDS = 5.0
"""For answers under way when the server is stopped; a label takes milliseconds."""


def serve_annotations(
    store: AnnotationStore,
    port: int = 8766,
    *,
    question: str = QUESTION,
    guideline: str = GUIDELINE,
    say: Callable[[str], object] = print,
) -> None:
    """Serve until stopped. The address said holds the token, which stays that of the store."""
    page = AnnotationPage(AnnotationQueue(store), question, guideline)
    place = listening_socket(HOST, port)  # reachable from this machine only
    say(f"annotate at {address_of(place)}/?token={store.token}")
    serve_until_stopped(page.application(), place, GRACE_SECONDS, log_level="warning", lifespan="off")
