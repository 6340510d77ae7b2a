#!/usr/bin/env python3
"""What befalls a server while clients are at it: a rank that is killed in mid-stream, twenty thousand connections.

Usage: faults_test.py TPSIM [TEST …]
"""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path += [FOLDER, os.path.join(FOLDER, "serve")]
from mpi_environment import MPI_ENVIRONMENT  # noqa: E402
from server import Server, ServerTest, connect, generate, long_context, request  # noqa: E402


# Opens as many connections as it is told and holds them until its standard input ends; says how many were turned away,
# with 503 or, where too many are to be told so, without a word.
HOLDER = """
import select, socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
poller = select.poll()
held = {}
for _ in range(count):
    client = socket.create_connection(("127.0.0.1", port))
    held[client.fileno()] = client
    poller.register(client, select.POLLIN)
turned_away = 0
while ready := poller.poll(3000):
    for number, _ in ready:
        try:
            said = held[number].recv(4096)
        except ConnectionResetError:
            said = b""
        turned_away += said == b"" or b" 503 " in said
        poller.unregister(number)
print(turned_away, flush=True)
sys.stdin.read()
"""


class Stream(threading.Thread):
    """One answer, read to its end, with the time of each piece."""

    def __init__(self, port, body):
        super().__init__(daemon=True)
        self.port = port
        self.body = body
        self.times = []
        self.data = b""
        self.ended = None

    def run(self):
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as client:
            client.sendall(request(self.body))
            try:
                while part := client.recv(1 << 16):
                    self.times.append(time.monotonic())
                    self.data += part
                    if self.data.endswith(b"0\r\n\r\n"):
                        break
            except ConnectionError:
                pass
        self.ended = time.monotonic()


class RankLost(unittest.TestCase):
    program = None

    def serve(self, processes, *words):
        """(mpirun, port, identities of the processes)"""
        mpirun = subprocess.Popen(["mpirun", "--quiet", "-n", str(processes), self.program, "serve", "--port", "0", *words],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env={**os.environ, **MPI_ENVIRONMENT}, start_new_session=True)
        self.addCleanup(self.end, mpirun)
        line = mpirun.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        self.assertTrue(found, line)
        children = subprocess.run(["ps", "--ppid", str(mpirun.pid), "-o", "pid="], capture_output=True, text=True,
                                  check=True).stdout.split()
        ranks = [int(child) for child in children]
        self.assertEqual(len(ranks), processes)
        return mpirun, int(found.group(1)), sorted(ranks)

    @staticmethod
    def end(mpirun):
        if mpirun.poll() is None:
            os.killpg(mpirun.pid, signal.SIGKILL)
        mpirun.communicate()

    def kill_in_mid_stream(self, *words, tokens):
        mpirun, port, ranks = self.serve(2, *words)
        streams = [Stream(port, generate(tokens, stream=True)) for _ in range(8)]
        for stream in streams:
            stream.start()
        until = time.monotonic() + 30
        while time.monotonic() < until and not all(stream.times for stream in streams):
            time.sleep(0.05)
        self.assertTrue(all(stream.times for stream in streams))
        os.kill(ranks[1], signal.SIGKILL)
        killed = time.monotonic()
        for stream in streams:
            stream.join(20)
            self.assertFalse(stream.is_alive(), "a stream hangs")
            self.assertIn(b'"message":"The server has lost its ranks.","status_code":503', stream.data[-600:])
            self.assertTrue(stream.data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), stream.data[-100:])
        mpirun.wait(20)
        print(f"streams ended {max(stream.ended for stream in streams) - killed:.2f} s, mpirun "
              f"{time.monotonic() - killed:.2f} s after; status {mpirun.returncode}")
        self.assertNotEqual(mpirun.returncode, 0)

    def test_modeled(self):
        self.kill_in_mid_stream("--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--tp", "2", tokens=4000)

    def test_numeric(self):
        with tempfile.TemporaryDirectory() as folder:
            long_context(folder)
            self.kill_in_mid_stream("--model-path", folder, "--executor", "numeric", "--tp", "2", "--max-total-tokens",
                                    "200000", tokens=20000)


class Crowd(ServerTest):
    def test_twenty_thousand_connections(self):
        """Half of them are let in; whoever was in before is served as if alone, whoever is not let in hears so."""
        server = self.serve("--max-connections", "10000", "--idle-timeout", "600")
        alone = Stream(server.port, generate(300, stream=True))
        alone.start()
        alone.join(60)
        beside = Stream(server.port, generate(5000, stream=True))
        beside.start()
        holders = [subprocess.Popen([sys.executable, "-c", HOLDER, str(server.port), "5000"], stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, text=True) for _ in range(4)]
        for holder in holders:
            self.addCleanup(holder.communicate)
        refused = sum(int(holder.stdout.readline()) for holder in holders)
        print(f"{refused} of 20000 turned away; {server.resident() / 1e6:.0f} MB")
        self.assertLessEqual(abs(refused - 10000), 10)
        beside.join(120)
        self.assertFalse(beside.is_alive())
        for holder in holders:
            holder.communicate()
        pace = (alone.times[-1] - alone.times[0]) / 300
        crowded = (beside.times[-1] - beside.times[0]) / 5000
        print(f"a token each {pace * 1e3:.2f} ms alone, {crowded * 1e3:.2f} ms in the crowd")
        self.assertLess(crowded, pace * 1.1)
        self.assertIn(b"data: [DONE]", beside.data[-60:])
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                if server.ask("POST", "/generate", generate(3))[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        self.fail("nobody is let in after the crowd has gone")


if __name__ == "__main__":
    ServerTest.program = RankLost.program = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
