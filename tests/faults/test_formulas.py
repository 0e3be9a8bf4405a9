"""Each fault against an independent answer: a closed form, another library, or the statistics it promises."""

import colorsys
import io
import math

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage, stats

from assay.faults import ANOMALY, NOISE, SHIFT
from assay.faults.filters import convolved, disk, motion_blurred, smooth_noise, warped
from assay.faults.shift.plasma import plasma

GREY = torch.full((50, 1, 32, 32), 0.5)


@pytest.fixture(scope="module")
def coloured():
    return torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def photo(side=64):
    generator = torch.Generator().manual_seed(1)
    light = smooth_noise((3, 1, side, side), 2.0, generator)
    return torch.sigmoid(light + 0.3 * smooth_noise((3, 3, side, side), 8.0, generator))


def test_gaussian_and_speckle_noise_have_the_published_spread():
    # 51,200 draws: the standard error of a standard deviation is 0.3 % of it.
    assert float((NOISE["gaussian"](GREY, 1) - GREY).std()) == pytest.approx(0.08, rel=0.02)
    assert float((NOISE["speckle"](GREY, 2) - GREY).std()) == pytest.approx(0.2 * 0.5, rel=0.02)


def test_shot_noise_counts_photons_as_poisson_does():
    for severity, c in enumerate((60, 25, 12, 5, 3), start=1):
        counts = (NOISE["shot"](GREY * 0.4, severity) * c).flatten()
        assert torch.allclose(counts, counts.round(), atol=1e-3)
        kept = np.bincount(counts.round().int().numpy(), minlength=c + 1)
        expected = len(counts) * stats.poisson.pmf(np.arange(c + 1), 0.2 * c)
        # White is white: whatever is beyond c photons is cut to the range.
        expected[c] += len(counts) * stats.poisson.sf(c, 0.2 * c)
        likely = expected > 5
        statistic = ((kept - expected)[likely] ** 2 / expected[likely]).sum()
        assert statistic < stats.chi2.ppf(0.9999, likely.sum() - 1)


def test_impulses_are_black_and_white_in_equal_shares():
    result = NOISE["impulse"](GREY, 5)
    for value in (0.0, 1.0):
        assert float((result == value).double().mean()) == pytest.approx(0.27 / 2, rel=0.05)
    assert float((result == 0.5).double().mean()) == pytest.approx(0.73, rel=0.02)


def test_brightness_and_saturation_agree_with_the_standard_library(coloured):
    pixels = coloured.permute(0, 2, 3, 1).reshape(-1, 3).double().numpy()
    hsv = np.array([colorsys.rgb_to_hsv(*pixel) for pixel in pixels])
    brighter = [colorsys.hsv_to_rgb(h, s, min(v + 0.3, 1)) for h, s, v in hsv]
    richer = [colorsys.hsv_to_rgb(h, min(5 * s + 0.1, 1), v) for h, s, v in hsv]
    for result, expected in (
        (SHIFT["brightness"](coloured, 3), brighter),
        (SHIFT["saturate"](coloured, 4), richer),
    ):
        found = result.permute(0, 2, 3, 1).reshape(-1, 3).numpy()
        assert np.abs(found - np.array(expected)).max() < 1e-5


def test_saturating_a_grey_pixel_turns_it_red_as_hue_zero_does():
    result = SHIFT["saturate"](torch.full((1, 3, 8, 8), 0.5), 5)
    assert torch.allclose(result[0, :, 0, 0], torch.tensor(colorsys.hsv_to_rgb(0, 0.2, 0.5)), atol=1e-6)


def test_contrast_keeps_the_mean_and_scales_the_spread(coloured):
    result = SHIFT["contrast"](coloured, 2)
    assert torch.allclose(result.mean(dim=(2, 3)), coloured.mean(dim=(2, 3)), atol=1e-6)
    assert torch.allclose(result.std(dim=(2, 3)), 0.3 * coloured.std(dim=(2, 3)), atol=1e-6)


