"""Random deployments and workloads: the same for a seed and a kind everywhere.

A request is a dict: arrival (ticks of 2^-20 s since the first), prompt and output as runs [[first id, length], …],
max_new_tokens, ignore_eos, priority (or None), extra_key (or None). Equal ids are equal tokens, and EOS ends a request
that does not ignore it; its output is then shorter than max_new_tokens.
"""

import itertools
import random

TICKS = 1 << 20  # in a second
EOS = 2
RUN = 1 << 16  # runs of ids begin at its multiples and are shorter; SGLang's vocabulary has 30,000 of them
PAGE_SIZES = (1, 16, 32, 64, 128)
POLICIES = ("lpm", "fcfs", "dfs-weight", "lof")  # "random" has a generator of its own on each side
EVICTION = ("lru", "lru", "lru", "lfu", "slru", "fifo", "mru", "filo", "priority", "priority")
EXTRA_KEYS = (None, "tenant-a", "tenant-b")


class Shape:
    """How large a workload is: counts and longest lengths in tokens."""

    def __init__(self, counts, system, document, turn, outputs):
        self.counts, self.system, self.document, self.turn, self.outputs = counts, system, document, turn, outputs


KINDS = {
    "usual": Shape((5, 12, 30, 60, 160, 250), 400, 600, 300, (4, 16, 64, 200, 600)),
    # Many decode at once and grow: requests are retracted.
    "pressure": Shape((16, 30), 50, 75, 38, (200, 400)),
    # The same, and their answers end unforeseen: nobody has reserved all that they may become.
    "starved": Shape((24, 40), 50, 75, 38, (200, 400)),
    "small": Shape((4, 8, 14, 24), 150, 200, 120, (3, 12, 30, 60)),
    "long": Shape((2000, 3000, 5000), 200, 300, 100, (2, 8, 24)),
    # A model with gated delta-net layers: every request has states, cached prefixes some.
    "states": Shape((5, 12, 30, 60, 160), 500, 700, 300, (4, 16, 64, 300, 600)),
}
# What `speculate` makes: n-grams; heads (EAGLE, EAGLE3) that draft chains, and trees; a second model.
SPECULATIONS = ("ngram", "chain", "tree", "standalone")
STATE_STRATEGIES = ("no_buffer", "extra_buffer", "extra_buffer", "extra_buffer")
STATE_CHUNK = 64  # tokens: states are taken at multiples of it, or of a page


def make(seed, kind="usual", release="0.5.23", windows=False):
    """(config, requests)."""
    rng = random.Random(f"{kind} {seed}")
    config = _deployment(rng)
    if kind == "usual" and rng.random() < 0.2:
        kind = "pressure"
    # What all kinds share with "pressure": outputs that grow while many run.
    growing = kind in ("pressure", "starved") or (kind in ("small", "states") and rng.random() < 0.25)
    if growing:
        config["max_running_requests"] = rng.choice((16, 64))
        config["schedule_conservativeness"] = rng.choice((0.1, 0.3))
    _priorities(rng, config, release)
    if kind == "starved":  # many come at once and run at once, whatever the pool
        config.update(max_running_requests=rng.choice((24, 64)), schedule_conservativeness=rng.choice((0.05, 0.1)),
                      max_concurrency=0)
        config.pop("preempts", None)
    requests = _requests(rng, config, KINDS[kind], growing, stops=kind == "starved")
    _arrivals(rng, config, requests, kind)
    _pool(rng, config, requests, growing)
    if kind == "states":
        _states(rng, config)
    config.update(seed=seed, kind=kind, sliding_window=0, swa_full_tokens_ratio=0.0)
    if windows:
        add_windows(config, requests)
    return config, requests


