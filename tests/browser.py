"""A real Chromium without a window, driven over its DevTools protocol through a pair of pipes: no port is opened.

`TUNER_CHROMIUM` names the program where it is not on the path.
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

PATIENCE: Final = 90.0
"""Seconds for anything to happen: the machine may be busy."""

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
    """Where the program is."""
    named = os.environ.get("TUNER_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One page, and all that it asked for and complained about since it was opened."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.requests: list[str] = []
        """Addresses, without those of data that the page itself holds."""
        self.complaints: list[str] = []
        """Errors and warnings of the console, and exceptions that nobody caught."""
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.tell(f"{domain}.enable")

    def tell(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol, and its answer."""
        return self._browser.tell(method, parameters, self._session)

    def look(self, size: tuple[int, int] = DESK, *, dark: bool = False, sharp: float = 1.0) -> None:
        """The window's size and the reader's wish for light or dark."""
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": sharp, "mobile": width < 600}
        self.tell("Emulation.setDeviceMetricsOverride", **metrics)
        wish = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.tell("Emulation.setEmulatedMedia", features=[wish])

    def open(self, url: str) -> None:
        """Go there, and wait until all that the page itself names is loaded."""
        self.listen()
        answer = self.tell("Page.navigate", url=url)
        if "errorText" in answer:
            raise AssertionError(f"{url}: {answer['errorText']}")
        events = self._browser.events[self._session]
        self._browser.until(lambda: any(each["method"] == "Page.loadEventFired" for each in events))
        self.listen()

    def ask(self, script: str) -> Any:
        """The value of a script, waited for where it is a promise."""
        answer = self.tell("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"].get("exception", {}).get("description", script))
        return answer["result"].get("value")

    def text(self) -> str:
        """What a reader sees."""
        return str(self.ask("document.body.innerText"))

    def until(self, script: str) -> None:
        """Wait until a script is true."""
        stop = time.monotonic() + PATIENCE
        while not self.ask(f"Boolean({script})"):
            if time.monotonic() > stop:
                raise AssertionError(f"never came true: {script}; the page reads {self.text()[:2000]}")
            time.sleep(0.1)

    def listen(self) -> None:
        """Note what has happened since."""
        self.ask("1")  # what was sent before the answer is read with it
        events = self._browser.events[self._session]
        taken = events.copy()
        events.clear()
        for event in taken:
            told = event["params"]
            if event["method"] == "Network.requestWillBeSent" and not told["request"]["url"].startswith("data:"):
                self.requests.append(told["request"]["url"])
            elif event["method"] == "Runtime.exceptionThrown":
                self.complaints.append(str(told["exceptionDetails"].get("exception", told["exceptionDetails"])))
            elif event["method"] == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
                self.complaints.append(" ".join(str(each.get("value", each)) for each in told["args"]))
            elif event["method"] == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
                self.complaints.append(told["entry"]["text"])

    def picture(self, *, whole: bool = False) -> bytes:
        """What is seen, as a PNG."""
        answer = self.tell("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])


class Browser:
    """A running Chromium."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._rest = b""
        self._number = 0
        self._told: dict[int, dict[str, Any]] = {}
        self.events: dict[str, list[dict[str, Any]]] = defaultdict(list)
        """What each page has told without being asked."""

    def page(self) -> Page:
        """A new one."""
        target = self.tell("Target.createTarget", {"url": "about:blank"})["targetId"]
        return Page(self, self.tell("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"])

    def tell(self, method: str, parameters: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        """A command, and its answer."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        self.until(lambda: number in self._told)
        answer = self._told.pop(number)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def until(self, seen: Callable[[], bool]) -> None:
        """Read until something was seen."""
        stop = time.monotonic() + PATIENCE
        while not seen():
            ready, _, _ = select.select([self._answers], [], [], max(0.0, stop - time.monotonic()))
            read = os.read(self._answers, 1 << 16) if ready else b""
            if not read:
                raise AssertionError("Chromium does not answer" if not ready else "Chromium has ended")
            *whole, self._rest = (self._rest + read).split(b"\0")
            for each in whole:
                message = json.loads(each)
                if "id" in message:
                    self._told[message["id"]] = message
                else:
                    self.events[message.get("sessionId", "")].append(message)


@contextmanager
def browser() -> Iterator[Browser]:
    """A Chromium with a profile of its own, gone afterwards with all its processes."""
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
