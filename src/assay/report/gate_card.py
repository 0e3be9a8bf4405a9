"""A gate as a card: the measured interval drawn against what is wanted, in HTML's own colours."""

import math
from dataclasses import dataclass

from markupsafe import Markup

from assay.check.advice import advice_on
from assay.check.gate import Gate
from assay.report.cells import number_text, share_text

SHARES = {"accuracy", "false alarms"}
"""Gates on a share: shown as a percentage."""

ICONS = {"passed": "✓", "failed": "✗", "undecided": "?"}
WIDTH, LEFT, RIGHT, LINE = 320, 8, 312, 26


@dataclass(frozen=True)
class GateCard:
    gate: Gate

    @property
    def icon(self) -> str:
        return ICONS[self.gate.verdict]

    @property
    def advice(self) -> str:
        return advice_on(self.gate)

    @property
    def measured(self) -> str:
        """What was found, with its interval, in words."""
        gate = self.gate
        if not math.isfinite(gate.measured):
            return "not measured"
        found = self._text(gate.measured)
        if not all(map(math.isfinite, gate.interval)):
            return found
        return f"{found} ({self._text(gate.interval[0])} to {self._text(gate.interval[1])})"

    @property
    def wanted(self) -> str:
        """In the gate's own words, with the number as the card writes it."""
        return f"{self.gate.wanted.rpartition(' ')[0]} {self._text(self.gate.limit)}"

    @property
    def figure(self) -> Markup:
        """A line with the interval and the point on it; shaded on the side that is wanted."""
        gate = self.gate
        known = [value for value in (gate.measured, *gate.interval, gate.limit) if math.isfinite(value)]
        room = 0.2 * (max(known) - min(known) or 1.0)
        low, high = min(known) - room, max(known) + room

        def place(value: float) -> float:
            return round(LEFT + (RIGHT - LEFT) * (value - low) / (high - low), 1)

        limit = place(gate.limit)
        start, end = (LEFT, limit) if gate.at_most else (limit, RIGHT)
        parts = [
            f'<rect class="wanted" x="{start}" y="8" width="{round(end - start, 1)}" height="36"/>',
            f'<line class="axis" x1="{LEFT}" y1="{LINE}" x2="{RIGHT}" y2="{LINE}"/>',
            f'<line class="limit" x1="{limit}" y1="4" x2="{limit}" y2="48"/>',
            _label(limit, 60, f"wanted: {self.wanted}"),
        ]
        if math.isfinite(gate.measured):
            ends = [place(value) if math.isfinite(value) else place(gate.measured) for value in gate.interval]
            parts += [
                f'<line class="interval" x1="{ends[0]}" y1="{LINE}" x2="{ends[1]}" y2="{LINE}"/>',
                f'<circle class="point" cx="{place(gate.measured)}" cy="{LINE}" r="6"/>',
            ]
        described = f"{gate.name}: {self.measured}, wanted {self.wanted}"
        return Markup('<svg viewBox="0 0 320 66" role="img" aria-label="{}">{}</svg>').format(
            described, Markup("".join(map(str, parts)))
        )

    def _text(self, value: float) -> str:
        return share_text(value) if self.gate.name in SHARES else number_text(value)


def _label(place: float, height: float, words: str) -> Markup:
    """Words below a place, kept inside the figure."""
    side = "start" if place < WIDTH / 3 else "end" if place > 2 * WIDTH / 3 else "middle"
    return Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(place, height, side, words)
