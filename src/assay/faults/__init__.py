"""The ways inputs go wrong in operation, one family of faults per file.

Every template is called the same way, `template(inputs, severity, seed=0)`; attacks also take the network and
the labels. `NOISE`, `SHIFT`, `ANOMALY` (images), `TABULAR`, `TEXT` and `ADVERSARIAL` contain them by name.
"""

from assay.faults.adversarial import attacked, fgsm, fgsm_direction, pgd, random_sign
from assay.faults.anomaly import ANOMALY
from assay.faults.attacks import ADVERSARIAL, Attack
from assay.faults.noise import NOISE
from assay.faults.novelty import leave_out, matched
from assay.faults.shift import SHIFT
from assay.faults.tabular import TABULAR
from assay.faults.template import SEVERITIES, Template
from assay.faults.text import TEXT

__all__ = [
    "ADVERSARIAL",
    "ANOMALY",
    "NOISE",
    "SEVERITIES",
    "SHIFT",
    "TABULAR",
    "TEXT",
    "Attack",
    "Template",
    "attacked",
    "fgsm",
    "fgsm_direction",
    "leave_out",
    "matched",
    "pgd",
    "random_sign",
]
