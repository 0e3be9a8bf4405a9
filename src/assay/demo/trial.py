"""Chapter: faults of every kind, and which of them four guards catch."""

from assay import monitors
from assay.benchmark import build_scenarios, run_benchmark
from assay.demo.setting import Setting
from assay.guard import Guard
from assay.report import Section

FAULTS = ("gaussian", "gaussian_blur", "contrast", "rotated", "pixel_trap", "dead_rows", "fgsm")


def trial(setting: Setting) -> Section:
    """The safety-monitor benchmark on the small CNN, with the unknown digit as novelty."""
    network = setting.favourite
    fitted, held = (network.observe(data, keep_inputs=True) for data in (setting.train, setting.validation))
    chosen = (monitors.MaxSoftmax(), monitors.Energy(), monitors.Mahalanobis(), monitors.ActivationBox())
    guards = {
        type(monitor).__name__: Guard(network, monitor.fit(fitted)).calibrate(held, false_alarm_rate=0.05)
        for monitor in chosen
    }
    scenarios = build_scenarios(
        *setting.test,
        network=network,
        novelty={"the digit 9": setting.unknown},
        faults=FAULTS,
        seed=setting.seed,
    )
    result = run_benchmark(guards, scenarios, seed=setting.seed)
    return Section.of(
        result,
        "Which guard to ship",
        "Does a guard catch faults it was not made for, and what does it cost in good answers?",
        "Ship the cheapest guard that cannot be told apart from the best, look in the first figure for kinds "
        "of fault that it misses (near 0), and guard against those by other means. On your own network: "
        "assay check module:factory --data held-out.npz.",
    )
