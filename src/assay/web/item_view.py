"""What a person sees of an item: an image, a text, or the row of a table."""

import unicodedata
from dataclasses import dataclass

from assay.errors import InputError
from assay.omniinput.annotation.image import image_address
from assay.omniinput.annotation.items import AnnotationItems

SIDE = 320
"""Small images are enlarged by a whole number, so that all their pixels are equally large, up to this."""


@dataclass(frozen=True)
class ItemViews:
    """`views[place]`: what the template `item.html` needs to show an item.

    columns: the names of the values of a row; without them, the values are numbered.
    """

    items: AnnotationItems
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.columns is None:
            return
        if self.kind != "row":
            raise InputError(
                f"expected names of columns for rows only, got them for {self.kind}s; drop --columns"
            )
        wide = self.items.inputs.shape[1]
        if len(self.columns) != wide:
            raise InputError(f"expected a name for each of {wide} columns, got {len(self.columns)}")

    @property
    def kind(self) -> str:
        if self.items.is_image:
            return "image"
        return "text" if self.items.texts is not None else "row"

    def __getitem__(self, place: int) -> dict[str, object]:
        if self.kind == "image":
            return {"kind": "image"} | self._image(place)
        if self.kind == "text":
            return {"kind": "text", "text": visible(self.items.text(place))}
        values = self.items.inputs[place].flatten().tolist()
        names = self.columns or tuple(map(str, range(1, len(values) + 1)))
        return {
            "kind": "row",
            "cells": [(visible(name), value) for name, value in zip(names, values, strict=True)],
        }

    def _image(self, place: int) -> dict[str, object]:
        pixels = self.items.inputs[place].numpy()
        height, width = pixels.shape[-2:]
        times = max(1, SIDE // max(height, width))
        return {
            "address": image_address(pixels, self.items.values),
            "size": f"{height} by {width}", "enlarged": times > 1,
            "width": times * width, "height": times * height,
        }  # fmt: skip


def visible(text: str) -> str:
    """The text with control characters shown as symbols, so that nothing in it can act or hide.

    >>> visible("a\\x00b\\u202ec")
    'a\\u2400b\\ufffdc'
    """
    return "".join(_visible_letter(letter) for letter in text)


def _visible_letter(letter: str) -> str:
    if letter in "\n\t" or unicodedata.category(letter) not in ("Cc", "Cf", "Cs"):
        return letter
    return chr(0x2400 + ord(letter)) if ord(letter) < 0x20 else "\ufffd"
