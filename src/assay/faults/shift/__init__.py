"""Distributional shift: the scene, the weather or the way the image was stored differs from training."""

from assay.faults.shift.colour import brightness, contrast, saturate
from assay.faults.shift.compression import jpeg, pixelate
from assay.faults.shift.fog import fog
from assay.faults.shift.frost import frost
from assay.faults.shift.motion import motion_blur, rotated
from assay.faults.shift.snow import snow
from assay.faults.template import family

SHIFT = family(
    "shift",
    {
        "snow": snow,
        "fog": fog,
        "frost": frost,
        "brightness": brightness,
        "contrast": contrast,
        "saturate": saturate,
        "rotated": rotated,
        "motion_blur": motion_blur,
        "pixelate": pixelate,
        "jpeg": jpeg,
    },
)

__all__ = ["SHIFT"]
