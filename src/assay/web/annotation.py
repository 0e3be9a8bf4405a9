"""The annotation page: asks for a name, shows one item after another, and stores each score."""

import asyncio
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from urllib.parse import parse_qs, quote

import jinja2
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from assay.errors import AssayError, InputError, StorageError
from assay.omniinput.annotation.image import image_address
from assay.omniinput.annotation.items import AnnotationItems
from assay.omniinput.annotation.order import Turn
from assay.omniinput.annotation.queue import AnnotationQueue
from assay.omniinput.annotation.store import Label
from assay.web.body import TooLarge, body_of
from assay.web.token import TokenRequired
from assay.web.visitors import OwnPagesOnly

SCALE = ((0.0, "wrong"), (0.25, "mostly wrong"), (0.5, "half"), (0.75, "mostly right"), (1.0, "right"))
QUESTION = "How right is the model to be confident about this?"
GUIDELINE = (
    "Say how far you agree that this is what the model is meant to recognise: 1 if you fully agree, 0 if not "
    "at all, and something between if you agree in part or find it hard to tell. Judge each one by itself. "
    "If you cannot tell at all, skip it."
)
LARGEST_ANSWER = 10_000
BODY_SECONDS = 20.0
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src data:; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no referrer, browsers post with "Origin: null"
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class AnnotationPage:
    """The routes of the page, for a queue, a question and a guideline."""

    queue: AnnotationQueue
    question: str = QUESTION
    guideline: str = GUIDELINE

    def application(self) -> ASGIApp:
        """The page behind the store's token."""
        routes = [
            Route("/", self._endpoint(self._name), methods=["GET", "POST"]),
            Route("/by/{annotator:path}", self._endpoint(self._item), methods=["GET", "POST"]),
            *(Route(f"/{name}", _static(name)) for name in ("annotation.css", "annotation.js")),
        ]
        app = TokenRequired(Starlette(routes=routes), self.queue.store.token, _token_missing)
        return OwnPagesOnly(app, _error_response)

    def _endpoint(self, answer: Callable[[Request, dict[str, str]], Response]) -> Callable[..., object]:
        """Run `answer` off the event loop; an error becomes a response of one sentence."""

        async def endpoint(request: Request) -> Response:
            try:
                fields = await _fields(request)
                response = await run_in_threadpool(answer, request, fields)
            except StorageError as error:
                response = _error_response(507, str(error))
            except AssayError as error:
                response = _error_response(422, str(error))
            except TimeoutError:
                response = _error_response(408, f"expected the whole answer within {BODY_SECONDS:g} seconds")
            except ClientDisconnect:
                response = _error_response(400, "the browser disconnected before it had sent its answer")
            response.headers.update(HEADERS)
            return response

        return endpoint

    def _name(self, request: Request, fields: dict[str, str]) -> Response:
        problem = None
        if request.method == "POST":
            try:
                return _to_annotator(self.queue.name_of(fields.get("name", "")))
            except InputError as error:
                problem = str(error)
        kind = "image" if self.queue.items.is_image else "text"
        return _page(
            422 if problem else 200,
            view="name", heading="Annotate", kind=kind, guideline=self.guideline, problem=problem,
        )  # fmt: skip

    def _item(self, request: Request, fields: dict[str, str]) -> Response:
        annotator = self.queue.name_of(request.path_params["annotator"])
        if request.method == "POST":
            self.queue.take(_label(annotator, fields))
            return _to_annotator(annotator)
        turn = _turn_in_address(request, self.queue, annotator) or self.queue.next(annotator)
        done, left = self.queue.progress(annotator)
        before = self.queue.before(annotator, turn)
        common = {"annotator": annotator, "done": done, "before": _address(annotator, before)}
        if turn is None:
            return _page(200, view="done", heading="Nothing left", **common)
        return _page(
            200,
            view="item", heading=f"{done + 1}", left=left, question=self.question, guideline=self.guideline,
            item=turn.item, repeat=turn.repeat, scale=SCALE, score=self.queue.score_of(annotator, turn),
            **_item_view(self.queue.items, self.queue.place_of[turn.item]), **common,
        )  # fmt: skip


def _error_response(status: int, sentence: str) -> Response:
    return PlainTextResponse(f"{sentence}.", status_code=status, headers=HEADERS)


def _token_missing() -> Response:
    return _error_response(
        401, "this page needs the token in the address that was printed when the server started"
    )


async def _fields(request: Request) -> dict[str, str]:
    """The fields of a small form."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = b"".join([part async for part in body_of(request, LARGEST_ANSWER)])
    except TooLarge as error:
        raise InputError(f"expected an answer of at most {LARGEST_ANSWER} bytes, got more") from error
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {name: values[-1] for name, values in fields.items()}


def _label(annotator: str, fields: dict[str, str]) -> Label:
    try:
        turn = Turn(int(fields["item"]), int(fields["repeat"]))
        score = float(fields["score"]) if fields["score"] else None
        seconds = float(fields["seconds"]) if fields.get("seconds") else None
    except (KeyError, ValueError) as error:
        raise InputError(f"expected item, repeat and score, got {sorted(fields)}; reload the page") from error
    if score is not None and not 0 <= score <= 1:
        raise InputError(f"expected a score from 0 to 1, got {score:g}; choose one on the scale")
    return Label(turn, annotator, score, seconds)


def _turn_in_address(request: Request, queue: AnnotationQueue, annotator: str) -> Turn | None:
    """The turn in the address, if the annotator has judged it: a way to go back."""
    item, _, repeat = request.query_params.get("turn", "").partition(".")
    if not (item.isdecimal() and repeat.isdecimal() and len(item + repeat) < 20):
        return None
    turn = Turn(int(item), int(repeat))
    return turn if turn in queue.done(annotator) else None


def _address(annotator: str, turn: Turn | None) -> str | None:
    return None if turn is None else f"/by/{quote(annotator, safe='')}?turn={turn.item}.{turn.repeat}"


def _to_annotator(annotator: str) -> Response:
    return RedirectResponse(f"/by/{quote(annotator, safe='')}", status_code=303)


def _item_view(items: AnnotationItems, place: int) -> dict[str, object]:
    if not items.is_image:
        return {"image": None, "text": visible(items.text(place))}
    pixels = items.inputs[place].numpy()
    return {"image": image_address(pixels, items.values), "size": " by ".join(map(str, pixels.shape[-2:]))}


def visible(text: str) -> str:
    """The text with control characters shown as symbols, so that nothing in it can act or hide.

    >>> visible("a\\x00b\\u202ec")
    'a\\u2400b\\ufffdc'
    """
    return "".join(_visible_letter(letter) for letter in text)


def _visible_letter(letter: str) -> str:
    if letter in "\n\t" or unicodedata.category(letter) not in ("Cc", "Cf", "Cs"):
        return letter
    return chr(0x2400 + ord(letter)) if ord(letter) < 0x20 else "\ufffd"


def _page(status: int, **facts: object) -> Response:
    return HTMLResponse(_template().render(**facts), status_code=status)


def _template() -> jinja2.Template:
    return _environment.get_template("annotation.html")


_environment = jinja2.Environment(
    loader=jinja2.FunctionLoader(lambda name: (files("assay.web") / name).read_text(encoding="utf-8")),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    auto_reload=False,
)


def _static(name: str) -> Callable[[Request], Response]:
    kinds = {"css": "text/css", "js": "text/javascript"}
    text = (files("assay.web") / name).read_text(encoding="utf-8")

    def endpoint(request: Request) -> Response:
        return Response(text, media_type=kinds[name.rpartition(".")[2]], headers=HEADERS)

    return endpoint
