"""The annotation page: asks for a name, shows one item after another, and stores each score."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from assay.errors import InputError
from assay.omniinput.annotation.answer_scale import AnswerScale
from assay.omniinput.annotation.order import Turn
from assay.omniinput.annotation.queue import AnnotationQueue
from assay.omniinput.annotation.store import LONGEST_COMMENT, Label
from assay.web.html_pages import Fields, endpoint, error_response, page, static, token_missing
from assay.web.item_view import ItemViews
from assay.web.overview import Overview
from assay.web.token import TokenRequired
from assay.web.visitors import OwnPagesOnly

QUESTION = "How right is the model to be confident about this?"
GUIDELINE = (
    "Say how far you agree that this is what the model is meant to recognise: the last step if you fully "
    "agree, the first if not at all, and one between if you agree in part or find it hard to tell. Judge "
    "each one by itself. If you cannot tell at all, skip it."
)


@dataclass(frozen=True)
class AnnotationPage:
    """The routes of the page, for a queue, a question, a guideline and a scale."""

    queue: AnnotationQueue
    question: str = QUESTION
    guideline: str = GUIDELINE
    scale: AnswerScale = field(default_factory=AnswerScale)
    columns: tuple[str, ...] | None = None

    def application(self) -> ASGIApp:
        """The page behind the store's token, and the overview behind its own."""
        store = self.queue.store
        routes = [
            Route("/", endpoint(self._name), methods=["GET", "POST"]),
            Route("/by/{annotator:path}", endpoint(self._item), methods=["GET", "POST"]),
            Route("/leave/{annotator:path}", endpoint(self._leave), methods=["POST"]),
            Route("/rename/{annotator:path}", endpoint(self._rename), methods=["POST"]),
            *(Route(f"/{name}", static(name)) for name in ("annotation.css", "annotation.js")),
        ]
        overview = Overview(self.queue, self.scale, self._views).application()
        doors = [
            Mount("/overview", TokenRequired(overview, store.overview_token, token_missing)),
            Mount("/", TokenRequired(Starlette(routes=routes), store.token, token_missing)),
        ]
        return OwnPagesOnly(Starlette(routes=doors), error_response)

    @cached_property
    def _views(self) -> ItemViews:
        return ItemViews(self.queue.items, self.columns)

    def _name(self, request: Request, fields: Fields) -> Response:
        problem = None
        if request.method == "POST":
            try:
                return _to_annotator(self.queue.name_of(fields.get("name", "")))
            except InputError as error:
                problem = str(error)
        return page(
            "annotation.html",
            422 if problem else 200,
            view="name", heading="Annotate", kind=self._views.kind, guideline=self.guideline, problem=problem,
            scale=self.scale,
        )  # fmt: skip

    def _item(self, request: Request, fields: Fields) -> Response:
        annotator = self.queue.name_of(request.path_params["annotator"])
        if request.method == "POST":
            self.queue.take(_label(annotator, fields))
            return _to_annotator(annotator)
        turn = _turn_in_address(request, self.queue, annotator) or self.queue.next(annotator)
        done, left = self.queue.progress(annotator)
        before = self.queue.before(annotator, turn)
        common: dict[str, Any] = {"annotator": annotator, "done": done, "before": _address(annotator, before)}
        if turn is None:
            return page("annotation.html", view="done", heading="Nothing left", **common)
        label = self.queue.label_of(annotator, turn)
        return page(
            "annotation.html",
            view="item", heading=f"{done + 1}", left=left, question=self.question, guideline=self.guideline,
            item=turn.item, repeat=turn.repeat, scale=self.scale, score=label and label.score,
            comment=(label and label.comment) or "", longest_comment=LONGEST_COMMENT,
            shown=self._views[self.queue.place_of[turn.item]], **common,
        )  # fmt: skip

    def _leave(self, request: Request, fields: Fields) -> Response:
        annotator = self.queue.name_of(request.path_params["annotator"])
        self.queue.leave(annotator)
        done, left = self.queue.progress(annotator)
        return page(
            "annotation.html", view="left", heading="Until later", annotator=annotator, done=done, left=left
        )

    def _rename(self, request: Request, fields: Fields) -> Response:
        annotator = self.queue.name_of(request.path_params["annotator"])
        return _to_annotator(self.queue.rename(annotator, fields.get("name", "")))


def _label(annotator: str, fields: Fields) -> Label:
    try:
        turn = Turn(int(fields["item"]), int(fields["repeat"]))
        score = float(fields["score"]) if fields["score"] else None
        seconds = float(fields["seconds"]) if fields.get("seconds") else None
    except (KeyError, ValueError) as error:
        raise InputError(f"expected item, repeat and score, got {sorted(fields)}; reload the page") from error
    if score is not None and not 0 <= score <= 1:
        raise InputError(f"expected a score from 0 to 1, got {score:g}; choose one on the scale")
    return Label(turn, annotator, score, seconds, fields.get("comment", "").strip())


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
