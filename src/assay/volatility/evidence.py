"""Evidence against "the stream is like the clean data" that may be looked at after every row.

Evidence is capital that starts at 1 and is bet, at odds that are fair or worse on clean data, on the claim
that the stream has changed (a betting martingale: Ville 1939; for conformal p-values Vovk, Nouretdinov and
Gammerman 2003; e-processes: Ramdas et al. 2023). On a clean stream of any length the chance that the capital
ever reaches 1/a is at most a, so looking often costs nothing.

Half of the capital bets on single rows. The conformal p-value of a row is the share of clean margins at or
below its own. Given the clean rows, the chance of a p-value below k/(n+1) is not k/(n+1) but a Beta(k, n+1-k)
draw, and a long stream would find out; so odds are set by an upper confidence limit of that chance
(calibration-conditional p-values: Bates, Candes, Lei, Romano and Sesia 2023). A bet says: a share of the rows
is contaminated, and those fall among the lowest (or highest) q of clean margins.

The other half bets on log VC, once per full window, by the calibrator f(p) = (1 - p + p ln p) / (p ln^2 p) of
Vovk and Wang 2021 on the rank of log VC among clean windows. Ranks among resampled windows are p-values only
as far as the resampling is true to fresh windows; the false-alarm rate is checked by simulation in the tests.

A change may come late, when all bets have long been lost on clean rows. So capital is staked piece by piece:
before round j, 1/(j+1) of what is still unstaked. Evidence for a change at round j is then at most j (j+1)
times weaker than if its time had been known, and never lost.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import exp, log
from typing import Self

import numpy as np
from scipy.stats import beta, norm

from assay.storage import storable
from assay.volatility.certainty import Doubles
from assay.volatility.clean_reference import CleanReference

TAILS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Shares q of clean margins among which a contaminated row is bet to lie."""
SHARES = (0.01, 0.03, 0.1, 0.3, 0.9)
"""Shares of contaminated rows that are bet on."""
LESS, MORE = "less certain", "more certain"
"""Which way a stream has changed against its reference."""
ROUND = 100
"""Rows (with blocks: every block-th row) after which bets are settled and new capital is staked."""


@storable("volatility.Stakes")
@dataclass
class Stakes:
    """Capital on several bets, as logarithms, and what is still unstaked."""

    bets: Doubles
    rounds: int = 0

    @classmethod
    def on(cls, bets: int) -> Self:
        return cls(np.full(bets, -np.inf))

    def play(self, returns: Doubles | float) -> None:
        """One round: stake 1/(j+1) of the unstaked capital 1/j, evenly; then every bet pays its return."""
        self.rounds += 1
        moved = -np.log(self.rounds) - np.log(self.rounds + 1) - np.log(len(self.bets))
        self.bets = np.logaddexp(self.bets, moved) + returns

    @property
    def log_capital(self) -> float:
        return float(np.logaddexp(-np.log(self.rounds + 1), np.logaddexp.reduce(self.bets)))


@storable("volatility.Evidence")
@dataclass
class Evidence:
    """Both bets of one watch; half of `false_alarm_rate` pays for the clean sample being finite."""

    reference: CleanReference
    false_alarm_rate: float
    on_rows: Stakes = field(default_factory=lambda: Stakes.on(2 * len(TAILS) * len(SHARES)))
    on_windows: Stakes = field(default_factory=lambda: Stakes.on(1))
    running: list[float] = field(default_factory=list)
    """Margins of the running round."""
    log_evidence: float = 0.0
    """log of the mean of the two capitals, when bets were last settled."""
    strongest: float = 0.0
    """The largest log evidence ever."""
    last_log_vc: float = math.nan
    """log VC of the last full window."""
    direction: str = ""
    """Which way the stream had changed when the evidence first was decisive; empty until then."""

    def __post_init__(self) -> None:
        clean = self.reference.margins
        ranks = np.clip(np.ceil(np.array(TAILS) * (len(clean) + 1)).astype(int), 1, len(clean))
        self._lower, self._upper = clean[ranks - 1], clean[len(clean) - ranks]
        doubt = self.false_alarm_rate / 2 / (2 * len(TAILS) + 2)
        chances = beta.isf(doubt, ranks, len(clean) + 1 - ranks)
        chances = np.tile(chances, 2)[:, None]
        shares = np.array(SHARES)
        self._log_hit = np.log1p(shares * (1 / chances - 1))
        self._log_miss = np.log1p(-shares)
        self._decisive = log(2 / self.false_alarm_rate)
        self.allowance = float(norm.isf(doubt)) * self.reference.standard_error
        self.round = min(ROUND, self.reference.window // self.reference.block)

    @property
    def capital(self) -> float:
        """The evidence itself, within the range of a float."""
        return exp(min(self.log_evidence, 700.0))

    @property
    def alarm(self) -> bool:
        """Whether the evidence has ever reached 2 / false_alarm_rate."""
        return self.strongest >= self._decisive

    def add_rows(self, margins: Iterable[float]) -> None:
        """Bet on rows, in order; how a stream is cut into calls makes no difference."""
        running, size = self.running, self.round
        running.extend(margins)
        if len(running) >= size:
            whole = len(running) - len(running) % size
            for part in np.array(running[:whole]).reshape(-1, size, 1):
                hits = np.concatenate([(part < self._lower).sum(axis=0), (part > self._upper).sum(axis=0)])
                won, lost = hits[:, None], size - hits[:, None]
                self._settle(self.on_rows, (won * self._log_hit + lost * self._log_miss).ravel())
            del running[:whole]

    def p_value(self, log_vc: float) -> float:
        """How rare a clean window at least as far out is, allowing for the clean rows being a sample."""
        return self.reference.p_value(log_vc, self.allowance)

    def add_window(self, log_vc: float) -> float:
        """Bet on the log VC of a full window that shares no row with the last; returns its p-value."""
        p = self.p_value(log_vc)
        self.last_log_vc = log_vc
        self._settle(self.on_windows, np.log(_calibrator(p)))
        return p

    def _settle(self, stakes: Stakes, returns: Doubles | float) -> None:
        stakes.play(returns)
        capitals = np.logaddexp(self.on_rows.log_capital, self.on_windows.log_capital)
        self.log_evidence = float(capitals - np.log(2))
        self.strongest = max(self.strongest, self.log_evidence)
        if self.alarm and not self.direction:
            self.direction = LESS if self._says_less() else MORE

    def _says_less(self) -> bool:
        """Whether the capital comes from bets on low margins, or on windows more volatile than clean ones."""
        if self.on_windows.log_capital > self.on_rows.log_capital:
            return self.last_log_vc > self.reference.mean
        less, more = np.logaddexp.reduce(self.on_rows.bets.reshape(2, -1), axis=1)
        return bool(less >= more)


def _calibrator(p: float) -> float:
    """The integral over k in (0, 1) of k p^(k-1): large for small p, 1 on average over uniform p."""
    if p > 0.999:  # the closed form is 0 / 0 at p = 1, where the integral is 1/2
        return 0.5
    return float((1 - p + p * np.log(p)) / (p * np.log(p) ** 2))
