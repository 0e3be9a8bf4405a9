"""AnswerScale: the steps on which people judge, and the words at both ends."""

from dataclasses import dataclass
from functools import cached_property

from assay.errors import InputError

STEPS = range(2, 10)  # what is drawn on a button is its key, and keys have one digit
LONGEST_WORD = 40


@dataclass(frozen=True)
class Choice:
    """A button: `key` is drawn on it and presses it, `score` is recorded, `word` stands under it."""

    key: str
    score: float
    word: str


@dataclass(frozen=True)
class AnswerScale:
    """A number of steps from the first end (score 0) to the last (score 1), numbered from 1.

    >>> [(choice.key, choice.score, choice.word) for choice in AnswerScale(3, ("no", "yes")).choices]
    [('1', 0.0, 'no'), ('2', 0.5, ''), ('3', 1.0, 'yes')]
    """

    steps: int = 5
    ends: tuple[str, str] = ("wrong", "right")

    def __post_init__(self) -> None:
        if self.steps not in STEPS:
            raise InputError(f"expected a scale of {STEPS[0]} to {STEPS[-1]} steps, got {self.steps}")
        for word in self.ends:
            if not word.strip() or len(word) > LONGEST_WORD or not word.isprintable():
                raise InputError(
                    f"expected a word of 1 to {LONGEST_WORD} letters for each end, got {word[:60]!r}"
                )

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        last = self.steps - 1
        words = {0: self.ends[0], last: self.ends[1]}
        return tuple(Choice(str(step + 1), step / last, words.get(step, "")) for step in range(self.steps))

    @property
    def meaning(self) -> str:
        return f"1 is {self.ends[0]}, {self.steps} is {self.ends[1]}"

    def as_drawn(self, score: float) -> str:
        """The score as annotators know it; one of another scale as a number from 0 to 1."""
        key = next((choice.key for choice in self.choices if choice.score == score), None)
        return key or f"{score:g} on a scale from 0 to 1"