def test_jpeg_is_what_pillow_reads_back():
    for images in (photo(), photo()[:, :1], photo(40)):
        eight_bit = (images * 255).round() / 255
        for severity, quality in ((1, 25), (5, 7)):
            found = SHIFT["jpeg"](eight_bit, severity)
            for image, ours in zip(eight_bit, found, strict=True):
                pixels = (image * 255).round().byte().permute(1, 2, 0).numpy()
                buffer = io.BytesIO()
                Image.fromarray(pixels.squeeze()).save(buffer, "JPEG", quality=quality)
                read = np.asarray(Image.open(buffer)).reshape(pixels.shape) / 255
                lost = np.abs(read - pixels / 255).mean()
                away = np.abs(read - ours.permute(1, 2, 0).numpy()).mean()
                # Pillow rounds to whole levels; of colour it also interpolates the halved chrominance, where
                # ours is repeated (both are JPEG). What is lost to compression must be far more than that.
                assert away < (0.003 if len(image) == 1 else 0.4 * lost)


def test_pixels_of_a_cell_share_the_mean_of_its_area():
    image = torch.rand(1, 1, 70, 70, generator=torch.Generator().manual_seed(0))
    for severity, (fresh, period) in enumerate([(3, 5), (3, 7), (2, 5), (3, 10), (3, 14)], start=1):
        # With every pixel cut into fresh x fresh, a cell of period / fresh pixels is period x period of them.
        fine = image.repeat_interleave(fresh, dim=2).repeat_interleave(fresh, dim=3)
        centres = ((torch.arange(70) + 0.5) * fresh / period).long()
        expected = torch.nn.functional.avg_pool2d(fine, period)[:, :, centres][..., centres]
        assert torch.allclose(SHIFT["pixelate"](image, severity), expected, atol=1e-6)


def test_rotation_agrees_with_a_quarter_turn_and_keeps_to_its_bound():
    image = photo(33)
    height, width = image.shape[-2:]
    x = torch.arange(width) - (width - 1) / 2
    y = (torch.arange(height) - (height - 1) / 2)[:, None]
    turned = warped(image, -y - x + torch.zeros(1, height, width), x - y + torch.zeros(1, height, width))
    assert torch.allclose(turned, image.rot90(1, dims=(2, 3)), atol=1e-4)
    # A bright bar through the centre of 60 images: the angle of its image lies within the bound, both ways.
    bars = torch.zeros(60, 1, 65, 65)
    bars[:, :, 32] = 1.0
    result = SHIFT["rotated"](bars, 5)[:, 0]
    rise = result[:, :, 52].argmax(dim=1) - result[:, :, 12].argmax(dim=1)
    angles = torch.atan2(rise.double(), torch.tensor(40.0)) * 180 / math.pi
    assert angles.abs().min() > 13
    assert angles.abs().max() < 32
    assert (angles > 0).any()
    assert (angles < 0).any()


