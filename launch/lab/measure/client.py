"""A client of SGLang's /generate that notes when each token came.

HTTP/1.1 over asyncio's streams, a connection a request: answers are stamped as their bytes arrive and hardly looked at,
so that one process keeps up with some ten thousand events a second.
"""

import asyncio
import json
import re
import time

COMPLETION_TOKENS = re.compile(rb'"completion_tokens":\s*(\d+)')
CACHED_TOKENS = re.compile(rb'"cached_tokens":\s*(\d+)')
READ_BYTES = 1 << 18


class ServerGone(Exception):
    """The server does not answer, or not with HTTP."""


async def _open(port, method, path, body):
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    except OSError as error:
        raise ServerGone(f"port {port}: {error}") from None
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    writer.write(head.encode() + b"\r\n" + (body or b""))
    await writer.drain()
    return reader, writer


async def _head(reader):
    """Status and headers, names in lower case."""
    try:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if colon:
                headers[name.strip().lower()] = value.strip()
        return int(lines[0].split()[1]), headers
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, IndexError, OSError):
        raise ServerGone("the server ended the connection") from None


async def _pieces(reader, headers):
    """The body as its bytes arrive, without the sizes of chunked transfer."""
    if "chunked" not in headers.get("transfer-encoding", ""):
        while piece := await reader.read(READ_BYTES):
            yield piece
        return
    while True:
        size = int((await reader.readline()).split(b";")[0] or b"0", 16)
        if size == 0:
            return
        yield await reader.readexactly(size)
        await reader.readexactly(2)


async def call(port, method, path, body=None, timeout=30):
    """(status, body). Raises ServerGone, also where the answer takes longer than `timeout`."""
    async def answer():
        reader, writer = await _open(port, method, path, body)
        try:
            status, headers = await _head(reader)
            return status, b"".join([piece async for piece in _pieces(reader, headers)])
        finally:
            writer.close()
    try:
        return await asyncio.wait_for(answer(), timeout)
    except asyncio.TimeoutError:
        raise ServerGone(f"{path}: no answer within {timeout:g} s") from None
    except (OSError, ValueError, asyncio.IncompleteReadError) as error:
        raise ServerGone(f"{path}: {error!r}") from None


class _Stream:
    """The events of one answer."""

    def __init__(self):
        self.first = self.last = None
        self.tokens = self.cached = 0
        self.intervals = []
        self.rest = b""
        self.error = None

    def take(self, piece, now):
        events = (self.rest + piece).split(b"\n\n")
        self.rest = events.pop()
        for event in events:
            self.event(event, now)

    def event(self, event, now):
        found = COMPLETION_TOKENS.search(event)
        if found is None:
            if b'"error"' in event or b'"abort"' in event:
                self.error = event[:300].decode("utf-8", "replace")
            return
        tokens = int(found.group(1))
        if tokens <= self.tokens:
            return
        if self.first is None:
            self.first = now
            cached = CACHED_TOKENS.search(event)
            self.cached = int(cached.group(1)) if cached else 0
        else:
            self.intervals.append(now - self.last)
        self.last, self.tokens = now, tokens


async def generate(port, prompt, output_tokens):
    """What one request saw; times of time.perf_counter(). With "error" where it failed."""
    body = json.dumps({"input_ids": prompt, "stream": True,
                       "sampling_params": {"temperature": 0, "max_new_tokens": output_tokens, "ignore_eos": True}}).encode()
    record = {"sent": time.perf_counter(), "isl": len(prompt)}
    stream = _Stream()
    try:
        reader, writer = await _open(port, "POST", "/generate", body)
        try:
            status, headers = await _head(reader)
            async for piece in _pieces(reader, headers):
                stream.take(piece, time.perf_counter())
            if status != 200:
                stream.error = f"HTTP {status}: {stream.rest[:300].decode('utf-8', 'replace')}"
        finally:
            writer.close()
    except (ServerGone, OSError, ValueError, asyncio.IncompleteReadError) as error:
        stream.error = repr(error)
    record.update(osl=stream.tokens, cached=stream.cached, first=stream.first, last=stream.last)
    if stream.error is None and stream.tokens < output_tokens:
        stream.error = f"{stream.tokens} of {output_tokens} tokens came"
    if stream.error is not None:
        record["error"] = stream.error
    if stream.intervals:
        ordered = sorted(stream.intervals)
        record["itl_p50"] = round(ordered[len(ordered) // 2], 6)
        record["itl_p99"] = round(ordered[int(len(ordered) * 0.99)], 6)
    return record


async def send(port, load, vocabulary):
    """The records of all requests of the load, in the order of their numbers, times from its beginning."""
    # Made before the clock starts: random numbers in Python take longer than a prefill.
    prompts = [request.prompt(vocabulary) for request in load.requests]
    records = [None] * len(prompts)
    begin = time.perf_counter()

    async def one(i):
        records[i] = await generate(port, prompts[i], load.requests[i].output_tokens)
        records[i]["i"] = i

    async def at_its_time(i):
        await asyncio.sleep(max(0.0, begin + load.requests[i].time - time.perf_counter()))
        await one(i)

    if load.concurrency is None:
        await asyncio.gather(*[at_its_time(i) for i in range(len(prompts))])
    else:
        numbers = iter(range(len(prompts)))

        async def worker():
            for i in numbers:
                await one(i)
        await asyncio.gather(*[worker() for _ in range(min(load.concurrency, len(prompts)))])
    for record in records:
        for key in ("sent", "first", "last"):
            if record[key] is not None:
                record[key] = round(record[key] - begin, 6)
    return records
