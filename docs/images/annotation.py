"""Draw annotation.png: the annotation page with a text on a desk and with an image on a phone.

python docs/images/annotation.py        (needs chromium, and the packages of the extra `dev`)
"""

import io
import shutil
import socket
import tempfile
import threading
from pathlib import Path

import torch
import uvicorn
from PIL import Image
from playwright.sync_api import sync_playwright

import assay
from assay.omniinput.annotation.items import AnnotationItems
from assay.omniinput.annotation.queue import AnnotationQueue
from assay.omniinput.annotation.store import AnnotationStore
from assay.web.annotation import AnnotationPage

HEIGHT = 620
TEXTS = ["Once upon a time there was a little girl who liked to play outside. One day she found", "she she"]


def address(
    folder: Path, name: str, inputs: torch.Tensor, values: int, texts: list[str] | None = None
) -> str:
    """The page for these inputs, served until this program ends."""
    rows = torch.arange(len(inputs)).numpy()
    items = AnnotationItems(rows, 0 * rows, 0 * rows + 1, inputs, texts, values, run=name)
    AnnotationStore.create(folder / name, items)
    store = AnnotationStore(folder / name, writing=True)
    app = AnnotationPage(AnnotationQueue(store)).application()
    place = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    threading.Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True).start()
    return f"http://127.0.0.1:{place.getsockname()[1]}/?token={store.token}"


def main() -> None:
    (train, _), _ = assay.data.digits()
    images = (train[:6, 0] * 16).round().long()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        pages = {
            740: address(Path(folder), "texts", torch.zeros(2, 5, dtype=torch.int64), 4, TEXTS),
            390: address(Path(folder), "images", images, 17, None),
        }
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        shots = []
        for width, page_address in pages.items():
            page = browser.new_page(viewport={"width": width, "height": HEIGHT})
            page.goto(page_address)
            page.fill("#name", "Ann")
            page.keyboard.press("Enter")
            page.wait_for_selector("body[data-state=ready] #shown")
            shots.append(Image.open(io.BytesIO(page.screenshot())))
        browser.close()
    whole = Image.new("RGB", (sum(shot.width for shot in shots) + 10, HEIGHT), "grey")
    whole.paste(shots[0], (0, 0))
    whole.paste(shots[1], (shots[0].width + 10, 0))
    whole.quantize(64).save(Path(__file__).with_suffix(".png"), optimize=True)


if __name__ == "__main__":
    main()
