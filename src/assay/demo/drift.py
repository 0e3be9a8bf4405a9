"""Chapter: the inputs change, nobody sends labels; what is the accuracy now?"""

import torch
from torch import Tensor

from assay.accuracy import estimate_accuracy
from assay.demo.setting import Setting
from assay.faults import NOISE, templates_for
from assay.faults.lessons import lessons
from assay.report import Section
from assay.trace import Trace
from assay.volatility import VolatilityWatch

FAULT, SEVERITY = "gaussian", 5
STEP = 10


def drift(setting: Setting) -> Section:
    """Volatility over a stream that turns noisy half-way, and the answer about accuracy beside the truth."""
    clean = setting.favourite.observe(setting.test)
    noisy = _observe_under(setting, FAULT, SEVERITY, setting.test)
    reference = setting.favourite.observe(setting.validation)
    # Every fault of the library teaches but the one to come: in operation it would be one nobody thought of.
    teachers = [name for name in templates_for(setting.validation[0]) if name != FAULT]
    taught = lessons(setting.favourite, setting.validation, faults=teachers, seed=setting.seed)
    estimates = estimate_accuracy(reference, noisy, perturbed=taught, seed=setting.seed)
    watch = VolatilityWatch(window=100).calibrate(reference, seed=setting.seed)
    stream = torch.cat([clean.probabilities, noisy.probabilities])
    alarm = _alarm_words(_first_alarm(watch, stream), len(clean))
    truth = float(noisy.correct.double().mean())
    words = (
        f"{len(clean)} clean digits, and then the same digits under {FAULT} noise, went through the "
        f"{next(iter(setting.networks))}. Without a single label, {alarm}. The watch measures "
        "volatility: how much certainty jumps from one answer to the next, which rises when a network meets "
        f"inputs it does not know.\n\n{estimates.summary()} The answer was learned from "
        f"{len(teachers)} other faults on labelled digits. The truth, which you would not have, is "
        f"{truth:.1%}."
    )
    advice = (
        "When the watch raises the alarm, look at what changed in front of the network, and plan with the "
        "lower end of the interval. Where it cannot be told, label the rows that assay.rows_to_label draws. "
        "On your own data: assay accuracy live.npz --reference test.npz --network my.models:trained."
    )
    stream_figure = watch.plot()
    for axes in stream_figure.axes:
        axes.axvline(len(clean), color="grey", linestyle=":", linewidth=1)
    stream_figure.axes[0].annotate(
        " the noise begins", (len(clean), 0.02), xycoords=("data", "axes fraction"), fontsize=8, color="grey"
    )
    return Section(
        "What is the accuracy now",
        words,
        "What is its accuracy out there, now that the inputs have shifted?",
        [stream_figure, *estimates.figures()],
        estimates.to_frame(),
        advice=advice,
    )


def _observe_under(setting: Setting, fault: str, severity: int, data: tuple[Tensor, Tensor]) -> Trace:
    inputs, labels = data
    return setting.favourite.observe((NOISE[fault](inputs, severity, seed=setting.seed), labels))


def _first_alarm(watch: VolatilityWatch, stream: Tensor) -> int | None:
    """How many predictions the watch had seen when it first raised the alarm; it goes on to the end."""
    alarms = [watch.update(rows).alarm for rows in torch.split(stream, STEP)]
    return STEP * (alarms.index(True) + 1) if any(alarms) else None


def _alarm_words(first: int | None, clean: int) -> str:
    if first is None:
        return "the watch raised no alarm"
    if first <= clean:
        return f"the watch raised a false alarm after {first} predictions, before the noise began"
    return f"the watch raised the alarm {first - clean} predictions after the noise began"
