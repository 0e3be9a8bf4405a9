"""What a fit gathers from rows, and how it is joined with what another fit gathered."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from assay.storage import storable


class Gathered(ABC):
    """A sum over rows or a sample of them. Merged with that of other rows it is that of all of them.

    It does not depend on how rows were split or in which order parts are merged: a sample to the last bit, a
    sum to the rounding of its terms. `assay.save(monitor, path, mergeable=True)` writes it.
    """

    unsaved: ClassVar[Mapping[str, Any]] = {}
    """Attributes that files leave out, and what they are after loading."""

    repeatable: ClassVar[bool] = False
    """Whether merging the same twice changes nothing."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        storable(f"monitors.parts.{cls.__name__}")(cls)

    @abstractmethod
    def merge(self, other: Self) -> None:
        """Take in what the other has, which stays as it is."""

    def state(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in self.unsaved}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        found = cls.__new__(cls)
        vars(found).update(cls.unsaved, **state)
        return found
