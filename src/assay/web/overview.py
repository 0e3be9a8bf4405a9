"""The overview: how far all annotators are, and the items on which they disagree, to settle them.

For whoever started the server: it has a token of its own, and only it shows who gave which label.
"""

from dataclasses import dataclass

import pandas as pd
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from assay.errors import InputError
from assay.omniinput.annotation.annotator_agreement import annotator_agreement
from assay.omniinput.annotation.answer_scale import AnswerScale
from assay.omniinput.annotation.queue import AnnotationQueue
from assay.omniinput.annotation.review import by_annotators, disagreements, is_review
from assay.omniinput.annotation.store import LONGEST_COMMENT, Review
from assay.web.html_pages import Fields, endpoint, page, static
from assay.web.item_view import ItemViews, visible

MOST_AT_ONCE = 20
"""Items on one page of the review."""


@dataclass(frozen=True)
class Overview:
    """The routes of the overview, relative to where it is mounted."""

    queue: AnnotationQueue
    scale: AnswerScale
    views: ItemViews

    def application(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/", endpoint(self._progress)),
                Route("/review", endpoint(self._review), methods=["GET", "POST"]),
                Route("/annotation.css", static("annotation.css")),
            ]
        )

    def _progress(self, request: Request, fields: Fields) -> Response:
        labels = self.queue.store.labels()
        given = by_annotators(labels)
        agreement = annotator_agreement(labels).summary() if given["score"].notna().any() else None
        return page(
            "overview.html",
            view="progress", heading="Progress",
            people=[self._person(name, given) for name in self.queue.annotators()],
            items=len(self.queue.items), judged=given.dropna(subset="score")["item"].nunique(),
            agreement=agreement, disputed=len(self._open(labels)), reviewed=int(is_review(labels).sum()),
        )  # fmt: skip

    def _person(self, name: str, given: pd.DataFrame) -> dict[str, object]:
        own = given[given["annotator"] == name]
        done, left = self.queue.progress(name)
        return {
            "name": name, "done": done, "left": left, "skipped": int(own["score"].isna().sum()),
            "comments": int(own["comment"].notna().sum()), "seconds": own["seconds"].median(),
            "last": str(own["time"].max())[:16].replace("T", " "),
        }  # fmt: skip

    def _review(self, request: Request, fields: Fields) -> Response:
        if request.method == "POST":
            self._take(fields)
            return RedirectResponse("/overview/review", status_code=303)
        labels = self.queue.store.labels()
        waiting, reviews = self._open(labels), labels[is_review(labels)]
        settled = [self._item(int(item), labels) for item in reviews["item"]]
        return page(
            "overview.html",
            view="review", heading="Review", scale=self.scale, longest_comment=LONGEST_COMMENT,
            waiting=[self._item(item, labels) for item in waiting[:MOST_AT_ONCE]],
            more=max(0, len(waiting) - MOST_AT_ONCE), settled=settled[:MOST_AT_ONCE],
        )  # fmt: skip

    def _open(self, labels: pd.DataFrame) -> list[int]:
        """The items on which annotators disagree and which nobody has settled."""
        settled = set(labels["item"][is_review(labels)])
        return [item for item in disagreements(labels) if item not in settled]

    def _item(self, item: int, labels: pd.DataFrame) -> dict[str, object]:
        rows = labels[(labels["item"] == item) & (labels["repeat"] == 0)]
        answers = [
            {
                "name": row["annotator"],
                "score": self._drawn(row["score"]),
                "comment": visible(row["comment"]) if isinstance(row["comment"], str) else "",
            }
            for row in rows.to_dict(orient="records")
        ]
        return {"item": item, "shown": self.views[self.queue.place_of[item]], "answers": answers}

    def _drawn(self, score: float) -> str:
        return "skipped" if pd.isna(score) else self.scale.as_drawn(score)

    def _take(self, fields: Fields) -> None:
        try:
            item = int(fields["item"])
            score = float(fields["score"]) if fields["score"] not in ("", "reopen") else None
        except (KeyError, ValueError) as error:
            raise InputError(f"expected item and score, got {sorted(fields)}; reload the page") from error
        if item not in self.queue.place_of:
            raise InputError(f"expected an item of this store, got {item}; reload the page")
        if fields["score"] == "reopen":
            self.queue.store.remove_review(item)
        else:
            self.queue.store.add_reviews([Review(item, score, fields.get("comment", "").strip())])
