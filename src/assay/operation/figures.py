"""Figures of a stream."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure


def drift_figure(frame: pd.DataFrame, reference_rate: float, false_alarm_rate: float) -> Figure:
    """The alarm rate round by round beside the clean one, and the evidence."""
    figure = Figure(figsize=(7, 5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(frame["row"], frame["alarm_rate"])
    above.axhline(reference_rate, linestyle="--", color="grey", label="clean")
    above.set_ylabel("alarm rate")
    above.legend()
    below.plot(frame["row"], frame["log_evidence"])
    below.axhline(-np.log(false_alarm_rate), linestyle="--", color="tab:red", label="1 / false-alarm rate")
    below.set_ylabel("log evidence of a change")
    below.set_xlabel("row of the stream")
    below.legend()
    return figure
