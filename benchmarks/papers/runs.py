"""Every run behind a figure in the docs: its commands, its cost, what it stands on, where its tables go.

How to register a run (papers/all.py does the rest):

1. Give the script a `--tables FOLDER`: into it goes a Markdown file for each block of the docs
   (pages.markdown makes a table of a data frame) and any image; those that a page shows are copied to
   docs/images.
2. Add a Run to the list of its paper below. In commands, {data} and {shared} are the folders of data, {cache}
   the run's own folder (new when the code changes, so checkpoints that depend on code belong there), {tables}
   its folder of tables, and {some-run} the folder of a run among its `needs`.
3. In the page put the two lines `<!-- figures RUN/BLOCK -->` and `<!-- end RUN/BLOCK -->`, for every block.
   What stands between them stays until the run is made; then it is the run's, down to the last letter.

`rooms` are the packages and modules of src/assay that decide the figures, but for those in `apart`. The
scripts named in `commands`, and the benchmark modules that these import, count by themselves. Whatever of it
changes (comments and docstrings aside), or changes in a run among `needs`, makes the run stale.
tests/test_papers.py checks that runs and markers match.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

SAFETY_PAGE, MIRA_PAGE = "papers/safety-monitors.md", "papers/mira.md"
RESHAPING_PAGE, VOLATILITY_PAGE = "papers/reshaping.md", "papers/volatility.md"
ACCURACY_PAGE = "accuracy-without-labels.md"
SAMPLING_PAGE, PRECISION_PAGE = "papers/omniinput.md", "papers/omniinput-precision.md"


@dataclass(frozen=True)
class Run:
    """Something to compute once for a state of the code.

    Attributes:
        name: Of the run, its folder and its markers.
        commands: Scripts beside this file, without .py, and their arguments; run in this order.
        minutes: What it takes on one core; it is not begun with less time left.
        value: Runs of higher value go first.
        blocks: Markdown file that it leaves in {tables}, without .md -> page under docs that shows it.
        rooms: Packages and modules of src/assay that decide its figures.
        apart: Modules in these rooms that do not.
        needs: Runs whose results it reads. They are made first, whatever their value.
    """

    name: str
    commands: tuple[str, ...]
    minutes: float
    value: int
    blocks: Mapping[str, str] = field(default_factory=dict)
    rooms: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


SAFETY_ROOMS = ("monitors", "guard", "faults", "network", "trace")
SAFETY_DATA = "--data {data} --shared {shared} --networks {safety-monitors-networks}"

SAFETY_MONITORS = [
    Run(
        name="safety-monitors-published",
        commands=("safety_published --tables {tables}",),
        minutes=0.2,
        value=101,
        blocks={"summary": SAFETY_PAGE},
        rooms=("statistics",),
    ),
    Run(
        name="safety-monitors-networks",
        commands=("lenets gtsrb cifar10 --data {data} --shared {shared} --work {cache}",),
        minutes=12,
        value=98,
    ),
    Run(
        name="safety-monitors-alarms",
        commands=(
            "safety_alarms --data {data} --shared {shared} --networks {safety-monitors-networks} "
            "--tables {tables}",
        ),
        minutes=3,
        value=97,
        blocks={"alarms": SAFETY_PAGE},
        rooms=SAFETY_ROOMS,
        needs=("safety-monitors-networks",),
    ),
    Run(
        name="safety-monitors-guards",
        commands=(
            f"safety_guards gtsrb {SAFETY_DATA} --epochs 200 --work {{cache}}",
            f"safety_guards cifar10 {SAFETY_DATA} --epochs 200 --work {{cache}}",
        ),
        minutes=70,
        value=98,
        rooms=SAFETY_ROOMS,
        needs=("safety-monitors-networks",),
    ),
    Run(
        name="safety-monitors-scenarios",
        commands=tuple(
            f"safety_monitors {stage} {name} {SAFETY_DATA} --guards {{safety-monitors-guards}} "
            "--work {cache}"
            for stage in ("stream", "run")
            for name in ("gtsrb", "cifar10")
        ),
        minutes=12,
        value=99,
        rooms=("benchmark", *SAFETY_ROOMS),
        needs=("safety-monitors-networks", "safety-monitors-guards"),
    ),
    Run(
        name="safety-monitors",
        commands=(
            "safety_tables --networks {safety-monitors-networks} --guards {safety-monitors-guards} "
            "--work {safety-monitors-scenarios} --tables {tables}",
        ),
        minutes=1,
        value=100,
        blocks=dict.fromkeys(
            (
                *(
                    "found",
                    "means",
                    "agreement",
                    "all",
                    "novelty",
                    "adversarial",
                    "shift",
                    "chance",
                    "odin",
                    "boxes",
                ),
                *("system", "cost", "ranks"),
            ),
            SAFETY_PAGE,
        ),
        needs=("safety-monitors-networks", "safety-monitors-guards", "safety-monitors-scenarios"),
    ),
]

MIRA_ROOMS = ("mira", "monitors", "faults", "network", "trace")
MIRA_DATA = "mira --data {data} --shared {shared} --cache {cache} --tables {tables}"

MIRA = [
    Run(
        name="mira-toy",
        commands=("mira --tables {tables} toy",),
        minutes=1,
        value=90,
        blocks={"toy": "monitorability.md"},
        rooms=MIRA_ROOMS,
    ),
    *(
        Run(
            name=f"mira-{name}",
            commands=(f"{MIRA_DATA} measure {name}", f"{MIRA_DATA} maps {name}", f"{MIRA_DATA} tables"),
            minutes=minutes,
            value=value,
            blocks=dict.fromkeys((name, f"{name}-map", f"{name}-monitors", f"{name}-thresholds"), MIRA_PAGE),
            rooms=MIRA_ROOMS,
        )
        for name, minutes, value in (("tabular", 10, 80), ("text", 15, 75), ("vision", 20, 70))
    ),
    Run(
        name="mira-speed",
        commands=(f"{MIRA_DATA} speed --repeats 2 --inputs 480",),
        minutes=8,
        value=20,
        blocks={"speed": MIRA_PAGE},
        rooms=MIRA_ROOMS,
    ),
]

RESHAPING = [
    Run(
        name="reshaping",
        commands=(
            "reshape experiment --data {data}/mnist --cache {cache}",
            "reshape experiment --data {data}/fashion-mnist --cache {cache}",
            "reshape tables --cache {cache} --tables {tables}",
        ),
        minutes=25,
        value=40,
        blocks={"experiment": RESHAPING_PAGE, "errors": RESHAPING_PAGE, "intervals": RESHAPING_PAGE},
        rooms=("reshaping", "accuracy", "volatility", "network", "trace"),
    ),
]


def _volatility(name: str, value: int, minutes: float, *jobs: str) -> Run:
    """The tables of the volatility paper for one network or dataset."""
    folders = " --data {data} --weights {volatility-networks} --cache {cache} --tables {tables}"
    tables = ["accuracies", "scenario-a", "p-values", "scenario-b", "trajectory", "others", "mixed"]
    if name == "ann":
        tables += ["stopping", "alarms", "contamination"]
    return Run(
        name=f"volatility-{name}",
        commands=tuple(f"{job}{folders}" for job in jobs),
        minutes=minutes,
        value=value,
        blocks=dict.fromkeys(tables, VOLATILITY_PAGE),
        rooms=("volatility", "faults", "network", "trace"),
        needs=("volatility-networks",),
    )


VOLATILITY = [
    Run(
        name="volatility-networks",
        commands=("volatility_networks ann cnn vgg --data {data} --cache {cache}",),
        minutes=30,
        value=60,
    ),
    Run(
        name="accuracy-without-labels",
        commands=(
            "accuracy_without_labels --networks ann cnn resnet20 --rows 1000 --pgd-steps 3 --data {data} "
            "--weights {volatility-networks} --cache {cache} --tables {tables}",
        ),
        minutes=12,
        value=50,
        blocks={
            "ann": VOLATILITY_PAGE,
            "cnn": VOLATILITY_PAGE,
            "resnet20": VOLATILITY_PAGE,
            "summary": ACCURACY_PAGE,
        },
        rooms=("accuracy", "volatility", "faults", "network", "trace"),
        needs=("volatility-networks",),
    ),
    _volatility(
        "ann",
        55,
        10,
        "volatility accuracies a b trajectory others alarms contamination stopping --networks ann",
    ),
    _volatility(
        "cnn",
        53,
        30,
        "volatility accuracies a b trajectory others --networks cnn",
    ),
    _volatility(
        "cifar10",
        52,
        40,
        "volatility accuracies a b trajectory --networks vgg",
        "volatility a b --networks resnet20",
        "volatility others --networks vgg resnet20 --changed-rows 2000 --pgd-steps 3",
    ),
    Run(
        name="volatility-regulariser",
        commands=("volatility regulariser --networks ann --data {data} --cache {cache} --tables {tables}",),
        minutes=2,
        value=54,
        blocks={"regulariser": VOLATILITY_PAGE},
        rooms=("volatility", "faults", "network", "trace"),
    ),
]

_LANGUAGE_MODELS_ALONE = tuple(
    f"omniinput/sampling/{module}"
    for module in [
        "kernels/suffix",
        "language_model",
        "lookahead",
        "memorisation",
        "ngram",
        "pretrained",
        "vocabulary",
        "samplers/beta_pilot",
        "samplers/beta_shares",
        "samplers/importance",
        "samplers/importance_then_tempering",
        "samplers/last_token",
        "samplers/output_counts",
        "samplers/proposal_betas",
        "samplers/rounds",
        "samplers/selection",
        "samplers/sequences",
        "samplers/weighted_estimate",
    ]
)
_SAMPLED = "omniinput mnist --data {data} --shared {shared} --cache {cache} --tables {tables}"

OMNIINPUT = [
    Run(
        name="omniinput-mnist",
        commands=tuple(
            f"{_SAMPLED} --networks {network} --budget {budget}"
            for network, budget in (
                ("mlp", 600_000),
                ("mlp-aug", 2_400_000),
                ("cnn-aug", 400_000),
                ("res-aug", 3_000_000),
                ("cnn", 20_000_000),
                ("res", 14_000_000),
            )
        ),
        minutes=130,
        value=48,
        blocks={"networks": SAMPLING_PAGE},
        rooms=("omniinput",),
        apart=_LANGUAGE_MODELS_ALONE,
    ),
    Run(
        name="omniinput-precision",
        commands=tuple(
            f"omniinput_precision {part} --data {{data}} --shared {{shared}} --cache {{omniinput-mnist}} "
            "--tables {tables}"
            for part in ("mnist", "traditional")
        ),
        minutes=4,
        value=47,
        blocks=dict.fromkeys(("judge", "mnist", "compared", "convergence", "traditional"), PRECISION_PAGE),
        rooms=("omniinput",),
        apart=_LANGUAGE_MODELS_ALONE,
        needs=("omniinput-mnist",),
    ),
    Run(
        name="omniinput-toy",
        commands=(
            "omniinput toy --budget 640000 --cache {cache} --tables {tables}",
            "omniinput_precision toy --budget 40000 --cache {cache} --tables {tables}",
        ),
        minutes=25,
        value=49,
        blocks={"toy": SAMPLING_PAGE, "toy-precision": PRECISION_PAGE},
        rooms=("omniinput",),
    ),
    Run(
        name="omniinput-stories",
        commands=("omniinput stories --budget 60000 --shared {shared} --cache {cache} --tables {tables}",),
        minutes=3,
        value=50,
        blocks={"stories": SAMPLING_PAGE},
        rooms=("omniinput",),
    ),
    Run(
        name="omniinput-texts",
        commands=tuple(
            f"omniinput_texts sst2 --length {length} --budget {budget} --data {{data}} --shared {{shared}} "
            "--cache {cache} --tables {tables}"
            for length, budget in ((10, 300_000), (66, 50_000))
        ),
        minutes=60,
        value=45,
        blocks={"texts-10": PRECISION_PAGE, "texts-66": PRECISION_PAGE},
        rooms=("omniinput",),
        apart=_LANGUAGE_MODELS_ALONE,
    ),
    Run(
        name="omniinput-languages",
        commands=(
            "omniinput_languages --budget 32000 --data {data} --shared {shared} --cache {cache} "
            "--tables {tables}",
        ),
        minutes=15,
        value=46,
        blocks={"languages": PRECISION_PAGE, "language-samples": PRECISION_PAGE},
        rooms=("omniinput",),
    ),
]

RUNS = {
    run.name: run
    for run in sorted(
        [*SAFETY_MONITORS, *MIRA, *RESHAPING, *VOLATILITY, *OMNIINPUT], key=lambda run: -run.value
    )
}
