"""Serve the annotation page on a port of this machine."""

from collections.abc import Callable

from assay.omniinput.annotation.answer_scale import AnswerScale
from assay.omniinput.annotation.queue import AnnotationQueue
from assay.omniinput.annotation.store import AnnotationStore
from assay.web.annotation import GUIDELINE, QUESTION, AnnotationPage
from assay.web.listening import address_of, listening_socket, serve_until_stopped

SCALE = AnswerScale()
HOST = "127.0.0.1"
GRACE_SECONDS = 5.0
"""For requests in progress when the server stops; a label takes milliseconds."""


def serve_annotations(
    store: AnnotationStore,
    port: int = 8766,
    *,
    question: str = QUESTION,
    guideline: str = GUIDELINE,
    scale: AnswerScale = SCALE,
    columns: tuple[str, ...] | None = None,
    say: Callable[[str], object] = print,
) -> None:
    """Serve until stopped. The addresses printed contain tokens, which are kept in the store: one for the
    annotators, one for the overview of all of them."""
    page = AnnotationPage(AnnotationQueue(store), question, guideline, scale, columns).application()
    place = listening_socket(HOST, port)  # reachable from this machine only
    say(f"annotate at {address_of(place)}/?token={store.token}")
    say(f"see progress and disagreements at {address_of(place)}/overview/?token={store.overview_token}")
    serve_until_stopped(page, place, GRACE_SECONDS, log_level="warning", lifespan="off")