def speculate(config, requests, sort, release="0.5.23"):
    """The same with speculation of one of SPECULATIONS: how many drafts a step verifies, and how many tokens each
    request keeps of its first step, its second, ...; of those after, as of the last."""
    name = "speculate" if sort == "ngram" else f"speculate {sort}"
    rng = random.Random(f"{name} {config['kind']} {config['seed']}")
    if sort == "ngram":
        algorithm, steps, topk, drafts = "NGRAM", 1, 1, rng.choice((2, 4, 8, 12))
        longest = drafts
    else:
        algorithm = "STANDALONE" if sort == "standalone" else rng.choice(("EAGLE", "EAGLE3"))
        wide = sort == "tree" or (sort == "standalone" and rng.random() < 0.4)
        steps, topk = rng.randrange(2 if wide else 1, 6), rng.choice((2, 4, 8)) if wide else 1
        drafts = rng.randrange(2, min(topk + (steps - 1) * topk * topk, 24) + 2) if wide else steps + 1
        longest = min(steps + 1, drafts)
    config.update(speculative_algorithm=algorithm, speculative_num_steps=steps, speculative_eagle_topk=topk,
                  speculative_num_draft_tokens=drafts)
    if algorithm in ("NGRAM", "STANDALONE") or release != "0.5.23":
        config["enable_mixed_chunk"] = False
    if release == "0.5.12" and (algorithm == "NGRAM" or topk > 1):  # spec v1
        config["disable_overlap_schedule"] = True
    if release == "0.5.12" and algorithm != "NGRAM" and config["disable_overlap_schedule"]:
        # Its spec v1 fails where a request is preempted (EagleDraftInput.filter_batch).
        config["disable_priority_preemption"] = config["enable_priority_scheduling"]
    for request in requests:
        luck = rng.choice((0.0, 0.5, 0.9, 1.0))
        request["accept_lens"] = [
            1 + sum(1 for _ in itertools.takewhile(lambda _: rng.random() < luck, range(longest - 1)))
            for _ in range(rng.randrange(1, 40))
        ]


def cancel(config, requests):
    """The same, and the clients of some requests want no more of them after a while: `cancel` (ticks)."""
    rng = random.Random(f"cancel {config['kind']} {config['seed']}")
    config["max_concurrency"] = 0  # a request is sent when it says
    share, mean = rng.choice((0.1, 0.3, 0.6)), rng.choice((0.003, 0.03, 0.3, 2.0))
    for request in requests:
        if rng.random() < share:
            request["cancel"] = request["arrival"] + 1 + int(rng.expovariate(1 / mean) * TICKS)


def add_windows(config, requests):
    """Gives window layers a pool of their own: `sliding_window` tokens, `swa_full_tokens_ratio`."""
    rng = random.Random(f"windows {config['kind']} {config['seed']}")
    page, tokens = config["page_size"], config["max_total_tokens"]
    window = rng.choice((1, 5, 16, 31, 63, 64, 127, 200, 400))
    ratio = rng.choice((0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 0.8, 1.0))
    # SGLang asks for more than a window and a page; a prompt that is not cut into chunks needs room as a whole.
    while window + page >= swa_tokens(tokens, ratio, page):
        if ratio < 1.0:
            ratio = min(1.0, round(2 * ratio, 2))
        elif window > 1:
            window //= 2
        else:
            config["max_total_tokens"] = tokens = tokens + page
    config.update(sliding_window=window, swa_full_tokens_ratio=ratio)


def swa_tokens(tokens, ratio, page):
    return int(tokens * ratio) // page * page


def _deployment(rng):
    page = rng.choice(PAGE_SIZES)
    chunk = rng.choice((-1, 64, 128, 256, 512, 2048))
    if chunk > 0:  # SGLang asks for whole pages
        chunk = max(chunk, page)
    return {
        "page_size": page,
        "schedule_policy": rng.choice(POLICIES),
        "chunked_prefill_size": chunk,
        "max_prefill_tokens": rng.choice((16384, 16384, 16384, 256, 1024)),
        "enable_mixed_chunk": rng.random() < 0.3,
        "disable_overlap_schedule": rng.random() < 0.5,
        "disable_radix_cache": rng.random() < 0.15,
        "eviction_policy": rng.choice(EVICTION),
        "max_running_requests": rng.choice((2, 4, 8, 16, 64, 200)),
        "schedule_conservativeness": rng.choice((1.0, 1.0, 0.3, 0.1)),
        "max_concurrency": rng.choice((1, 3, 10, 40)) if rng.random() < 0.2 else 0,
    }


