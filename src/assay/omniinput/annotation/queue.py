"""AnnotationQueue: who judges which item next, from the labels in the store."""

import threading
import time
from dataclasses import dataclass, field

from assay.errors import InputError
from assay.omniinput.annotation.order import GAP, Turn, order_of
from assay.omniinput.annotation.store import AnnotationStore, Label

LEASE_SECONDS = 600.0
"""While somebody looks at an item, nobody else gets it for this long."""

LONGEST_NAME = 40


@dataclass
class AnnotatorTurns:
    """One annotator's turns in order, and the labels given so far, in the order given."""

    turns: list[Turn]
    done: dict[Turn, Label] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    """How many labels the annotator had given when each item was first judged."""


class AnnotationQueue:
    """Hands out turns and receives labels; its whole state can be restored from the store.

    An item that is not shared goes to the first annotator who reaches it. While somebody looks at an item,
    others do not get it for a while; if two people label it anyway, both labels count.
    """

    def __init__(self, store: AnnotationStore) -> None:
        self.store = store
        self.items = store.items()
        self.shared = store.shared()
        self.place_of = {int(row): place for place, row in enumerate(self.items.rows)}
        self._annotators: dict[str, AnnotatorTurns] = {}
        self._judged: dict[int, set[str]] = {}
        self._leases: dict[int, tuple[str, float]] = {}
        self._lock = threading.Lock()
        for label in store.label_list():
            self._record(label)

    def name_of(self, entered: str) -> str:
        """The annotator's name, checked; a name that differs from an existing one only in case is that
        one."""
        name = _checked_name(entered)
        with self._lock:
            names = {annotator.casefold(): annotator for annotator in self._annotators}
        return names.get(name.casefold(), name)

    def next(self, annotator: str) -> Turn | None:
        """The turn to show; None if nothing is left for this annotator."""
        with self._lock:
            turn = self._open_turn(annotator)
            if turn is not None:
                self._leases[turn.item] = (annotator, time.monotonic() + LEASE_SECONDS)
            return turn

    def take(self, label: Label) -> None:
        """Store a label; it is on disk when this returns. A second label for the same turn replaces the
        score."""
        if label.turn.item not in self.place_of or label.turn.repeat not in (0, 1):
            raise InputError(f"expected an item of this store, got {label.turn.item}; reload the page")
        self.store.label(label)
        with self._lock:
            self._record(label)

    def before(self, annotator: str, turn: Turn | None) -> Turn | None:
        """The turn judged before this one, or the last one judged if `turn` is None, to judge it again."""
        done = self.done(annotator)
        place = done.index(turn) if turn in done else len(done)
        return done[place - 1] if place > 0 else None

    def done(self, annotator: str) -> list[Turn]:
        """The annotator's turns so far, in the order they were first judged."""
        with self._lock:
            return list(self._turns_of(annotator).done)

    def label_of(self, annotator: str, turn: Turn) -> Label | None:
        """What the annotator answered in this turn."""
        with self._lock:
            return self._turns_of(annotator).done.get(turn)

    def annotators(self) -> list[str]:
        """Everybody who gave a label, by name."""
        with self._lock:
            return sorted((name for name, own in self._annotators.items() if own.done), key=str.casefold)

    def leave(self, annotator: str) -> None:
        """Let others have the item that this annotator was looking at."""
        with self._lock:
            self._leases = {item: held for item, held in self._leases.items() if held[0] != annotator}

    def rename(self, annotator: str, entered: str) -> str:
        """Give an annotator a new name, which nobody else may have; their labels go with them."""
        name = _checked_name(entered)
        with self._lock:
            others = {other.casefold() for other, own in self._annotators.items() if own.done}
            if name.casefold() in others - {annotator.casefold()}:
                raise InputError(
                    f"expected a name that nobody here has, got {name!r}, which somebody uses; choose another"
                )
            own = self._turns_of(annotator)
            self.store.rename(annotator, name)
            self._annotators[name] = self._annotators.pop(annotator, own)
            for judges in self._judged.values():
                if annotator in judges:
                    judges.remove(annotator)
                    judges.add(name)
            held = self._leases.items()
            self._leases = {item: (name if by == annotator else by, until) for item, (by, until) in held}
        return name

    def progress(self, annotator: str) -> tuple[int, int]:
        """How many turns are done, and how many are left at most."""
        with self._lock:
            own = self._turns_of(annotator)
            return len(own.done), sum(self._is_open(annotator, own, turn) for turn in own.turns)

    def _turns_of(self, annotator: str) -> AnnotatorTurns:
        if annotator not in self._annotators:
            known_as = self.store.ordered_as(annotator)
            order = order_of(self.items.rows.tolist(), known_as, self.store.seed, self.store.repeats)
            self._annotators[annotator] = AnnotatorTurns(order)
        return self._annotators[annotator]

    def _record(self, label: Label) -> None:
        own = self._turns_of(label.annotator)
        own.done[label.turn] = label
        own.places.setdefault(label.turn.item, len(own.done))
        self._leases.pop(label.turn.item, None)
        judges = self._judged.setdefault(label.turn.item, set())
        if label.score is not None:
            judges.add(label.annotator)
        elif not label.turn.repeat:
            judges.discard(label.annotator)  # went back and skipped it: somebody else may judge it

    def _open_turn(self, annotator: str) -> Turn | None:
        own, now = self._turns_of(annotator), time.monotonic()
        too_soon = None
        for turn in own.turns:
            if not self._is_open(annotator, own, turn) or self._is_leased(annotator, turn, now):
                continue
            if turn.repeat and len(own.done) - own.places[turn.item] < GAP:
                too_soon = too_soon or turn
                continue
            return turn
        return too_soon

    def _is_open(self, annotator: str, own: AnnotatorTurns, turn: Turn) -> bool:
        if turn in own.done:
            return False
        if turn.repeat:
            first = own.done.get(Turn(turn.item))
            return first is not None and first.score is not None
        return turn.item in self.shared or not self._judged.get(turn.item)

    def _is_leased(self, annotator: str, turn: Turn, now: float) -> bool:
        holder, until = self._leases.get(turn.item, (annotator, 0.0))
        return turn.item not in self.shared and holder != annotator and now < until


def _checked_name(entered: str) -> str:
    name = " ".join(entered.split())
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise InputError(
            f"expected a name of 1 to {LONGEST_NAME} letters, got {entered[:60]!r}; choose another"
        )
    return name
