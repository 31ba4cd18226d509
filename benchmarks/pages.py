"""Pages of models in a real browser: how large they are, and how long one waits.

    python -m benchmarks.pages               MiniLM, a training step, 36,000 nodes
    python -m benchmarks.pages minilm

Every panel is opened, every stage shown, a node searched, a kernel's lines linked; what the console
says is an error.  Pictures of all panels lie in build/pictures.  Needs playwright and chromium.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

PICTURES = Path(__file__).parents[1] / "build" / "pictures"
TABS = ("graph", "kernels", "memory", "timeline")
PANNED = """async () => {
  app.picture.all(true);
  app.picture.camera.scale = 0.4;
  const times = [], painted = [], paint = app.picture.paint.bind(app.picture);
  app.picture.paint = () => {
    const start = performance.now();
    paint();
    painted.push(performance.now() - start);
  };
  let last = performance.now();
  for (let k = 0; k < 90; k++) {
    app.picture.camera.y += 12;
    app.picture.draw();
    await new Promise(requestAnimationFrame);
    times.push(performance.now() - last);
    last = performance.now();
  }
  const most = found => found.sort((a, b) => a - b)[Math.floor(found.length * 0.9)];
  return [most(times), most(painted)];
}"""
TIMED = (
    "async act => { const t = performance.now(); await eval(act)(); return performance.now() - t }"
)


def minilm() -> Any:
    import graphc as gc
    from benchmarks import cases

    ids, mask, weights = cases.minilm_arguments(np.random.default_rng(0))
    return gc.view(gc.compile(cases.encoder(gc.erf)), ids, mask, weights, runs=5)


def training() -> Any:
    import graphc as gc
    from benchmarks import cases

    rng = np.random.default_rng(0)
    params = [cases.transformer_parameters(rng, 256, 1024) for _ in range(3)]
    x = cases.normal(rng, 4, 64, 256)

    def loss(params: Any, x: Any, target: Any) -> Any:
        for q in params:
            x = cases.transformer(x, q)
        return ((x - target) ** 2).mean()

    @gc.compile
    def step(params: Any, x: Any, target: Any) -> Any:
        value, slopes = gc.value_and_grad(loss)(params, x, target)
        moved = [{k: q[k] - 0.01 * g[k] for k in q} for q, g in zip(params, slopes)]
        return moved, value

    return gc.view(step, params, x, x, runs=5)


def wide() -> Any:
    import graphc as gc
    from benchmarks import scale

    return gc.compile(scale.wide(36_000)).view(*scale.arguments())


MODELS: dict[str, Callable[[], Any]] = {"minilm": minilm, "training": training, "wide": wide}


def drive(browser: Any, name: str, text: str, folder: Path) -> dict[str, Any]:
    """What one does in a page, and what it takes in milliseconds."""
    path = folder / f"{name}.html"
    path.write_text(text)
    page, said = browser.new_page(viewport={"width": 1400, "height": 860}), list[str]()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    ready = []
    for _ in range(5):
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        ready.append(float(page.evaluate("document.documentElement.dataset.ready")))
    opened = {}
    for tab in TABS:
        opened[tab] = page.evaluate(TIMED, f"() => app.tab('{tab}')")
        page.wait_for_timeout(200)
        page.screenshot(path=PICTURES / f"{name}-{tab}.png")
    page.evaluate("app.tab('graph')")
    count = page.evaluate("app.story.stages.length")
    steps = [page.evaluate(TIMED, f"() => app.stage({k})") for k in range(count)]
    page.evaluate("app.stage(0); app.picture.fit()")
    found = page.evaluate(TIMED, "() => { window.hits = app.find('matmul').length }")
    assert page.evaluate("hits") > 0
    page.evaluate("app.node(app.find('matmul')[0].path)")
    page.screenshot(path=PICTURES / f"{name}-found.png")
    frame, painted = page.evaluate(PANNED)
    page.close()
    if said:
        raise SystemExit(f"{name}: {said[:3]}")
    waits = {
        "first paint": median(ready),
        "worst first paint": max(ready),
        "worst stage": max(steps),
    }
    moved = {"frame of 9 in 10": frame, "painting it": painted}
    return {"bytes": len(text), **waits, "search": found, **moved, **opened}


def main(names: list[str]) -> None:
    from playwright.sync_api import sync_playwright

    PICTURES.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium")
    if chromium is None:
        print("pages: skipped, chromium is not installed: apt-get install chromium")
        return
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        for name in names or list(MODELS):
            text = MODELS[name]().html
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            found = drive(browser, name, text, Path(folder))
            browser.close()
            told = ", ".join(f"{what} {value:.1f} ms" for what, value in list(found.items())[1:])
            print(f"{name}: {found['bytes']:,} bytes; {told}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