def _priorities(rng, config, release):
    scheduled = rng.random() < 0.35
    by_priority = rng.random() < 0.2 and scheduled and release == "0.5.23"
    config.update(
        enable_priority_scheduling=scheduled,
        schedule_low_priority_values_first=scheduled and rng.random() < 0.4,
        priority_scheduling_preemption_threshold=rng.choice((0, 1, 3, 10)) if scheduled else 10,
        disable_priority_preemption=scheduled and rng.random() < 0.25,
        retraction_policy="priority" if by_priority else "length",
    )
    if scheduled:
        config["schedule_policy"] = rng.choice(("fcfs", "lof"))  # SGLang refuses others
        if not config["disable_priority_preemption"] and rng.random() < 0.7:
            # Places are scarce and important requests come late: some are preempted.
            config["max_running_requests"] = rng.choice((2, 4, 8))
            config["priority_scheduling_preemption_threshold"] = rng.choice((0, 0, 1, 3))
            config["preempts"] = True
    # Priorities also order the "priority" eviction, without priority scheduling, too.
    given = scheduled or config["eviction_policy"] == "priority" or rng.random() < 0.1
    ranges = ((0, 1), (0, 1, 2, 3), (-20, -3, 0, 4, 11, 30), (None, -4, 0, 7))  # None: the request has none
    config["priorities"] = rng.choice(ranges) if given else ()


