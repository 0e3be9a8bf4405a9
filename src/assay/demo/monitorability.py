"""Chapter: which network shows its failures in its features."""

from assay.demo.setting import Setting
from assay.mira import compare_monitorability, shuffle_score
from assay.report import Section


def monitorability(setting: Setting) -> Section:
    """MIRA scores of the three networks and their shuffle scores, from known digits alone."""
    result = compare_monitorability(
        setting.networks, setting.train, setting.test, low=0.0, high=1.0, seed=setting.seed
    )
    shuffled = {
        name: shuffle_score(network, setting.test[0], seed=setting.seed)
        for name, network in setting.networks.items()
    }
    scores = ", ".join(
        f"{name} {score.score:.3f} (95 % interval {score.interval[0]:.3f} to {score.interval[1]:.3f})"
        for name, score in shuffled.items()
    )
    least = max(score.interval[0] for score in shuffled.values())
    clearest = [name for name, score in shuffled.items() if score.interval[1] >= least]
    words = (
        "Known digits were changed, a little more each time, until the network got them wrong. The MIRA "
        "score says how strange they then look in the network's last layer: 0 is no stranger than any other "
        "digit, so that no monitor of that layer could notice; 2 is three times as strange. "
        f"{result.summary()}\n\n"
        "The shuffle score is a second opinion: the chance that the network is less sure about digits whose "
        f"pixels were exchanged with those of other digits than about real ones (0.5 is guessing): {scores}. "
        "Over 40 networks it tracked how well failures were detected better than the MIRA score did (rank "
        "correlation 0.80 against 0.21; docs/papers/mira.md)."
    )
    advice = (
        "Among networks of similar accuracy, prefer one with high scores; by shuffle score "
        f"{' and '.join(clearest)} cannot be told apart from the best. Use both as a first filter: the next "
        "sections measure detection itself. A network with a score near 0 (shuffle: 0.5) needs a monitor of "
        "its inputs, or retraining."
    )
    table = result.to_frame()[["rank", "network", "score", "lower", "upper", "beats_next", "warnings"]]
    second = [shuffled[name].score for name in table["network"]]
    table.insert(len(table.columns) - 1, "shuffle_score", second)
    return Section(
        "Which network shows its failures",
        words,
        "Will this network's failures be visible from inside, before it ships?",
        [result.plot()],
        table,
        advice=advice,
    )
