"""A headless Chromium, controlled over the DevTools protocol through a pair of pipes (no port is opened).

`TUNER_CHROMIUM` names the program if it is not on the path.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any, Final

TIMEOUT_SECONDS: Final = 90.0
"""Time limit of every wait; generous, for busy machines."""

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")

FLAGS: Final = (
    *("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--mute-audio"),
    *("--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--hide-scrollbars", "--force-color-profile=srgb"),
)

_PIPES: Final = (
    "import fcntl, os, sys\n"
    "ends = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3]]\n"
    "os.dup2(ends[0], 3); os.dup2(ends[1], 4)\n"
    "os.execvp(sys.argv[3], sys.argv[3:])\n"
)
"""Chromium reads commands from descriptor 3 and answers on 4."""

PHONE: Final = (375, 812)
DESK: Final = (1280, 900)


def chromium() -> str | None:
    """Return the path of Chromium, if it is installed."""
    named = os.environ.get("TUNER_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One page, with its network requests and console errors since it was opened."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.requests: list[str] = []
        """Requested URLs, except data URLs."""
        self.complaints: list[str] = []
        """Console errors and warnings, and uncaught exceptions."""
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the protocol and return its answer."""
        return self._browser.send(method, parameters, self._session)

    def resize(self, size: tuple[int, int] = DESK, *, dark: bool = False) -> None:
        """Set the window size and the preferred colour scheme."""
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1.0, "mobile": width < 600}
        self.send("Emulation.setDeviceMetricsOverride", **metrics)
        preference = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[preference])

    def open(self, url: str) -> None:
        """Open a URL and wait until the page has loaded."""
        self.drain_events()
        answer = self.send("Page.navigate", url=url)
        if "errorText" in answer:
            raise AssertionError(f"{url}: {answer['errorText']}")
        events = self._browser.events[self._session]
        self._browser.until(lambda: any(event["method"] == "Page.loadEventFired" for event in events))
        self.drain_events()

    def evaluate(self, script: str) -> Any:
        """Return the value of a script; await it if it is a promise."""
        answer = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"].get("exception", {}).get("description", script))
        return answer["result"].get("value")

    def text(self) -> str:
        """Return the visible text."""
        return str(self.evaluate("document.body.innerText"))

    def until(self, script: str) -> None:
        """Wait until a script evaluates to true."""
        stop = time.monotonic() + TIMEOUT_SECONDS
        while not self.evaluate(f"Boolean({script})"):
            if time.monotonic() > stop:
                raise AssertionError(f"timed out waiting for {script}; the page shows {self.text()[:2000]}")
            time.sleep(0.1)

    def drain_events(self) -> None:
        """Record the requests and errors since the last call."""
        self.evaluate("1")  # events sent before the answer arrive with it
        events = self._browser.events[self._session]
        taken = events.copy()
        events.clear()
        for event in taken:
            parameters = event["params"]
            if event["method"] == "Network.requestWillBeSent" and not parameters["request"]["url"].startswith("data:"):
                self.requests.append(parameters["request"]["url"])
            elif event["method"] == "Runtime.exceptionThrown":
                self.complaints.append(
                    str(parameters["exceptionDetails"].get("exception", parameters["exceptionDetails"]))
                )
            elif event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
                self.complaints.append(
                    " ".join(str(argument.get("value", argument)) for argument in parameters["args"])
                )
            elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                self.complaints.append(parameters["entry"]["text"])

    def screenshot(self) -> bytes:
        """Return the visible part of the page as a PNG."""
        answer = self.send("Page.captureScreenshot", format="png")
        return base64.b64decode(answer["data"])


class Browser:
    """A running Chromium."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._rest = b""
        self._number = 0
        self._answers_by_id: dict[int, dict[str, Any]] = {}
        self.events: dict[str, list[dict[str, Any]]] = defaultdict(list)
        """Events of each page."""

    def page(self) -> Page:
        """Open a new page."""
        target = self.send("Target.createTarget", {"url": "about:blank"})["targetId"]
        return Page(self, self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"])

    def send(self, method: str, parameters: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        """Send a command and return its answer."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        self.until(lambda: number in self._answers_by_id)
        answer = self._answers_by_id.pop(number)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def until(self, condition: Callable[[], bool]) -> None:
        """Read messages until a condition holds."""
        stop = time.monotonic() + TIMEOUT_SECONDS
        while not condition():
            ready, _, _ = select.select([self._answers], [], [], max(0.0, stop - time.monotonic()))
            read = os.read(self._answers, 1 << 16) if ready else b""
            if not read:
                raise AssertionError("Chromium does not respond" if not ready else "Chromium has exited")
            *whole, self._rest = (self._rest + read).split(b"\0")
            for line in whole:
                message = json.loads(line)
                if "id" in message:
                    self._answers_by_id[message["id"]] = message
                else:
                    self.events[message.get("sessionId", "")].append(message)


@contextmanager
def browser() -> Iterator[Browser]:
    """Run Chromium with a temporary profile; terminate its process group afterwards."""
    program = chromium()
    assert program is not None, "no Chromium: apt-get install chromium"
    reads, commands = os.pipe()
    answers, writes = os.pipe()
    with TemporaryDirectory(prefix="tuner-chromium-", ignore_cleanup_errors=True) as profile:
        flags = [*FLAGS, f"--user-data-dir={profile}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        process = subprocess.Popen(
            [sys.executable, "-c", _PIPES, str(reads), str(writes), program, *flags],
            pass_fds=(reads, writes),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "TMPDIR": profile},  # for the folder of its socket
        )
        try:
            os.close(reads)
            os.close(writes)
            yield Browser(commands, answers)
        finally:
            os.close(commands)
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            os.close(answers)
