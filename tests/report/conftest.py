"""What tests of reports share: pages taken apart, fits to report on, a browser."""

from __future__ import annotations

import base64
import html.parser
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import pytest

from bayes_ecc import (
    ECC,
    BayesianECC,
    Bundle,
    ConvergenceWarning,
    DataWarning,
    Simulation,
    simulate,
)
from bayes_ecc.evaluation import EvaluationSettings, evaluate
from bayes_ecc.report import render_report
from bayes_ecc.splits import draw_split


class Page(html.parser.HTMLParser):
    """A page taken apart: elements with their attributes, and tables by the name of their box."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.words: list[str] = []
        self._row: list[str] | None = None
        self._open: list[str] = []
        self._name = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.elements.append((tag, told))
        if told.get("role") == "region" and told.get("aria-label"):
            self._name = str(told["aria-label"])
        elif tag == "table":
            self.tables[self._name] = []
        elif tag == "tr":
            self.tables[self._name].append([])
        elif tag in ("td", "th"):
            self.tables[self._name][-1].append("")
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if {"td", "th"} & set(self._open):
            self.tables[self._name][-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
SECONDS = 60  # until an answer must be there; a busy machine starts a browser slowly


def find_browser() -> str | None:
    """Find Chromium."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A browser with one page; what the page asks for, says and does wrong is written down.

    Attributes
    ----------
    requests : list of str
        Addresses that the page asked for, its own among them.
    complaints : list of str
        Errors and warnings: of scripts, of the console, of the page's policy.
    """

    def __init__(self, program: str) -> None:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._write = os.pipe()
        self._read, theirs_out = os.pipe()
        # the protocol's ends are file descriptors 3 and 4, which a shell can give it
        redirected = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", redirected, program, *FLAGS, f"--user-data-dir={self._folder.name}"],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self._loaded = False
        self.requests: list[str] = []
        self.complaints: list[str] = []
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self) -> None:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser that was started here."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._folder.cleanup()

    # ------------------------------------------------------------------ protocol

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + SECONDS
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                raise TimeoutError("The browser does not answer.")
            got = os.read(self._read, 1 << 20)
            if not got:
                raise RuntimeError("The browser has ended.")
            self._buffer += got
        message, self._buffer = self._buffer.split(b"\0", 1)
        found: dict[str, Any] = json.loads(message)
        self._note(found)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        method, told = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            address = told["request"]["url"]
            if not address.startswith("data:"):  # those are inside the file
                self.requests.append(address)
        elif method == "Runtime.exceptionThrown":
            found = told["exceptionDetails"]
            self.complaints.append(found.get("exception", {}).get("description", found["text"]))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(f"{told['type']}: {json.dumps(told['args'])[:500]}")
        elif method == "Log.entryAdded":
            self.complaints.append(f"{told['entry']['level']}: {told['entry']['text']}")
        elif method == "Page.javascriptDialogOpening":
            self.complaints.append(f"dialog: {told['message']}")
        elif method == "Page.loadEventFired":
            self._loaded = True

    # ------------------------------------------------------------------ what tests do

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open a file in a window of this size."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = "dark" if dark else "light"
        self.send(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self._loaded = False
        self.send("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + SECONDS
        while not self._loaded:
            self._receive(deadline)

    def run(self, script: str) -> Any:
        """Run a script in the page and give its value."""
        found = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(json.dumps(found["exceptionDetails"])[:2000])
        return found["result"].get("value")

    def press(self, key: str, *, code: int = 0, text: str = "") -> None:
        """Press a key of the keyboard and let it go."""
        told: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": code}
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **told)
        self.send("Input.dispatchKeyEvent", type="keyUp", **told)

    def type(self, text: str) -> None:
        """Type a text into what has the focus."""
        self.send("Input.insertText", text=text)

    def print(self, path: Path) -> None:
        """Print the page to a PDF file."""
        path.write_bytes(base64.b64decode(self.send("Page.printToPDF")["data"]))


# -------------------------------------------------------------------- fixtures


@pytest.fixture(scope="session")
def read_page() -> type[Page]:
    return Page


@pytest.fixture(scope="session")
def data() -> Simulation:
    return simulate(n_queries=150, n_models=5, n_clusters=3, rng=0)


@pytest.fixture(scope="session")
def em(data: Simulation) -> ECC:
    return ECC(3, embedding_weight=1.0, ridge=0.1, rng=7).fit(data.comparisons, data.embeddings)


@pytest.fixture(scope="session")
def sample(data: Simulation) -> Callable[..., BayesianECC]:
    """Fit a short Bayesian mixture; so few draws fail checks, which is to be reported."""

    def fit(**changed: Any) -> BayesianECC:
        settings: dict[str, Any] = {
            "concentration": 6.0,
            "probe_power": 3.0,
            "chains": 2,
            "tune": 60,
            "draws": 60,
            "cores": 1,
            "rng": 0,
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return BayesianECC(3, **{**settings, **changed}).fit(data.comparisons, data.embeddings)

    return fit


@pytest.fixture(scope="session")
def bayes(sample: Callable[..., BayesianECC]) -> BayesianECC:
    return sample()


@pytest.fixture(scope="session")
def evaluation(data: Simulation) -> dict[str, Any]:
    bundle = data.bundle()
    settings = EvaluationSettings(n_clusters=3, embedding_weight=1.0)
    splits = [draw_split(bundle, seed=seed) for seed in (0, 1)]
    return evaluate(
        bundle, splits, ["global", "ecc"], settings, protocol={"seeds": [0, 1], "frozen": None}
    )


SIGNALS = ("embedding", "probe", "embedding+probe")
HOSTILE = [
    "<script>window.hit=1</script>",
    '"><img src=x onerror="window.hit=1">',
    "</script></style><svg onload=window.hit=1>",
    "' onmouseover='window.hit=1",
    "$\\frac{1}{0}$ a_b^c",
    "safe\u202etxt.exe",
    "{{7*7}}<!--",
]


@pytest.fixture(scope="session")
def hostile_names() -> list[str]:
    return HOSTILE


@pytest.fixture(scope="session")
def hostile() -> str:
    rng = np.random.default_rng(0)
    ids = [f"q<{i}>&amp;" for i in range(70)]
    texts = [HOSTILE[i % 7] + str(i) for i in range(70)]
    texts[3], texts[4] = "long " * 2000, "nul\x00 bell\x07 \u2067 \x1b[31m"
    labels = np.where(np.arange(70) % 2, "<u>a</u>", '"><b>')
    embeddings = rng.normal(size=(70, 4))
    scores = pd.DataFrame(embeddings @ rng.normal(size=(4, 7)), columns=HOSTILE)
    scores.insert(0, "query_id", ids)
    queries = pd.DataFrame({"query_id": ids, "text": texts, "<i>label</i>" * 40: labels})
    bundle = Bundle("<b>evil</b>", queries, scores=scores, embeddings=embeddings)
    comparisons = bundle.draw_comparisons(rng=0)
    fit = ECC(3, embedding_weight=1.0, rng=0, max_iter=500).fit(
        comparisons, bundle.embeddings_for(comparisons.queries)
    )
    fit.posterior_.attrs["command"] = "</pre><script>window.hit=1</script>"
    numbers = {"gain": {"mean": 1.0}, "ece": {"mean": 0.1}, "gain_interval": [0.0, 2.0]}
    evaluation = {
        "methods": {name: dict.fromkeys(SIGNALS, numbers) for name in HOSTILE},
        "protocol": {
            "bundle": HOSTILE[0],
            "counts": [{"seed": HOSTILE[0], "probes": HOSTILE[1]}],
            "versions": {HOSTILE[0]: HOSTILE[1]},
            "seeds": [HOSTILE[2]],
            "ridge": HOSTILE[3],
        },
        "global": {"loss": 0.5},
    }
    with pytest.warns(DataWarning, match="of the data set '<script>"):
        return render_report(
            fit,
            bundles=bundle,
            evaluation=evaluation,
            title=HOSTILE[0],
            typical=70,
            command=HOSTILE[1],
        )


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start Chromium, or skip (fail where BAYES_ECC_REQUIRE_BROWSER is set)."""
    program = find_browser()
    if program is None:
        message = f"no browser: none of {', '.join(NAMES)} is installed"
        if os.environ.get("BAYES_ECC_REQUIRE_BROWSER", "0") not in ("", "0"):
            pytest.fail(message)
        pytest.skip(message)
    with Browser(program) as started:
        yield started
