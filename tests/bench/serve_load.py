#!/usr/bin/env python3
"""Loads that a `tpsim serve` must bear: open streams, requests a second, a simulated day.

Usage: serve_load.py TPSIM streams [--count 10000] [--tokens 64]
       serve_load.py TPSIM rate    [--rate 2000] [--seconds 10]
       serve_load.py TPSIM day     [--speedup 2000] [--hours 24] [--rate 1]

One line of JSON with what came out. Exit status 1 where a stream was not whole.
"""

import argparse
import collections
import json
import os
import selectors
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration", "serve"))
from server import Server, request  # noqa: E402


def call(number, tokens, stream=True):
    prompt = [(number * 131 + i * 17) % 30000 + 3 for i in range(32)]
    return request({"input_ids": prompt, "stream": stream,
                    "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True}})


def connect(port):
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    client.connect(("127.0.0.1", port))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def cpu_seconds(server):
    with open(f"/proc/{server.process.pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def streams(server, args):
    clients = [connect(server.port) for _ in range(args.count)]
    selector = selectors.EpollSelector()
    begun = time.monotonic()
    for number, client in enumerate(clients):
        client.sendall(call(number, args.tokens))
        client.setblocking(False)
        selector.register(client, selectors.EVENT_READ)
    sent = time.monotonic() - begun
    peak, whole, received, broken = 0, 0, 0, 0
    looked = time.monotonic()
    while whole + broken < args.count and time.monotonic() - begun < 300:
        for key, _ in selector.select(1):
            data = key.fileobj.recv(1 << 16)
            received += len(data)
            if not data:
                broken += 1
                selector.unregister(key.fileobj)
            elif data.endswith(b"0\r\n\r\n"):
                whole += 1
                selector.unregister(key.fileobj)
        if time.monotonic() - looked > 2:
            looked = time.monotonic()
            peak = max(peak, server.resident())
    info = server.info()["tpsim"]
    return {"streams": args.count, "whole": whole, "broken": broken, "seconds": round(time.monotonic() - begun, 2),
            "sending_seconds": round(sent, 2), "received_mb": round(received / 1e6, 1),
            "resident_mb": round(max(peak, server.resident()) / 1e6, 1), "max_wall_lag": info["max_wall_lag"]}


def rate(server, args):
    """Requests of one token on 256 kept connections, at their times."""
    clients = [connect(server.port) for _ in range(256)]
    free = collections.deque(clients)  # in turn: none is idle for long
    selector = selectors.EpollSelector()
    for client in clients:
        client.setblocking(False)
        selector.register(client, selectors.EVENT_READ)
    total = int(args.rate * args.seconds)
    bodies = [call(number, 1, stream=False) for number in range(512)]
    begun = time.monotonic()
    before = cpu_seconds(server)
    sent = answered = wrong = 0
    late = 0.0
    while answered < total and time.monotonic() - begun < args.seconds * 4:
        now = time.monotonic()
        while sent < total and free and begun + sent / args.rate <= now:
            late = max(late, now - begun - sent / args.rate)
            free.popleft().send(bodies[sent % len(bodies)])
            sent += 1
        for key, _ in selector.select(0.0005):
            data = key.fileobj.recv(1 << 16)
            if not data.startswith(b"HTTP/1.1 200"):
                wrong += 1
            answered += 1
            free.append(key.fileobj)
    seconds = time.monotonic() - begun
    return {"rate": args.rate, "answered": answered, "wrong": wrong, "seconds": round(seconds, 2),
            "answered_per_second": round(answered / seconds, 1), "server_cpu_share": round(
                (cpu_seconds(server) - before) / seconds, 2), "latest_sending": round(late, 4),
            "whole": answered - wrong, "streams": total}


def day(server, args):
    """A request every 1 / RATE simulated seconds; memory at the quarters."""
    seconds = args.hours * 3600 / args.speedup
    interval = 1 / args.rate / args.speedup
    clients = [connect(server.port) for _ in range(32)]
    free = collections.deque(clients)  # in turn: none is idle for long
    selector = selectors.EpollSelector()
    for client in clients:
        client.setblocking(False)
        selector.register(client, selectors.EVENT_READ)
    begun = time.monotonic()
    sent = answered = 0
    memory = []
    while time.monotonic() - begun < seconds or answered < sent:
        now = time.monotonic()
        if now - begun < seconds and free and begun + sent * interval <= now:
            free.popleft().send(call(sent, 100, stream=False))
            sent += 1
        for key, _ in selector.select(min(interval, 0.01)):
            if key.fileobj.recv(1 << 16).startswith(b"HTTP/1.1 200"):
                answered += 1
            free.append(key.fileobj)
        if len(memory) < (now - begun) / seconds * 8:
            memory.append(round(server.resident() / 1e6, 1))
    return {"hours": args.hours, "wall_seconds": round(time.monotonic() - begun, 1), "streams": sent, "whole": answered,
            "memory_mb": memory, "tpsim": server.info()["tpsim"]["max_wall_lag"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("what", choices=["streams", "rate", "day"])
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--speedup", type=float, default=2000)
    parser.add_argument("--hours", type=float, default=24)
    args = parser.parse_args()
    flags = ["--skip-tokenizer-init", "--incremental-streaming-output"]
    args.rate = args.rate or {"rate": 2000, "day": 1}.get(args.what)
    if args.what == "day":
        flags += ["--speedup", str(args.speedup)]
    if args.what == "rate":
        flags += ["--front-end", "none"]  # SGLang's own takes 0.7 ms a request
    server = Server(args.program, *flags)
    try:
        result = globals()[args.what](server, args)
    finally:
        server.stop()
    print(json.dumps(result))
    sys.exit(0 if result["whole"] == result["streams"] else 1)


if __name__ == "__main__":
    main()
