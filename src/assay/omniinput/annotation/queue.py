"""AnnotationQueue: who judges what next, from what the store holds."""

import threading
import time
from dataclasses import dataclass, field

from assay.errors import InputError
from assay.omniinput.annotation.order import GAP, Turn, order_of
from assay.omniinput.annotation.store import AnnotationStore, Label

LEASE_SECONDS = 600.0
"""For so long nobody else is given an item that somebody is looking at."""

LONGEST_NAME = 40


@dataclass
class Desk:
    """One annotator: the turns in their order, how far they are, and what they have done, in that order."""

    turns: list[Turn]
    done: dict[Turn, float | None] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    """When an item was first judged: after how many labels."""


class AnnotationQueue:
    """Hands out turns and takes labels; everything it knows can be read back from the store.

    Items that are not shared go to whoever comes to them first. What somebody is looking at is kept from
    others for a while; if both label it all the same, both labels count.
    """

    def __init__(self, store: AnnotationStore) -> None:
        self.store = store
        self.items = store.items()
        self.shared = store.shared()
        self.place_of = {int(row): place for place, row in enumerate(self.items.rows)}
        self._desks: dict[str, Desk] = {}
        self._judged: dict[int, set[str]] = {}
        self._leases: dict[int, tuple[str, float]] = {}
        self._lock = threading.Lock()
        for label in store.given():
            self._note(label)

    def name_of(self, given: str) -> str:
        """A name fit to use; one that differs from a known one in case only is the known one."""
        name = " ".join(given.split())
        if not name or len(name) > LONGEST_NAME or not name.isprintable():
            raise InputError(
                f"expected a name of 1 to {LONGEST_NAME} letters, got {given[:60]!r}; choose another"
            )
        with self._lock:
            known = {annotator.casefold(): annotator for annotator in self._desks}
        return known.get(name.casefold(), name)

    def next(self, annotator: str) -> Turn | None:
        """The turn to show; None when there is nothing left for this annotator."""
        with self._lock:
            turn = self._open_turn(annotator)
            if turn is not None:
                self._leases[turn.item] = (annotator, time.monotonic() + LEASE_SECONDS)
            return turn

    def take(self, label: Label) -> None:
        """Store a label; when this returns it is on disk. The same turn again replaces its score."""
        if label.turn.item not in self.place_of or label.turn.repeat not in (0, 1):
            raise InputError(f"expected an item of this store, got {label.turn.item}; reload the page")
        self.store.label(label)
        with self._lock:
            self._note(label)

    def before(self, annotator: str, turn: Turn | None) -> Turn | None:
        """The turn judged before this one (before the next one, without it), to be judged anew."""
        done = self.done(annotator)
        place = done.index(turn) if turn in done else len(done)
        return done[place - 1] if place > 0 else None

    def done(self, annotator: str) -> list[Turn]:
        """The annotator's turns so far, in the order they were first judged."""
        with self._lock:
            return list(self._desk(annotator).done)

    def score_of(self, annotator: str, turn: Turn) -> float | None:
        with self._lock:
            return self._desk(annotator).done.get(turn)

    def progress(self, annotator: str) -> tuple[int, int]:
        """How many turns are done, and how many are left at most."""
        with self._lock:
            desk = self._desk(annotator)
            return len(desk.done), sum(self._is_open(annotator, desk, turn) for turn in desk.turns)

    def _desk(self, annotator: str) -> Desk:
        if annotator not in self._desks:
            order = order_of(self.items.rows.tolist(), annotator, self.store.seed, self.store.repeats)
            self._desks[annotator] = Desk(order)
        return self._desks[annotator]

    def _note(self, label: Label) -> None:
        desk = self._desk(label.annotator)
        desk.done[label.turn] = label.score
        desk.places.setdefault(label.turn.item, len(desk.done))
        self._leases.pop(label.turn.item, None)
        judges = self._judged.setdefault(label.turn.item, set())
        if label.score is not None:
            judges.add(label.annotator)
        elif not label.turn.repeat:
            judges.discard(label.annotator)  # gone back to and skipped: somebody else's turn

    def _open_turn(self, annotator: str) -> Turn | None:
        desk, now = self._desk(annotator), time.monotonic()
        too_soon = None
        for turn in desk.turns:
            if not self._is_open(annotator, desk, turn) or self._is_leased(annotator, turn, now):
                continue
            if turn.repeat and len(desk.done) - desk.places[turn.item] < GAP:
                too_soon = too_soon or turn
                continue
            return turn
        return too_soon

    def _is_open(self, annotator: str, desk: Desk, turn: Turn) -> bool:
        if turn in desk.done:
            return False
        if turn.repeat:
            return desk.done.get(Turn(turn.item)) is not None
        return turn.item in self.shared or not self._judged.get(turn.item)

    def _is_leased(self, annotator: str, turn: Turn, now: float) -> bool:
        holder, until = self._leases.get(turn.item, (annotator, 0.0))
        return turn.item not in self.shared and holder != annotator and now < until