def _requests(rng, config, shape, growing, stops=False):
    runs = itertools.count(1)

    def fresh(length):  # ids that nothing else has
        return [(next(runs) * RUN, length)]

    count, longest_output = rng.choice(shape.counts), rng.choice(shape.outputs)
    if longest_output >= 600:
        count = min(count, 30)
    if config.get("preempts"):
        longest_output = max(longest_output, 30)
    extra_keys = EXTRA_KEYS if rng.random() < 0.3 else (None,)
    minds_eos = rng.choice((0.7, 1.0) if stops else (0.0, 0.0, 0.5, 1.0))  # share of the requests
    if config["disable_radix_cache"]:
        # SGLang may then truncate two requests in one pass, one of each sort, and forget the rest of the first's
        # prompt (PrefillAdder.add_one_req, add_one_req_ignore_eos).
        minds_eos = round(minds_eos)
    systems = [fresh(rng.randrange(1, shape.system)) for _ in range(rng.choice((1, 2, 5)))]
    documents = [rng.choice(systems) + fresh(rng.randrange(1, shape.document)) for _ in range(rng.choice((1, 3, 8)))]
    requests = []
    for _ in range(count):
        base, extra_key = [], rng.choice(extra_keys)
        kind = rng.random()
        if 0.25 <= kind < 0.5:
            base = rng.choice(systems)
        elif 0.5 <= kind < 0.75:
            base = rng.choice(documents)
        elif kind >= 0.75 and requests:  # the next turn of a conversation, or a part of an earlier prompt
            earlier = requests[rng.randrange(max(0, len(requests) - 200), len(requests))]
            if rng.random() < 0.8:
                extra_key = earlier["extra_key"]
            base = earlier["prompt"] + (earlier["output"] if rng.random() < 0.7 else [])
            if rng.random() < 0.3 or total(base) > 4 * (shape.system + shape.document + shape.turn):
                base = cut(base, rng.randrange(1, 1 + min(total(base), 2 * shape.document)))
        prompt = base + (fresh(rng.randrange(1, shape.turn)) if rng.random() < 0.95 or not base else [])
        length = rng.randrange(longest_output // 2 if growing else 1, longest_output + 1)
        output, wanted, ignore_eos = fresh(length), length, True
        if rng.random() < minds_eos:
            ignore_eos = False
            if rng.random() < 0.6:
                output = [*cut(output, length - 1), (EOS, 1)]
                wanted = length + rng.choice((0, 1, 5, 40, 400))
        requests.append({
            "prompt": prompt, "output": output, "max_new_tokens": wanted, "ignore_eos": ignore_eos,
            "extra_key": extra_key, "priority": rng.choice(config["priorities"]) if config["priorities"] else None,
        })
    return requests


def _arrivals(rng, config, requests, kind):
    if kind == "starved":
        spread = rng.choice(("at once", "at once", "bursts"))
    else:
        spread = "spread" if config.pop("preempts", False) else rng.choice(("at once", "at once", "bursts", "spread"))
    mean = 0.004 if kind == "long" else 0.02  # seconds
    at = 0
    for i, request in enumerate(requests):
        if i > 0 and spread == "bursts" and i % 10 == 9:
            at += int(rng.choice((0.0371, 0.213, 5.017)) * TICKS)
        elif i > 0 and spread == "spread":
            at += int(rng.expovariate(1 / mean) * TICKS)
        request["arrival"] = at
    config["arrivals"] = spread


def _pool(rng, config, requests, growing):
    longest = max(total(r["prompt"]) + r["max_new_tokens"] for r in requests)
    pool = rng.choice(("tight", "small") if growing else ("clipped", "tight", "tight", "small", "ample"))
    page = config["page_size"]
    if pool == "clipped":  # some prompts fit, but not with all the output that they ask for
        prompts = max(total(r["prompt"]) for r in requests)
        tokens = max(prompts + 2 * page + 16, int(longest * rng.uniform(0.8, 1.1)))
    elif pool == "tight":
        tokens = int(longest * rng.uniform(1.15, 2.5)) + 2 * page + 16
    elif pool == "small":
        tokens = int(longest * rng.uniform(2.5, 6)) + 2 * page + 16
    else:
        tokens = sum(total(r["prompt"]) + r["max_new_tokens"] for r in requests[:400]) + 4096
    config["max_total_tokens"] = (tokens + page - 1) // page * page
    config["pool"] = pool


def _states(rng, config):
    """The state pool: from just enough for what runs to room for many prefixes."""
    config["disable_radix_cache"] = False
    strategy = rng.choice(STATE_STRATEGIES)
    if strategy == "no_buffer":  # SGLang asks for that
        config["max_total_tokens"] += config["page_size"]
        config.update(page_size=1, disable_overlap_schedule=True)
    config["mamba_radix_cache_strategy"] = strategy
    config["mamba_track_interval"] = rng.choice((128, 256, 256))
    each = state_slots_per_request(config)
    config["max_running_requests"] = rng.choice((2, 4, 8, 16))
    spare = rng.choice((0, 1, 2, 5, 20, 60))
    config["max_mamba_cache_size"] = each * config["max_running_requests"] + spare


def has_states(config):
    return "mamba_radix_cache_strategy" in config


def state_slots_per_request(config):
    """SGLang 0.5.23, mem_cache/kv_cache_configurator.py, _calculate_mamba_ratio."""
    if config["mamba_radix_cache_strategy"] == "no_buffer":
        return 3
    return 4 if config["disable_overlap_schedule"] else 5


def total(runs):
    return sum(length for _, length in runs)


def cut(runs, tokens):
    """The first `tokens` of `runs`."""
    out = []
    for first, length in runs:
        take = min(length, tokens)
        if take == 0:
            break
        out.append((first, take))
        tokens -= take
    return out


def spell(runs):
    ids = []
    for first, length in runs:
        ids.extend(range(first, first + length))
    return ids
