"""The ways inputs go wrong in operation, one family of faults per file.

Every template is called the same way, `template(inputs, severity, seed=0)`; attacks also take the network and
the labels. `NOISE`, `SHIFT`, `ANOMALY` (images), `TABULAR`, `TEXT`, `TOKENS`, `BYTES` and `ADVERSARIAL`
contain them by name; `templates_for` has those of your inputs.
"""

from assay.faults.adversarial import attacked, fgsm, fgsm_direction, pgd, random_sign
from assay.faults.anomaly import ANOMALY
from assay.faults.attacks import ADVERSARIAL, Attack
from assay.faults.byte_rows import BYTES, byte_faults
from assay.faults.kinds import kind_of, templates_for
from assay.faults.lessons import Lesson, lessons
from assay.faults.noise import NOISE
from assay.faults.novelty import leave_out, matched
from assay.faults.pseudo_unknown import PseudoUnknown, pseudo_unknowns_for
from assay.faults.shift import SHIFT
from assay.faults.tabular import TABULAR
from assay.faults.template import SEVERITIES, Template
from assay.faults.text import TEXT
from assay.faults.tokens import TOKENS, token_faults

__all__ = [
    "ADVERSARIAL",
    "ANOMALY",
    "BYTES",
    "NOISE",
    "SEVERITIES",
    "SHIFT",
    "TABULAR",
    "TEXT",
    "TOKENS",
    "Attack",
    "Lesson",
    "PseudoUnknown",
    "Template",
    "attacked",
    "byte_faults",
    "fgsm",
    "fgsm_direction",
    "kind_of",
    "leave_out",
    "lessons",
    "matched",
    "pgd",
    "pseudo_unknowns_for",
    "random_sign",
    "templates_for",
    "token_faults",
]