def test_disks_have_their_area_and_convolution_agrees_with_scipy():
    for radius in (0.3, 0.9, 2.6, 10.0):
        kernel = disk(radius)
        assert float(kernel.sum()) == pytest.approx(1, abs=1e-6)
        if radius > 1:
            # The centre is covered whole, so it holds one pixel's share of the area; 16x16 points per pixel.
            centre = float(kernel[len(kernel) // 2, len(kernel) // 2])
            assert centre == pytest.approx(1 / (math.pi * radius**2), rel=0.01)
    image = photo(24)
    kernel = disk(2.6)
    expected = np.stack(
        [ndimage.convolve(plane, kernel.numpy(), mode="nearest") for plane in image[0].numpy()]
    )
    assert np.abs(convolved(image[:1], kernel)[0].numpy() - expected).max() < 1e-5


def test_motion_blur_smears_along_its_angle_and_keeps_the_light():
    point = torch.zeros(2, 1, 65, 65)
    point[:, :, 32, 32] = 1
    result = motion_blurred(point, 12.0, 8.0, torch.tensor([0.0, math.pi / 2]))
    assert torch.allclose(result.sum(dim=(1, 2, 3)), torch.ones(2), atol=1e-4)
    along = result[0, 0, 32, 32:45].sum()
    assert along == pytest.approx(1.0, abs=0.1)
    # Half a pixel at the highest frequency is not the same along rows and columns of a real transform.
    assert torch.allclose(result[0, 0], result[1, 0].T, atol=1e-3)


def test_spatter_covers_the_share_it_promises():
    dark = torch.zeros(40, 1, 64, 64)
    for severity, share in ((1, 0.03), (2, 0.145), (3, 0.24)):
        wet = (NOISE["spatter"](dark, severity) > 0).double().mean()
        assert float(wet) == pytest.approx(share, rel=0.15)


def test_fog_brings_every_image_back_under_its_own_maximum(coloured):
    dim = coloured * 0.6
    assert (SHIFT["fog"](dim, 5).amax(dim=(1, 2, 3)) <= dim.amax(dim=(1, 2, 3)) + 1e-6).all()


def test_plasma_fills_its_range_and_slower_decay_is_rougher():
    generator = torch.Generator().manual_seed(0)
    smooth, rough = plasma(20, (32, 48), 2.0, generator), plasma(20, (32, 48), 1.3, generator)
    for maps in (smooth, rough):
        assert maps.shape == (20, 1, 32, 48)
        assert torch.equal(maps.amin(dim=(1, 2, 3)), torch.zeros(20))
        assert torch.equal(maps.amax(dim=(1, 2, 3)), torch.ones(20))
    assert rough.diff(dim=3).abs().mean() > 1.5 * smooth.diff(dim=3).abs().mean()


def test_a_broken_sensor_is_broken_in_the_same_place_in_every_image():
    white, black = torch.ones(5, 3, 20, 20), torch.zeros(5, 3, 20, 20)
    stuck = (ANOMALY["pixel_trap"](white, 3) == 0) | (ANOMALY["pixel_trap"](black, 3) == 1)
    assert float(stuck.double().mean()) == pytest.approx(0.2)
    assert (stuck == stuck[:1, :1]).all()
    more = (ANOMALY["pixel_trap"](white, 4) == 0) | (ANOMALY["pixel_trap"](black, 4) == 1)
    assert (more | ~stuck).all()
    dead = ANOMALY["dead_rows"](white, 3)
    assert set(dead.unique().tolist()) == {0.0, 1.0}
    assert float(dead.mean()) == pytest.approx(0.5)
    added = ANOMALY["row_add_logic"](torch.full((5, 1, 20, 20), 0.5), 3) - 0.5
    assert (added == added[:1, :, :, :1]).all()
    assert int((added[0, 0, :, 0] != 0).sum()) == 10


def test_shifted_rows_hold_the_same_pixels_and_a_black_image_none(coloured):
    shifted = ANOMALY["shifted_pixel"](coloured, 5)
    assert torch.equal(shifted.sort(dim=3).values, coloured.sort(dim=3).values)
    assert not (shifted == coloured).all(dim=3).any()
    assert torch.equal(ANOMALY["black_image"](coloured, 5), torch.zeros_like(coloured))


def test_a_stuck_frame_is_the_first_image_from_below(coloured):
    height = coloured.shape[2]
    for severity in range(1, 6):
        frozen = ANOMALY["stuck_frame"](coloured, severity)
        fresh = height - round(height * severity / 5)
        assert torch.equal(frozen[:, :, :fresh], coloured[:, :, :fresh])
        assert torch.equal(frozen[:, :, fresh:], coloured[:1, :, fresh:].expand_as(frozen[:, :, fresh:]))
    assert torch.equal(ANOMALY["stuck_frame"](coloured[:1], 5), coloured[:1])
