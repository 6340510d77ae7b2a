"""Loads by their names, as requests to be sent.

    closed:INPUT:OUTPUT:CONCURRENCY:PROMPTS   PROMPTS requests of equal lengths, CONCURRENCY of them in flight
    burst:INPUT:OUTPUT:PROMPTS                all at once
    random:INPUT:OUTPUT:RATE:PROMPTS          lengths from half of these up, RATE requests a second (Poisson)
    azure:FROM_S:TO_S:SCALE                   that slice of azure_2023_conv.csv, times multiplied by SCALE
    mooncake:FROM_S:TO_S:SCALE                that slice of mooncake_conversation.jsonl, whose prompts share prefixes

`tpsim validate` and `tpsim calibrate` know the same names. A prompt is random token ids, the same for the same load and
request everywhere, and unrelated to all others but for Mooncake's.
"""

import csv
import datetime
import gzip
import json
import os
import random

FORMS = {
    "closed": ("closed:INPUT:OUTPUT:CONCURRENCY:PROMPTS", int),
    "burst": ("burst:INPUT:OUTPUT:PROMPTS", int),
    "random": ("random:INPUT:OUTPUT:RATE:PROMPTS", float),
    "azure": ("azure:FROM_S:TO_S:SCALE", float),
    "mooncake": ("mooncake:FROM_S:TO_S:SCALE", float),
}
TRACES = {"azure": ("azure_2023_conv.csv", "azure_2023_conv.csv.gz"),
          "mooncake": ("mooncake_conversation.jsonl", "mooncake_conversation.jsonl.gz", "mooncake.jsonl")}
MOONCAKE_BLOCK = 512  # tokens that one of the trace's hash ids stands for
LEAST_TOKEN = 100     # below it are tokens with a meaning of their own


class BadLoad(Exception):
    """A load that is misspelt, or whose trace is not there; one sentence."""


class Request:
    """`time`: seconds after the load began; `prompt`: what makes its token ids."""

    def __init__(self, time, prompt, output_tokens):
        self.time, self.prompt, self.output_tokens = time, prompt, output_tokens


class Load:
    """`concurrency`: requests in flight at most, the next sent as one ends; None: each at its time."""

    def __init__(self, name, requests, concurrency):
        self.name, self.requests, self.concurrency = name, requests, concurrency


def _tokens(seed, count, vocabulary):
    numbers = random.Random(repr(seed))
    return [numbers.randrange(LEAST_TOKEN, vocabulary) for _ in range(count)]


def _fresh(name, i, count):
    return lambda vocabulary: _tokens((name, i), count, vocabulary)


def _numbers(name):
    kind, *words = name.split(":")
    if kind not in FORMS:
        raise BadLoad(f"load {name}: must begin with {', '.join(FORMS)}")
    form, number = FORMS[kind]
    try:
        numbers = [number(word) for word in words]
    except ValueError:
        raise BadLoad(f"load {name}: must be {form}") from None
    least = 1 if number is int else 0
    if len(numbers) != form.count(":") or any(value < least for value in numbers):
        raise BadLoad(f"load {name}: must be {form}")
    return kind, numbers


def _trace(kind, name, folder):
    for file in TRACES[kind]:
        path = os.path.join(folder or ".", file)
        if os.path.exists(path):
            return gzip.open(path, "rt") if path.endswith(".gz") else open(path)
    raise BadLoad(f"load {name}: {folder or 'this folder'} has no {TRACES[kind][0]}; name its folder with --traces")


def _azure(name, begin, end, scale, folder):
    requests, first = [], None
    with _trace("azure", name, folder) as lines:
        for i, row in enumerate(csv.DictReader(lines)):
            time = datetime.datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp()
            first = time if first is None else first
            if begin <= time - first < end:
                requests.append(Request((time - first - begin) * scale,
                                        _fresh("azure", i, int(row["ContextTokens"])),
                                        max(1, int(row["GeneratedTokens"]))))
    return requests


def _blocks(hash_ids, count):
    def prompt(vocabulary):
        tokens = [token for block in hash_ids for token in _tokens(("block", block), MOONCAKE_BLOCK, vocabulary)]
        return tokens[:count]
    return prompt


def _mooncake(name, begin, end, scale, folder):
    requests = []
    with _trace("mooncake", name, folder) as lines:
        for line in lines:
            row = json.loads(line)
            time = row["timestamp"] / 1e3
            if begin <= time < end:
                requests.append(Request((time - begin) * scale, _blocks(row["hash_ids"], row["input_length"]),
                                        max(1, row["output_length"])))
    return requests


def make_load(name, traces=None):
    """The load that `name` stands for. Raises BadLoad."""
    kind, numbers = _numbers(name)
    if kind == "closed":
        input_tokens, output_tokens, concurrency, count = numbers
        requests = [Request(0, _fresh(name, i, input_tokens), output_tokens) for i in range(count)]
        return Load(name, requests, concurrency)
    if kind == "burst":
        input_tokens, output_tokens, count = numbers
        return Load(name, [Request(0, _fresh(name, i, input_tokens), output_tokens) for i in range(count)], None)
    if kind == "random":
        if numbers[2] == 0 or min(numbers[0], numbers[1], numbers[3]) < 1:
            raise BadLoad(f"load {name}: must be {FORMS[kind][0]}")
        draw, time, requests = random.Random(name), 0.0, []
        for i in range(int(numbers[3])):
            lengths = [max(1, round(draw.uniform(0.5, 1) * mean)) for mean in numbers[:2]]
            requests.append(Request(time, _fresh(name, i, lengths[0]), lengths[1]))
            time += draw.expovariate(numbers[2])
        return Load(name, requests, None)
    requests = (_azure if kind == "azure" else _mooncake)(name, *numbers, traces)
    if not requests:
        raise BadLoad(f"load {name}: the trace has no request between {numbers[0]:g} and {numbers[1]:g} s")
    return Load(name, requests, None)
