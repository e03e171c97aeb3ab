"""Chromium without a window, spoken to over a pipe in its DevTools protocol."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

TIMEOUT = 120.0


def find() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One page. Keeps what the page complained of, asked the network for, or opened as a dialog."""

    def __init__(self, program: str) -> None:
        self.home = tempfile.TemporaryDirectory(
            prefix="octavo-chromium-", ignore_cleanup_errors=True
        )
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()

        def place() -> None:  # the browser reads its file 3 and writes its file 4
            read = fcntl.fcntl(theirs_in, fcntl.F_DUPFD, 10)
            write = fcntl.fcntl(theirs_out, fcntl.F_DUPFD, 10)
            os.dup2(read, 3)
            os.dup2(write, 4)

        options = ["--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.home.name}"]
        options += ["--disable-gpu", "--disable-extensions", "--no-first-run", "--mute-audio"]
        options += ["--disable-background-networking", "--disable-dev-shm-usage"]
        if os.geteuid() == 0:  # its sandbox refuses root, and the page is our own
            options.append("--no-sandbox")
        self.process = subprocess.Popen(
            [program, *options, "about:blank"],
            preexec_fn=place,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": self.home.name},
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.reads, self.writes = ours_in, ours_out
        self.buffer = b""
        self.number = 0
        self.session: str | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.dialogs: list[str] = []
        self.loaded = False
        self._attach()

    def _attach(self) -> None:
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _message(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.reads], [], [], left)[0]:
                raise TimeoutError(f"chromium said nothing for {TIMEOUT:.0f} s")
            read = os.read(self.reads, 1 << 20)
            if not read:
                raise RuntimeError("chromium ended by itself")
            self.buffer += read
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        name, parameters = event.get("method", ""), event.get("params", {})
        if name == "Runtime.exceptionThrown":
            self.complaints.append(parameters["exceptionDetails"]["text"])
        elif name == "Runtime.consoleAPICalled":
            self.complaints.append(f"console.{parameters['type']}")
        elif name == "Log.entryAdded":
            self.complaints.append(parameters["entry"]["text"])
        elif name == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif name == "Page.javascriptDialogOpening":
            self.dialogs.append(parameters["message"])
            self._send("Page.handleJavaScriptDialog", {"accept": True})
        elif name == "Page.loadEventFired":
            self.loaded = True

    def _send(self, method: str, parameters: dict[str, Any]) -> int:
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.writes, data) :]
        return self.number

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = self._send(method, parameters)
        deadline = time.monotonic() + TIMEOUT
        while True:
            message = self._message(deadline)
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]
            self._note(message)

    def open(self, path: Path) -> None:
        self.complaints, self.requests, self.dialogs, self.loaded = [], [], [], False
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + TIMEOUT
        while not self.loaded:
            self._note(self._message(deadline))

    def size(self, width: int, height: int = 800) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def media(self, kind: str, scheme: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", media=kind, features=[feature])

    def evaluate(self, expression: str) -> Any:
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"]["description"])
        return result["result"].get("value")

    def close(self) -> None:
        self.session = None
        try:
            self.call("Browser.close")
        except (OSError, RuntimeError, TimeoutError):
            self.process.kill()
        self.process.wait(timeout=TIMEOUT)
        os.close(self.reads)
        os.close(self.writes)
        self.home.cleanup()
