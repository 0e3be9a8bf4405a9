"""The safety-monitor paper's own results: all 79 as its authors published them, and what its tables print.

FPR, FNR, precision and recall in the file are as printed: those of the class in distribution.
"""

from pathlib import Path

import pandas as pd

FILE = Path(__file__).with_name("safety_monitors_79.csv")
# Tables V to VII: MCC of the system (ML alone, then each monitor); seconds of ML and SM; megabytes of both.
SYSTEM = {"gtsrb": (0.96, 0.51, 0.64, 0.50), "cifar10": (0.74, 0.53, 0.61, 0.64)}
SECONDS = {"ALOOC": (0.0070, 0.2217), "OOB": (0.0021, 0.0529), "ODIN": (0.0007, 0.0246)}
MEGABYTES = {"ALOOC": (3.8, 98.9), "OOB": (4.3, 6.4), "ODIN": (2.0, 1.5)}

WORDS = {
    "gaussian": "gaussian noise",
    "shot": "shot noise",
    "impulse": "impulse noise",
    "speckle": "speckle noise",
}
ONCE = {"rotated (5)": "rotated", "fgsm (5)": "FGSM", "gtsrb-cifar10": "GTSRB-CIFAR10"}


def their_name(scenario: str) -> str:
    """The authors' name of one of our scenarios."""
    if scenario == "cifar10-gtsrb":
        return "CIFAR10-GTSRB"
    if scenario in ONCE:
        return ONCE[scenario]
    fault, level = scenario.split(" (")
    return f"{WORDS.get(fault, fault.replace('_', ' '))} ({level}"


def published() -> pd.DataFrame:
    """A row per dataset, scenario and monitor; rates as rates of faults: FPR is the share of false alarms."""
    frame = pd.read_csv(FILE)
    return pd.DataFrame(
        {
            "dataset": frame["dataset"].replace({"cifar": "cifar10"}),
            "scenario": frame["scenario"],
            "guard": frame["monitor"],
            "mcc": frame["mcc"],
            "fpr": frame["fnr_printed"],
            "fnr": frame["fpr_printed"],
            "good_precision": frame["precision_printed"],
            "weighted_f1": frame["f1_printed"],
        }
    )
