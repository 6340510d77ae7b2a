#!/usr/bin/env python3
"""Stands in for SGLang's server where there is no GPU: /generate (streaming), /health_generate, /get_server_info,
/flush_cache, and the lines of SGLang's log. Takes the server's flags; steps sleep for what a small GPU might take.

FAKE_SGLANG: a JSON object: "start_seconds", "fail" (a sentence printed instead of starting), "child" (a file that
receives the id of a process that it starts, as SGLang starts its scheduler).
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time

CHUNK = 8192
PREFILL_TOKEN_SECONDS, DECODE_SECONDS, DECODE_KV_SECONDS = 2e-6, 4e-3, 2e-8


class Running:
    def __init__(self, prompt, output_tokens, queue):
        self.prompt, self.left, self.queue, self.done = len(prompt), output_tokens, queue, 0

    def token(self):
        self.done += 1
        self.left -= 1
        self.queue.put_nowait(self.done)


class Fake:
    def __init__(self, args):
        self.args, self.waiting, self.running, self.wake = args, [], [], asyncio.Event()
        self.last_decode = time.perf_counter()

    def log(self, text):
        print(time.strftime("[%Y-%m-%d %H:%M:%S] ") + text, flush=True)

    async def scheduler(self):
        while True:
            if not self.waiting and not self.running:
                self.wake.clear()
                await self.wake.wait()
            if self.waiting:
                await self.prefill()
            else:
                await self.decode()

    async def prefill(self):
        batch, tokens = [], 0
        while self.waiting and (not batch or tokens + self.waiting[0].prompt <= CHUNK):
            batch.append(self.waiting.pop(0))
            tokens += batch[-1].prompt
        self.log(f"Prefill batch, #new-seq: {len(batch)}, #new-token: {tokens}, #cached-token: 0, token usage: 0.00, "
                 f"#running-req: {len(self.running)}, #queue-req: {len(self.waiting)}, cuda graph: True, "
                 "input throughput (token/s): 0.00")
        await asyncio.sleep(tokens * PREFILL_TOKEN_SECONDS)
        for request in batch:
            request.token()
        self.running += [request for request in batch if request.left > 0]

    async def decode(self):
        held = sum(request.prompt + request.done for request in self.running)
        await asyncio.sleep(DECODE_SECONDS + held * DECODE_KV_SECONDS)
        now, count = time.perf_counter(), len(self.running)
        self.log(f"Decode batch, #running-req: {count}, #token: {held}, token usage: 0.00, cuda graph: True, "
                 f"gen throughput (token/s): {count / (now - self.last_decode):.2f}, #queue-req: {len(self.waiting)}")
        self.last_decode = now
        for request in self.running:
            request.token()
        self.running = [request for request in self.running if request.left > 0]

    def info(self):
        return {"version": "0.5.12", "model_path": self.args.model_path, "tp_size": self.args.tp_size,
                "attention_backend": self.args.attention_backend, "page_size": 1, "max_total_num_tokens": 906051,
                "max_running_requests": 3539, "disable_cuda_graph": False, "kv_cache_dtype": "auto"}

    async def handle(self, reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next((int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length")), 0)
            body = await reader.readexactly(length)
            path = head.split()[1]
            if path == "/generate":
                await self.generate(writer, json.loads(body))
            elif path == "/health_generate":
                await self.answer(writer, 200, b"")
            elif path == "/get_server_info":
                await self.answer(writer, 200, json.dumps(self.info()).encode())
            elif path == "/flush_cache":
                busy = bool(self.running or self.waiting)
                if not busy:
                    self.log("Cache flushed successfully!")
                await self.answer(writer, 400 if busy else 200, b"")
            else:
                await self.answer(writer, 404, b"")
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer(self, writer, status, body):
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()

    async def generate(self, writer, request):
        tokens, queue = request["sampling_params"]["max_new_tokens"], asyncio.Queue()
        self.waiting.append(Running(request["input_ids"], tokens, queue))
        self.wake.set()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        done = 0
        while done < tokens:
            done = await queue.get()
            event = b"data: " + json.dumps({"output_ids": [7] * done, "meta_info": {
                "prompt_tokens": len(request["input_ids"]), "cached_tokens": 0, "completion_tokens": done}}).encode() + b"\n\n"
            # In two chunks, as a proxy may cut it.
            for piece in (event[:20], event[20:]):
                writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        await writer.drain()


async def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--tp-size", type=int, default=1)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--decode-log-interval", type=int)
    parser.add_argument("--attention-backend", default="fa3")
    parser.add_argument("--load-format")
    parser.add_argument("--skip-tokenizer-init", action="store_true")
    args = parser.parse_args()
    wishes = json.loads(os.environ.get("FAKE_SGLANG", "{}"))
    if "fail" in wishes:
        print(wishes["fail"], flush=True)
        return 1
    if args.decode_log_interval != 1:
        return 1
    if "child" in wishes:
        with open(wishes["child"], "w") as file:
            file.write(str(subprocess.Popen(["sleep", "1000"]).pid))
    await asyncio.sleep(wishes.get("start_seconds", 0))
    fake = Fake(args)
    server = await asyncio.start_server(fake.handle, args.host, args.port, limit=1 << 24)
    fake.log(f"The server is fired up and ready to roll! GPUs {os.environ.get('CUDA_VISIBLE_DEVICES')}")
    async with server:
        await fake.scheduler()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
