"""When a benchmark asked for what, by its own clock: `tpsim run` is asked for the very same load. Written as a trace in
tpsim's own format to the file of TPSIM_SENDS, texts as the ids of the tokenizer in TPSIM_TOKENIZER. Beside it, with
`.waits` behind its name, a line for each of them: seconds from then until its body went to the socket.
"""

import atexit
import contextvars
import json
import os
import time

import aiohttp
import transformers

_sent = []  # [asked, body, when it was written]
_asking = contextvars.ContextVar("asking", default=None)  # of _sent, whose request this task makes


async def _written(session, context, chunk):
    if (row := _asking.get()) is not None:
        row[2] = time.perf_counter()


def record():
    """From now on, calls for tokens that aiohttp makes are recorded."""
    post = aiohttp.ClientSession.post
    begin = aiohttp.ClientSession.__init__

    def traced(session, *words, trace_configs=None, **more):
        trace = aiohttp.TraceConfig()
        trace.on_request_chunk_sent.append(_written)
        begin(session, *words, trace_configs=[*(trace_configs or []), trace], **more)

    def noted(session, url=None, json=None, **more):  # noqa: A002: aiohttp's name
        # Both benchmarks take their time right before this.
        if str(url).rsplit("/", 1)[1] in ("generate", "completions"):
            _sent.append([time.perf_counter(), json, None])
            _asking.set(_sent[-1])
        return post(session, url, json=json, **more)

    aiohttp.ClientSession.__init__ = traced
    aiohttp.ClientSession.post = noted
    atexit.register(write)


def write():
    encode = ids_of_four_bytes
    if folder := os.environ.get("TPSIM_TOKENIZER"):
        encode = transformers.AutoTokenizer.from_pretrained(folder).encode
    with open(os.environ["TPSIM_SENDS"], "w") as file, open(os.environ["TPSIM_SENDS"] + ".waits", "w") as waits:
        for asked, body, written in _sent:
            waits.write(f"{written - asked}\n")
            sampling = body.get("sampling_params", body)
            tokens = sampling.get("max_new_tokens") or sampling.get("max_tokens") or sampling["max_completion_tokens"]
            prompt = body.get("input_ids") or body.get("prompt") or body.get("text")
            ids = prompt if isinstance(prompt, list) else encode(prompt)
            file.write(json.dumps({"arrival_time": asked, "prompt_ids": ids, "max_new_tokens": tokens}) + "\n")


def ids_of_four_bytes(text):
    """As many ids as four_bytes_a_token() of launch/tokenizer makes of a text, equal where it has equal ones."""
    data = text.encode()
    return [int.from_bytes(data[at:at + 4], "little") for at in range(0, len(data), 4)]
