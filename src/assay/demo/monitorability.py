"""Chapter: which network shows its failures in its features."""

from assay.demo.setting import Setting
from assay.mira import compare_monitorability
from assay.report import Section


def monitorability(setting: Setting) -> Section:
    """MIRA scores of the three networks, from known digits alone."""
    result = compare_monitorability(
        setting.networks, setting.train, setting.test, low=0.0, high=1.0, seed=setting.seed
    )
    return Section.of(
        result,
        "Which network shows its failures",
        "Will this network's failures be visible from inside, before it ships?",
    )
