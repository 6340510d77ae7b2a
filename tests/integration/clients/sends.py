"""When a benchmark asked for what, by its own clock: `tpsim run` is asked for the very same load. Written as a trace in
tpsim's own format to the file of TPSIM_SENDS, texts as the ids of the tokenizer in TPSIM_TOKENIZER.
"""

import atexit
import json
import os
import time

import aiohttp
import transformers

_sent = []


def record():
    """From now on, calls for tokens that aiohttp makes are recorded."""
    post = aiohttp.ClientSession.post

    def noted(session, url=None, json=None, **more):  # noqa: A002: aiohttp's name
        # Both benchmarks take their time right before this.
        if str(url).rsplit("/", 1)[1] in ("generate", "completions"):
            _sent.append((time.perf_counter(), json))
        return post(session, url, json=json, **more)

    aiohttp.ClientSession.post = noted
    atexit.register(write)


def write():
    encode = ids_of_four_bytes
    if folder := os.environ.get("TPSIM_TOKENIZER"):
        encode = transformers.AutoTokenizer.from_pretrained(folder).encode
    with open(os.environ["TPSIM_SENDS"], "w") as file:
        for asked, body in _sent:
            sampling = body.get("sampling_params", body)
            tokens = sampling.get("max_new_tokens") or sampling.get("max_tokens") or sampling["max_completion_tokens"]
            prompt = body.get("input_ids") or body.get("prompt") or body.get("text")
            ids = prompt if isinstance(prompt, list) else encode(prompt)
            file.write(json.dumps({"arrival_time": asked, "prompt_ids": ids, "max_new_tokens": tokens}) + "\n")


def ids_of_four_bytes(text):
    """As many ids as launch/tokenizer/four_bytes.h makes of a text, equal where it has equal ones."""
    data = text.encode()
    return [int.from_bytes(data[at:at + 4], "little") for at in range(0, len(data), 4)]
