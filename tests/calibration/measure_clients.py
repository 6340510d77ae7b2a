#!/usr/bin/env python3
"""How much of the time to the first token that a benchmark reports is its own: from its stamp before it asks until the
first bytes of the request are at a server, and from the server's write of the first token to the benchmark's stamp.

Usage: measure_clients.py CLIENTS [--clients kit,measure,sglang,vllm] [--requests N] [--rate R | --concurrency N] [--input N]
                          [--output N]

CLIENTS: the folder of tests/integration/clients/install_clients.py. The server is a bare socket that notes when bytes
come and go; it has no model, no HTTP library and no JSON. Prints a CSV: milliseconds, medians and quartiles. `speed` is
how long this machine's Python takes to draw 1,024 ids, in milliseconds.
"""

import argparse
import asyncio
import heapq
import json
import multiprocessing
import os
import random
import re
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
FIRST_TOKEN = 0.025  # seconds that the bare server takes
NEXT_TOKEN = 0.006
LENGTH = re.compile(rb'"max_(?:new_)?tokens":\s*(\d+)')


class BareServer:
    """Answers every request for tokens with a stream of as many as it asks for; notes when it arrived and when its first
    token was written."""

    def __init__(self, connection):
        self.seen = []  # (arrived, wrote)
        self.due = []  # (when, number, socket, index of seen, token, of how many, OpenAI's)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.listener.setblocking(False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.control = connection
        self.selector.register(connection, selectors.EVENT_READ)
        self.pending = {}
        connection.send(self.listener.getsockname()[1])

    def run(self):
        while True:
            wait = None if not self.due else max(0.0, self.due[0][0] - time.perf_counter())
            # The selector's timeouts are whole milliseconds: the last one is waited out.
            for key, _ in self.selector.select(wait if wait is None or wait > 0.002 else 0):
                if key.fileobj is self.control:
                    self.control.recv()
                    self.control.send(self.seen)
                    return
                if key.fileobj is self.listener:
                    client, _ = self.listener.accept()
                    client.setblocking(False)
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self.pending[client] = [b"", None]
                    self.selector.register(client, selectors.EVENT_READ)
                else:
                    self.receive(key.fileobj)
            while self.due and self.due[0][0] <= time.perf_counter():
                self.write(*heapq.heappop(self.due)[2:])

    def receive(self, client):
        now = time.perf_counter()
        try:
            data = client.recv(1 << 20)
        except ConnectionError:
            data = b""
        if not data:
            self.selector.unregister(client)
            client.close()
            return
        state = self.pending[client]
        state[1] = state[1] or now
        state[0] += data
        head, mark, body = state[0].partition(b"\r\n\r\n")
        if not mark:
            return
        length = 0
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        if len(body) < length:
            return
        arrived, self.pending[client] = state[1], [b"", None]
        if b" /generate " in head or b"/completions " in head:
            self.seen.append([arrived, None])
            heapq.heappush(self.due, (arrived + FIRST_TOKEN, len(self.seen) - 1, client, len(self.seen) - 1, 1,
                                      int(LENGTH.search(body).group(1)), b"/completions " in head))
        else:
            said = b'{"data": [{"id": "m", "root": "m"}]}'
            client.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" %
                        (len(said), said))

    def write(self, client, index, token, tokens, openai):
        if openai:
            event = {"id": "x", "object": "text_completion", "created": 1, "model": "m",
                     "choices": [{"index": 0, "text": "word ", "logprobs": None, "finish_reason": None}]}
        else:
            event = {"text": "word " * token, "output_ids": [1] * token,
                     "meta_info": {"id": "x", "finish_reason": None, "prompt_tokens": 1024, "weight_version": "default",
                                   "completion_tokens": token, "cached_tokens": 0, "e2e_latency": 0.1}}
        data = b"data: " + json.dumps(event).encode() + b"\n\n"
        out = b"%x\r\n%s\r\n" % (len(data), data)
        if token == 1:
            head = (b"HTTP/1.1 200 OK\r\ndate: Sat, 22 Nov 2026 00:00:00 GMT\r\nserver: uvicorn\r\n"
                    b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n")
            self.seen[index][1] = time.perf_counter()
            client.send(head)  # uvicorn's two writes
        if token == tokens:
            out += b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
        try:
            client.send(out)
        except OSError:
            return
        if token < tokens:
            heapq.heappush(self.due, (time.perf_counter() + NEXT_TOKEN, index, client, index, token + 1, tokens, openai))


def bare_server(connection):
    BareServer(connection).run()


class BareProcess:
    """A BareServer in a process of its own, at `port` until end()."""

    def __init__(self):
        self.pipe, there = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=bare_server, args=(there,), daemon=True)
        self.process.start()
        self.port = self.pipe.recv()

    def end(self):
        """(arrived, wrote) of its requests for tokens, in the order of their arrival."""
        self.pipe.send("end")
        seen = sorted(self.pipe.recv())
        self.process.join()
        return seen


