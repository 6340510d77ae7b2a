"""When a benchmark sent what: its sends are needed to ask `tpsim run` for the very same load. Written as a trace in
tpsim's own format to the file of TPSIM_SENDS, texts as the ids of the tokenizer in TPSIM_TOKENIZER. How long the
benchmark had its clock running before the request was out of its hands stands, in seconds, in TPSIM_SENDS.before.
"""

import atexit
import json
import os
import time

import aiohttp
import transformers

_sent = []


class _Send:
    def __init__(self, body):
        self.asked = self.out = time.perf_counter()
        self.body = body


async def _out(session, context, params):
    if isinstance(context.trace_request_ctx, _Send):
        context.trace_request_ctx.out = time.perf_counter()


def record():
    """From now on, calls for tokens that aiohttp makes are recorded."""
    make, post = aiohttp.ClientSession.__init__, aiohttp.ClientSession.post
    trace = aiohttp.TraceConfig()
    trace.on_request_chunk_sent.append(_out)

    def made(session, *positional, **named):
        make(session, *positional, trace_configs=[trace], **named)

    def noted(session, url=None, json=None, **more):  # noqa: A002: aiohttp's name
        if str(url).rsplit("/", 1)[1] in ("generate", "completions"):
            _sent.append(_Send(json))
            more["trace_request_ctx"] = _sent[-1]
        return post(session, url, json=json, **more)

    aiohttp.ClientSession.__init__ = made
    aiohttp.ClientSession.post = noted
    atexit.register(write)


def write():
    encode = ids_of_four_bytes
    if folder := os.environ.get("TPSIM_TOKENIZER"):
        encode = transformers.AutoTokenizer.from_pretrained(folder).encode
    _sent.sort(key=lambda send: send.out)
    with open(os.environ["TPSIM_SENDS"], "w") as file:
        for send in _sent:
            sampling = send.body.get("sampling_params", send.body)
            tokens = sampling.get("max_new_tokens") or sampling.get("max_tokens") or sampling["max_completion_tokens"]
            prompt = send.body.get("input_ids") or send.body.get("prompt") or send.body.get("text")
            ids = prompt if isinstance(prompt, list) else encode(prompt)
            file.write(json.dumps({"arrival_time": send.out, "prompt_ids": ids, "max_new_tokens": tokens}) + "\n")
    with open(os.environ["TPSIM_SENDS"] + ".before", "w") as file:
        json.dump([send.out - send.asked for send in _sent], file)


def ids_of_four_bytes(text):
    """As many ids as launch/tokenizer/four_bytes.h makes of a text, equal where it has equal ones."""
    data = text.encode()
    return [int.from_bytes(data[at:at + 4], "little") for at in range(0, len(data), 4)]
