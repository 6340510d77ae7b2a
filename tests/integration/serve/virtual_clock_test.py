#!/usr/bin/env python3
"""What clients of `tpsim serve` see is what `tpsim run` says of the same load.

Usage: virtual_clock_test.py TPSIM [--seconds S] [--rate R] [--model NAME] [--flags "--pd-disaggregation ..."]

A trace of conversations that share prefixes is served both ways: by clients that send its prompts as token ids at their
times, and by `tpsim run` on the virtual clock, at the times at which those clients did send. Mean, median and 99th
percentile of TTFT and TPOT, and the tokens found in the cache, must agree within 3 % or 1 ms.
"""

import argparse
import json
import os
import random
import selectors
import socket
import subprocess
import sys
import tempfile
import time

from server import Server, request

BLOCK = 512  # tokens of a hash id of a Mooncake trace


def make_trace(seconds, rate):
    """Rows of a Mooncake trace: turns of conversations over a few common system prompts."""
    drawn = random.Random(5)
    rows, now, blocks = [], 0.0, 1000
    conversations = []
    while True:
        now += drawn.expovariate(rate)
        if now > seconds:
            return rows
        if conversations and drawn.random() < 0.5:
            prompt = conversations.pop(drawn.randrange(len(conversations)))
        else:
            prompt = [drawn.randrange(4)]
        for _ in range(drawn.randrange(1, 4)):
            blocks += 1
            prompt = [*prompt, blocks]
        length = len(prompt) * BLOCK - drawn.randrange(BLOCK - 10)
        rows.append({"timestamp": int(now * 1000), "input_length": length,
                     "output_length": drawn.randrange(8, 200), "hash_ids": prompt})
        conversations.append(prompt)


def ids_of(row):
    ids = []
    for block in row["hash_ids"]:
        first = 5 + block * 7919 % 100000
        ids += [(first + 31 * i) % 120000 + 5 for i in range(BLOCK)]
    return ids[:row["input_length"]]


def percentile(values, q):
    values = sorted(values)
    at = (len(values) - 1) * q / 100
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def figures(values):
    return {"mean": sum(values) / len(values), "median": percentile(values, 50), "p99": percentile(values, 99)}


class Client:
    def __init__(self, port, row):
        body = {"input_ids": ids_of(row), "stream": True,
                "sampling_params": {"max_new_tokens": row["output_length"], "ignore_eos": True}}
        self.bytes = request(body)
        self.tokens = row["output_length"]
        self.port = port
        self.first = self.last = None
        self.tail = b""

    def open(self):
        # Before its time: the wire's own way of opening is no part of it.
        self.socket = socket.create_connection(("127.0.0.1", self.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self):
        self.sent = time.perf_counter()
        self.socket.sendall(self.bytes)
        self.bytes = b""
        self.socket.setblocking(False)

    def receive(self):
        """Whether the stream has ended."""
        data = self.socket.recv(1 << 20)
        now = time.perf_counter()
        if not data:
            raise RuntimeError("closed")
        if b"data: {" in data:
            if self.first is None:
                self.first = now
            self.last = now
        self.tail = (self.tail + data)[-4096:]
        return self.tail.endswith(b"0\r\n\r\n")


def by_clients(server, rows):
    clients = [Client(server.port, row) for row in rows]
    selector = selectors.DefaultSelector()
    for client in clients[:8]:
        client.open()
    opened = min(8, len(clients))
    sent = ended = cached = 0
    begun = time.perf_counter() + 0.5
    while ended < len(clients):
        due = begun + rows[sent]["timestamp"] / 1000 if sent < len(rows) else None
        now = time.perf_counter()
        if due is not None and now >= due:
            clients[sent].send()
            selector.register(clients[sent].socket, selectors.EVENT_READ, clients[sent])
            sent += 1
            if opened < len(clients):
                clients[opened].open()
                opened += 1
            continue
        for key, _ in selector.select(None if due is None else max(due - now, 0)):
            client = key.data
            if client.receive():
                selector.unregister(client.socket)
                client.socket.close()
                found = client.tail.rfind(b'"cached_tokens":')
                cached += int(client.tail[found + 16:].split(b",", 1)[0])
                ended += 1
    ttft = [client.first - client.sent for client in clients]
    tpot = [(client.last - client.first) / (client.tokens - 1) for client in clients if client.tokens > 1]
    for client, row in zip(clients, rows):
        row["timestamp"] = (client.sent - clients[0].sent) * 1000
    return {"ttft": figures(ttft), "tpot": figures(tpot), "cached": cached, "each": ttft}


def by_run(program, deployment, trace, folder):
    report = os.path.join(folder, "report")
    subprocess.run([program, "run", *deployment, "--trace", trace, "--front-end", "ids", "--report-dir", report,
                    "--quiet"], check=True)
    with open(os.path.join(report, "requests.csv")) as file:
        names = file.readline().strip().split(",")
        rows = [dict(zip(names, line.strip().split(","))) for line in file]
    rows.sort(key=lambda row: int(row["id"]))
    ttft = [float(row["first_token_time"]) - float(row["arrival_time"]) for row in rows]
    tpot = [(float(row["finish_time"]) - float(row["first_token_time"])) / (int(row["output_tokens"]) - 1)
            for row in rows if int(row["output_tokens"]) > 1]
    return {"ttft": figures(ttft), "tpot": figures(tpot), "cached": sum(int(row["cached_tokens"]) for row in rows),
            "each": ttft}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rate", type=float, default=4)
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--flags", default="", help="of the deployment, beside")
    args = parser.parse_args()
    deployment = ["--model-path", args.model, "--hardware", "h200-sxm", *args.flags.split()]
    rows = make_trace(args.seconds, args.rate)
    with tempfile.TemporaryDirectory() as folder:
        # These clients are fast: the server waits in place of the client in Python that is simulated.
        server = Server(args.program, "--skip-tokenizer-init", "--incremental-streaming-output", "--client-seconds",
                        "0.00102", deployment=deployment)
        try:
            seen = by_clients(server, rows)
            about = server.info()["tpsim"]
        finally:
            server.stop()
        trace = os.path.join(folder, "trace.jsonl")
        with open(trace, "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        said = by_run(args.program, deployment, trace, folder)
    wrong = 0
    late = ", ".join(f"{name} {seconds * 1e6:.0f}" for name, seconds in about["token_lateness"].items())
    print(f"{len(rows)} requests; the clock was {about['max_wall_lag'] * 1e3:.2f} ms late at most; tokens left late by "
          f"(us) {late}")
    for figure in ("ttft", "tpot"):
        for which in ("mean", "median", "p99"):
            a, b = said[figure][which], seen[figure][which]
            holds = abs(a - b) <= max(0.03 * a, 1e-3)
            wrong += not holds
            print(f"{figure} {which:6}: run {a * 1e3:9.3f} ms, clients {b * 1e3:9.3f} ms "
                  f"({(b / a - 1) * 100:+.2f} %){'' if holds else '  WRONG'}")
    later = sorted(b - a for a, b in zip(said["each"], seen["each"]))
    print(f"first tokens are later than said by {percentile(later, 50) * 1e3:.3f} ms (median; from "
          f"{percentile(later, 5) * 1e3:.3f} to {percentile(later, 95) * 1e3:.3f} ms for nine in ten)")
    print(f"cached tokens: run {said['cached']}, clients {seen['cached']}")
    wrong += abs(said["cached"] - seen["cached"]) > 0.03 * max(said["cached"], 1)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