def ids(seed, count):
    """As the client of shared/measure draws a prompt."""
    drawn = random.Random(seed)
    return [drawn.randrange(100, 100000) for _ in range(count)]


def times_of(args):
    """When requests are sent, seconds; none: as others have ended."""
    if args.rate is None:
        return None
    drawn = random.Random(7)
    now, times = 0.0, []
    for _ in range(args.requests):
        now += drawn.expovariate(args.rate)
        times.append(now)
    return times


async def at_times(args, one):
    times, count = times_of(args), args.requests
    if times is None:
        numbers = iter(range(count))

        async def worker():
            for i in numbers:
                await one(i)
        await asyncio.gather(*[worker() for _ in range(args.concurrency)])
        return
    begun = time.perf_counter()

    async def at(i):
        await asyncio.sleep(max(0.0, begun + times[i] - time.perf_counter()))
        await one(i)
    await asyncio.gather(*[at(i) for i in range(count)])


def by_kit(args, port, _):
    """The shape of shared/measure's client: one aiohttp session, JSON written by it, lines of the answer."""
    import aiohttp  # the clients' own
    seen = []

    async def run():
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, read_bufsize=1 << 22) as session:
            async def one(i):
                prompt = ids(i, args.input)
                record = [time.perf_counter(), None]
                seen.append(record)
                body = {"input_ids": prompt, "stream": True,
                        "sampling_params": {"temperature": 0, "max_new_tokens": args.output, "ignore_eos": True}}
                async with session.post(f"http://127.0.0.1:{port}/generate", json=body) as answer:
                    async for line in answer.content:
                        if not line.startswith(b"data:") or line.startswith(b"data: [DONE]"):
                            continue
                        now = time.perf_counter()
                        json.loads(line[5:])
                        record[1] = record[1] or now
            await at_times(args, one)
    asyncio.run(run())
    return seen


def by_measure(args, port, _):
    """launch/lab/measure's client."""
    sys.path.insert(0, os.path.join(os.path.dirname(TESTS), "launch", "measure"))
    import client
    prompts = [ids(i, args.input) for i in range(args.requests)]
    seen = []

    async def one(i):
        record = await client.generate(port, prompts[i], args.output)
        seen.append([record["sent"], record["first"]])
    asyncio.run(at_times(args, one))
    return sorted(seen)


def bench(args, script, words, folder):
    subprocess.run([os.path.join(args.clients_folder, "bin", "python"),
                    os.path.join(TESTS, "integration", "clients", script), *words], check=True, cwd=folder,
                   stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT,
                   env={**os.environ, "HF_HUB_OFFLINE": "1", "TPSIM_SENDS": os.path.join(folder, "sent.jsonl")})
    with open(os.path.join(folder, "out.json")) as file:
        ttfts = json.load(file)["ttfts"]
    with open(os.path.join(folder, "sent.jsonl")) as file:
        asked = [json.loads(line)["arrival_time"] for line in file][-len(ttfts):]
    # In the order of sending, as the benchmarks keep them.
    return [[begun, begun + ttft] for begun, ttft in zip(asked, ttfts)]


