"""The annotation page on a port of this machine, until it is stopped."""

from collections.abc import Callable

from assay.omniinput.annotation_queue import AnnotationQueue
from assay.omniinput.annotation_store import AnnotationStore
from assay.web.annotation import GUIDELINE, QUESTION, AnnotationPage
from assay.web.listening import listening

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
    place = listening(HOST, port)  # reachable from this machine only
    say(f"annotate at http://{HOST}:{place.getsockname()[1]}/?token={store.token}")
    config = uvicorn.Config(page.application(), log_level="warning", access_log=False, lifespan="off")
    uvicorn.Server(config).run(sockets=[place])
