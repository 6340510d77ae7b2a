"""Headless Chromium driven over its debugging pipe (Chrome DevTools Protocol): no package, no port.

with Browser() as browser:
    page = browser.open("http://127.0.0.1:8000/")
    page.value("document.title")
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def chromium():
    """Its path, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--remote-debugging-pipe"]

    def __enter__(self):
        self.profile = tempfile.mkdtemp(prefix="tpsim-browser-")
        commands, self.commands = os.pipe()
        self.answers, answers = os.pipe()
        # Chromium reads descriptor 3 and writes 4.
        self.child = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{commands} 4>&{answers}', chromium(), *self.FLAGS,
             f"--user-data-dir={self.profile}"],
            pass_fds=(commands, answers), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(answers)
        self.buffer, self.number, self.events = b"", 0, []
        return self

    def __exit__(self, *_):
        self.child.terminate()
        try:
            self.child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        os.close(self.commands)
        os.close(self.answers)
        shutil.rmtree(self.profile, ignore_errors=True)

    def read(self, timeout):
        """The next message, or None where none comes in time."""
        end = time.monotonic() + timeout
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.answers], [], [], max(0, end - time.monotonic()))
            if not ready:
                return None
            data = os.read(self.answers, 1 << 20)
            if not data:
                raise RuntimeError("the browser has gone")
            self.buffer += data
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def ask(self, method, session=None, timeout=60, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + timeout
        while True:
            answer = self.read(max(0, end - time.monotonic()))
            if answer is None:
                raise RuntimeError(f"{method}: no answer")
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, url, width=1400, height=2000, dark=False):
        return Page(self, url, width, height, dark)


class Page:
    def __init__(self, browser, url, width, height, dark):
        self.browser = browser
        target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url=url)

    def ask(self, method, **parameters):
        return self.browser.ask(method, session=self.session, **parameters)

    def value(self, expression):
        """What a JavaScript expression is, where it is JSON."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, expression, timeout=30):
        """Until it is true; its value. What fails while the page is loaded is asked again."""
        end, wrong = time.monotonic() + timeout, ""
        while time.monotonic() < end:
            try:
                if value := self.value(expression):
                    return value
            except RuntimeError as error:
                wrong = f" ({error})"
            time.sleep(0.1)
        raise RuntimeError(f"never true: {expression}{wrong}")

    def picture(self, file):
        with open(file, "wb") as out:
            out.write(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    def seen(self, method):
        """Parameters of the events of that name so far."""
        while (event := self.browser.read(0)) is not None:
            self.browser.events.append(event)
        return [e["params"] for e in self.browser.events if e.get("method") == method and e.get("sessionId") == self.session]

    def requested(self):
        return [e["request"]["url"] for e in self.seen("Network.requestWillBeSent")]

    def complaints(self):
        """What its console said and what went wrong in it."""
        return (self.seen("Runtime.exceptionThrown") + self.seen("Runtime.consoleAPICalled") +
                [e for e in self.seen("Log.entryAdded") if e["entry"]["level"] in ("error", "warning")])