def rates(args):
    return ["--request-rate", "inf" if args.rate is None else str(args.rate),
            *(["--max-concurrency", str(args.concurrency)] if args.rate is None else [])]


def by_sglang(args, port, folder):
    return bench(args, "sglang_bench.py",
                 ["--backend", "sglang", "--host", "127.0.0.1", "--port", str(port), "--model", "m", "--tokenizer",
                  tokenizer(folder), "--dataset-name", "random-ids", "--num-prompts", str(args.requests),
                  "--random-input-len", str(args.input), "--random-output-len", str(args.output), "--random-range-ratio",
                  "1", "--tokenize-prompt", "--disable-tqdm", "--output-details", "--output-file",
                  os.path.join(folder, "out.json"), *rates(args)], folder)


def by_vllm(args, port, folder):
    return bench(args, "vllm_bench.py",
                 ["--backend", "openai", "--base-url", f"http://127.0.0.1:{port}", "--model", "m", "--tokenizer",
                  tokenizer(folder), "--dataset-name", "random", "--num-prompts", str(args.requests),
                  "--random-input-len", str(args.input), "--random-output-len", str(args.output), "--ignore-eos",
                  "--num-warmups", "0", "--disable-tqdm", "--save-result", "--save-detailed", "--result-filename",
                  os.path.join(folder, "out.json"), *rates(args)], folder)


def tokenizer(folder):
    path = os.path.join(folder, "tokenizer")
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(TESTS, "golden", "tokenizers", "byte-level", "tokenizer.json")) as file, \
            open(os.path.join(path, "tokenizer.json"), "w") as copy:
        copy.write(file.read())
    with open(os.path.join(path, "tokenizer_config.json"), "w") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin|>", "eos_token": "<|end|>"}, file)
    return path


def quartiles(values):
    values = sorted(value * 1e3 for value in values)
    return [values[len(values) // 4], statistics.median(values), values[3 * len(values) // 4]]


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("clients_folder")
    parser.add_argument("--clients", default="kit,measure,sglang,vllm")
    parser.add_argument("--requests", type=int, default=80)
    parser.add_argument("--rate", type=float, help="requests a second (default: by --concurrency)")
    parser.add_argument("--concurrency", type=int, default=1, help="in flight (default 1)")
    parser.add_argument("--input", type=int, default=1024)
    parser.add_argument("--output", type=int, default=64)
    args = parser.parse_args()
    args.clients_folder = os.path.abspath(args.clients_folder)
    speed = []
    for i in range(40):
        begun = time.perf_counter()
        ids(i, 1024)
        speed.append(time.perf_counter() - begun)
    print("client,requests,rate,input_tokens,output_tokens,speed,send_q1,send,send_q3,receive_q1,receive,receive_q3,both")
    for name in args.clients.split(","):
        server = BareProcess()
        with tempfile.TemporaryDirectory() as folder:
            seen = globals()[f"by_{name}"](args, server.port, folder)
        served = server.end()[-len(seen):]
        # The first opens the connection and warms Python up.
        send = [arrived - sent for (sent, _), (arrived, _) in zip(seen, served)][1:]
        receive = [first - wrote for (_, first), (_, wrote) in zip(seen, served)][1:]
        both = statistics.mean(send) + statistics.mean(receive)
        figures = [min(speed) * 1e3, *quartiles(send), *quartiles(receive), both * 1e3]
        print(",".join([name, str(args.requests), str(args.rate or f"closed {args.concurrency}"), str(args.input), str(args.output),
                        *(f"{figure:.3f}" for figure in figures)]), flush=True)


if __name__ == "__main__":
    main()
