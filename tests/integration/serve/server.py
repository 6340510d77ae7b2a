"""A `tpsim serve` of a test's own, and clients made of sockets. What the tests of this folder share."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time
import unittest

DEPLOYMENT = ["--model-path", "llama-3.1-8b", "--hardware", "h200-sxm"]
TINY = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "golden", "models", "llama")


def long_context(folder):
    """The tiny model, with room for answers that are long enough to be left."""
    for name in os.listdir(TINY):
        os.symlink(os.path.join(TINY, name), os.path.join(folder, name))
    config = os.path.join(folder, "config.json")
    os.remove(config)
    with open(os.path.join(TINY, "config.json")) as file, open(config, "w") as changed:
        json.dump({**json.load(file), "max_position_embeddings": 100000}, changed)


class Server:
    """Listens at `port` until stop()."""

    def __init__(self, program, *flags, deployment=DEPLOYMENT):
        self.process = subprocess.Popen([program, "serve", *deployment, "--port", "0", *flags], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        if not found:
            sentence = self.process.stderr.read()
            self.wait()
            raise RuntimeError(f"no server: {line} {sentence}")
        self.port = int(found.group(1))

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait(self, seconds=30):
        """The exit status."""
        status = self.process.wait(seconds)
        self.process.stdout.close()
        self.process.stderr.close()
        return status

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.wait()

    def resident(self):
        """Bytes of memory."""
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def ask(self, *call, **more):
        """(status, body) of one call on a connection of its own."""
        status, body = self.ask_bytes(*call, **more)
        return status, body.decode()

    def ask_bytes(self, method, path, body=None, headers=None, timeout=60):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            if body is not None and not isinstance(body, (str, bytes)):
                body = json.dumps(body)
            connection.request(method, path, body, {"content-type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def info(self):
        return json.loads(self.ask("GET", "/get_server_info")[1])

    def load(self):
        return json.loads(self.ask("GET", "/v1/loads")[1])["loads"][0]

    def wait_for_requests(self, count, seconds=20):
        """Until that many are open."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            load = self.load()
            if load["num_total_reqs"] == count:
                return
            time.sleep(0.05)
        raise AssertionError(f"not {count} requests: {load}")

    def wait_until_idle(self, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            load = self.load()
            if load["num_total_reqs"] == 0 and load["num_used_tokens"] == 0:
                return load
            time.sleep(0.05)
        raise AssertionError(f"not idle: {load}")


def generate(tokens, prompt=(1, 2, 3), **more):
    return {"input_ids": list(prompt), "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True}, **more}


def request(body, path="/generate", headers=""):
    text = json.dumps(body)
    return (f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{headers}"
            f"content-length: {len(text)}\r\n\r\n{text}").encode()


def connect(server, receive_buffer=None):
    client = socket.socket()
    if receive_buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.settimeout(60)
    client.connect(("127.0.0.1", server.port))
    return client


def read_all(client):
    """Until the server closes, or a stream ends."""
    parts = []
    tail = b""
    while True:
        part = client.recv(1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
        tail = (tail + part)[-16:]
        if tail.endswith(b"0\r\n\r\n"):
            return b"".join(parts)


def events(stream):
    """What stands behind `data: ` in the events of an answer with its chunks."""
    body = stream.split(b"\r\n\r\n", 1)[1]
    text = b""
    while body:
        size, body = body.split(b"\r\n", 1)
        size = int(size, 16)
        text += body[:size]
        body = body[size + 2:]
        if size == 0:
            break
    return [event[len(b"data: "):] for event in text.split(b"\n\n") if event]


class ServerTest(unittest.TestCase):
    program = None  # set by the one that runs them

    def serve(self, *flags, **more):
        server = Server(self.program, *flags, **more)
        self.addCleanup(server.stop)
        return server

    def connect(self, server, **more):
        client = connect(server, **more)
        self.addCleanup(client.close)
        return client
