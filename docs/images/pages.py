"""Draw report.png and check.png: the tops of the pages that `assay demo` and `assay check` write.

python docs/images/pages.py        (a minute; needs chromium, and the packages of the extra `dev`)
"""

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
MODELS = """
import assay
from assay.demo.networks import small_cnn, trained


def network():
    return trained(small_cnn, assay.data.digits()[0])
"""
PAGES = {
    "report": ("demo", "report.html", 900),
    "check": ("check models:network --data digits --low 0 --high 1", "assay-check/report.html", 660),
}
"""Picture -> the command, its page, and how many pixels of it are shown."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        (Path(folder) / "models.py").write_text(MODELS)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (command, written, height) in PAGES.items():
            subprocess.run([sys.executable, "-m", "assay", *command.split()], cwd=folder, check=True)
            page = browser.new_page(viewport={"width": 1000, "height": height})
            page.goto((Path(folder) / written).as_uri())
            shot = Image.open(io.BytesIO(page.screenshot()))
            shot.quantize(128).save(HERE / f"{name}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
