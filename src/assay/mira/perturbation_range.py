"""The range of epsilon: [epsilon_min, 2 epsilon_min] (MIRA, Section 4.2 and Appendix B.6)."""

from assay.errors import InputError, UndecidedError
from assay.mira.crossing import first_crossing
from assay.mira.settings import MiraSettings
from assay.mira.sweep import Sweep

_SMALL = 0.01  # where the search starts, in standard deviations of the inputs


def found_range(sweep: Sweep, settings: MiraSettings) -> tuple[float, float]:
    """epsilon_min is the smallest epsilon that brings accuracy down to the threshold.

    It is searched on a sample of the test inputs first, then on all of them, to the tolerance in `settings`.
    """
    clean, limit = sweep.at(0.0).accuracy, sweep.perturbation.limit()
    if clean <= settings.accuracy_threshold and (hint := sweep.at(0.0).order_hint):
        raise UndecidedError(
            f"expected accuracy on clean inputs above the threshold {settings.accuracy_threshold:g}, got "
            f"{clean:.4g}; {hint}"
        )
    guess = _guessed_epsilon(sweep, settings, limit) if clean > settings.accuracy_threshold else None
    found = first_crossing(
        lambda epsilon: sweep.at(epsilon).accuracy,
        clean,
        settings.accuracy_threshold,
        start=guess or _SMALL * sweep.perturbation.scale(),
        limit=limit,
        growth=1.1 if guess else 2.0,
        tolerance=settings.tolerance,
    )
    return found.epsilon, 2 * found.epsilon


def _guessed_epsilon(sweep: Sweep, settings: MiraSettings, limit: float) -> float | None:
    """epsilon_min of a sample of the test inputs; None if the sample does not help."""
    pilot = sweep.pilot(settings.seed)
    if pilot is None:
        return None
    try:
        return first_crossing(
            pilot.accuracy,
            pilot.accuracy(0.0),
            settings.accuracy_threshold,
            start=_SMALL * sweep.perturbation.scale(),
            limit=limit,
            tolerance=0.05,  # a sample says no more than that
        ).epsilon
    except InputError:
        return None  # its accuracy starts too low or never falls far enough; all inputs decide
