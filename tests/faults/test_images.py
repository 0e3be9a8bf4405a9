"""Every image fault owes the same: it goes further with severity, stays in range, and repeats itself."""

from itertools import pairwise

import pytest
import torch
from sklearn.datasets import load_digits

from assay.errors import InputError
from assay.faults import ANOMALY, NOISE, SHIFT
from assay.faults.filters import gaussian_blurred, smooth_noise

TEMPLATES = {**NOISE, **SHIFT, **ANOMALY}

ISSUE = {
    "noise": "gaussian shot impulse speckle spatter defocus_blur glass_blur zoom_blur gaussian_blur "
    "elastic_transform",
    "shift": "snow fog brightness contrast saturate rotated frost motion_blur pixelate jpeg",
    "anomaly": "pixel_trap row_add_logic shifted_pixel black_image dead_rows stuck_frame",
}


def scenes(count, channels, height, width, seed=0):
    """Smooth coloured fields with some detail: what natural images have in common."""
    generator = torch.Generator().manual_seed(seed)
    coarse = smooth_noise((count, channels, height, width), min(height, width) / 8, generator)
    fine = smooth_noise((count, channels, height, width), 1.0, generator)
    return torch.sigmoid(coarse + 0.5 * fine)


@pytest.fixture(scope="module")
def images():
    digits = torch.from_numpy(load_digits().images[:60]).float()[:, None] / 16
    return {
        "8x8 grey digits": digits,
        "28x28 grey": scenes(16, 1, 28, 28),
        "32x32 RGB": scenes(16, 3, 32, 32),
        "33x45 RGB": scenes(8, 3, 33, 45),
        "224x224 RGB": scenes(2, 3, 224, 224),
    }


def distances(template, images, severities=range(1, 6)):
    return [float((template(images, s, seed=0) - images).flatten(1).norm(dim=1).mean()) for s in severities]


def test_every_fault_of_the_issue_is_there_under_its_category():
    for category, names in ISSUE.items():
        found = {name for name, template in TEMPLATES.items() if template.category == category}
        assert found == set(names.split())


@pytest.mark.parametrize("name", TEMPLATES)
def test_severity_is_monotone_in_distance_from_the_original(name, images):
    for kind, originals in images.items():
        found = distances(TEMPLATES[name], originals)
        assert found[0] > 0, kind
        assert all(nearer < further for nearer, further in pairwise(found)), (kind, found)


@pytest.mark.parametrize("name", TEMPLATES)
def test_results_stay_in_range_and_shape_and_leave_the_original_alone(name, images):
    for originals in images.values():
        before = originals.clone()
        for severity in (1, 5):
            result = TEMPLATES[name](originals, severity, seed=1)
            assert result.shape == originals.shape
            assert result.dtype == originals.dtype
            assert torch.isfinite(result).all()
            assert result.min() >= 0
            assert result.max() <= 1
        assert torch.equal(originals, before)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_seed_repeats_itself_and_no_global_state_is_touched(name, images):
    originals = images["32x32 RGB"]
    state = torch.random.get_rng_state()
    first = TEMPLATES[name](originals, 3, seed=7)
    assert torch.equal(first, TEMPLATES[name](originals, 3, seed=7))
    assert torch.equal(torch.random.get_rng_state(), state)
    fixed = {"defocus_blur", "zoom_blur", "gaussian_blur", "brightness", "contrast", "saturate", "pixelate"}
    fixed |= {"jpeg", "black_image", "stuck_frame"}
    assert torch.equal(first, TEMPLATES[name](originals, 3, seed=8)) == (name in fixed)


@pytest.mark.parametrize("name", TEMPLATES)
def test_rows_keep_their_place_so_labels_stay_true(name, images):
    """On average, a corrupted image is nearer to its own original than to the others."""
    originals = images["32x32 RGB"].flatten(1)
    result = TEMPLATES[name](images["32x32 RGB"], 1, seed=0).flatten(1)
    away = torch.cdist(result, originals)
    others = away[~torch.eye(len(away), dtype=torch.bool)]
    assert away.diagonal().mean() < others.mean()


@pytest.mark.parametrize("name", TEMPLATES)
def test_grey_images_may_come_without_a_channel_and_in_double_precision(name, images):
    originals = images["28x28 grey"]
    expected = TEMPLATES[name](originals, 2, seed=3)
    assert torch.equal(TEMPLATES[name](originals[:, 0], 2, seed=3), expected[:, 0])
    double = TEMPLATES[name](originals.double(), 2, seed=3)
    assert double.dtype == torch.float64
    # JPEG rounds, so single and double precision may take another step on a few coefficients.
    assert (double - expected).abs().mean() < (1e-3 if name == "jpeg" else 1e-5)


def test_bad_input_gets_one_clear_sentence():
    good = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    template = NOISE["gaussian"]
    for severity in (0, 6, 2.5):
        with pytest.raises(InputError, match="expected a severity from 1 to 5"):
            template(good, severity)
    with pytest.raises(InputError, match=r"values in \[0, 1\], got 0.* to 2"):
        template(good * 2 / good.max(), 1)
    with pytest.raises(InputError, match="values in"):
        template(torch.full_like(good, torch.nan), 1)
    with pytest.raises(InputError, match="expected floating-point images"):
        template((good * 255).byte(), 1)
    with pytest.raises(InputError, match="expected floating-point images"):
        template(torch.rand(4, 10), 1)
    with pytest.raises(InputError, match="at least 8x8"):
        template(torch.rand(2, 1, 7, 9), 1)
    with pytest.raises(InputError, match="at least one image"):
        template(good[:0], 1)


def test_gaussian_blur_agrees_with_scipy():
    from scipy.ndimage import gaussian_filter

    image = scenes(1, 1, 20, 31)
    expected = gaussian_filter(image[0, 0].numpy(), 1.7, mode="nearest", truncate=4.0)
    # Ours is cut at ceil(4 sigma), scipy's at round(4 sigma): weights beyond are below 1e-3 of the whole.
    assert abs(gaussian_blurred(image, 1.7)[0, 0].numpy() - expected).max() < 1e-4
