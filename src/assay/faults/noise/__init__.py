"""Noise: inputs degraded by small sensor failures or the surroundings."""

from assay.faults.noise.blur import defocus_blur, gaussian_blur, zoom_blur
from assay.faults.noise.sensor import gaussian, impulse, shot, speckle
from assay.faults.noise.spatter import spatter
from assay.faults.noise.warp import elastic_transform, glass_blur
from assay.faults.template import family

NOISE = family(
    "noise",
    {
        "gaussian": gaussian,
        "shot": shot,
        "impulse": impulse,
        "speckle": speckle,
        "spatter": spatter,
        "defocus_blur": defocus_blur,
        "glass_blur": glass_blur,
        "zoom_blur": zoom_blur,
        "gaussian_blur": gaussian_blur,
        "elastic_transform": elastic_transform,
    },
)

__all__ = ["NOISE"]
