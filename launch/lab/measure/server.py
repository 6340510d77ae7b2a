"""One SGLang server: started, waited for, asked about itself, and ended with all its processes."""

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import client

HEALTH_SECONDS = 30   # for one answer: the first one compiles
END_SECONDS = 10      # between asking the processes to end and ending them
LINES_SHOWN = 12      # of the log of a server that did not start
DECODE = re.compile(r"Decode batch.*gen throughput \(token/s\)")


class ServerFailed(Exception):
    """One sentence, and the end of the log."""


class Server:
    """`spec`: a plan.ServerSpec. The log of a server that starts again is appended to the old one."""

    def __init__(self, spec, output, port, gpus, packages):
        self.spec, self.port, self.gpus = spec, port, gpus
        self.log_path = os.path.join(output, spec.name + ".log")
        self.process = None
        self.environment = dict(os.environ, TOKENIZERS_PARALLELISM="false", NO_PROXY="*", no_proxy="*", **spec.environment)
        if gpus:
            self.environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        if spec.is_local():
            self.environment.setdefault("HF_HUB_OFFLINE", "1")
            self.environment.setdefault("TRANSFORMERS_OFFLINE", "1")
        if packages:
            self.environment["PYTHONPATH"] = os.pathsep.join([packages, self.environment.get("PYTHONPATH", "")]).rstrip(os.pathsep)

    def command(self):
        launch = shlex.split(self.spec.server_command or "") or [sys.executable, "-m", "sglang.launch_server"]
        return launch + ["--model-path", self.spec.model_path, "--tp-size", str(self.spec.tp), "--host", "127.0.0.1",
                         "--port", str(self.port), "--decode-log-interval", "1"] + self.spec.server_flags()

    def start(self):
        with open(self.log_path, "ab") as log:
            log.write(("$ " + shlex.join(self.command()) + "\n").encode())
            log.flush()
            try:
                self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                env=self.environment, start_new_session=True)
            except OSError as error:
                raise ServerFailed(f"{self.spec.name}: {self.command()[0]}: {error.strerror}") from None

    def check(self):
        """Raises ServerFailed where it has ended."""
        if self.process.poll() is not None:
            raise ServerFailed(f"{self.spec.name}: the server ended with status {self.process.returncode}\n" + self.tail())

    def tail(self):
        with open(self.log_path, errors="replace") as log:
            return "\n".join("    " + line.rstrip()[:300] for line in log.readlines()[-LINES_SHOWN:])

    async def wait_until_up(self, deadline):
        while True:
            self.check()
            if time.time() > deadline:
                raise ServerFailed(f"{self.spec.name}: not up when the time was over\n" + self.tail())
            try:
                status, _ = await client.call(self.port, "GET", "/health_generate", timeout=HEALTH_SECONDS)
                if status == 200:
                    return
            except client.ServerGone:
                pass
            await asyncio.sleep(0.5)

    async def info(self):
        """What the server says of itself, under SGLang's names of now or of before 0.5.9."""
        for path in ("/get_server_info", "/server_info"):
            status, body = await client.call(self.port, "GET", path)
            if status == 200:
                return json.loads(body)
        raise ServerFailed(f"{self.spec.name}: neither /get_server_info nor /server_info answers")

    async def flush_cache(self):
        """Waits until the server is idle and its prefix cache empty."""
        for _ in range(100):
            status, _ = await client.call(self.port, "POST", "/flush_cache", body=b"")
            if status == 200:
                return
            self.check()
            await asyncio.sleep(0.2)  # requests are still running
        raise ServerFailed(f"{self.spec.name}: the cache cannot be flushed")

    def log_bytes(self):
        return os.path.getsize(self.log_path)

    def decode_lines(self, since):
        """How many decode batches were logged after the first `since` bytes of the log."""
        with open(self.log_path, "rb") as log:
            log.seek(since)
            return sum(1 for line in log if DECODE.search(line.decode("utf-8", "replace")))

    def end(self):
        if self.process is None:
            return
        for signal_number, seconds in ((signal.SIGTERM, END_SECONDS), (signal.SIGKILL, END_SECONDS)):
            try:
                os.killpg(self.process.pid, signal_number)  # a session of its own: its scheduler processes, too
            except ProcessLookupError:
                break
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                continue
        self.process = None
