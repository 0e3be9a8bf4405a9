"""The ways inputs go wrong in operation, one family per file: adversarial."""

from assay.faults.adversarial import attacked, fgsm, fgsm_direction, pgd, random_sign

__all__ = ["attacked", "fgsm", "fgsm_direction", "pgd", "random_sign"]
