#!/usr/bin/env python3
"""Records the metrics that a real SGLang has: names, types, help texts, labels and buckets of its collectors.

Usage: record_metrics.py SGLANG FILE      SGLANG: the folder `sglang` of an unpacked wheel (0.5.12)

Runs SGLang's own observability/metrics_collector.py over the real prometheus_client; only what that file imports of the
rest of SGLang (which wants torch) is stood in for. FILE is tests/golden/sglang/metrics.json.
"""

import importlib.util
import json
import re
import sys
import types
from pathlib import Path

import prometheus_client

MODULES = ("sglang", "sglang.srt", "sglang.srt.environ", "sglang.srt.model_executor",
           "sglang.srt.model_executor.forward_batch_info", "sglang.srt.server_args", "sglang.srt.utils",
           "sglang.srt.utils.gauge_histogram", "sglang.srt.observability", "sglang.srt.observability.utils",
           "sglang.srt.observability.metrics_collector")


class Anything:
    """Whatever is asked of it, it is not set."""

    def __getattr__(self, name):
        return None if name.startswith("_") else Anything()

    def get(self):
        return False


class ServerArgs:
    """The defaults that the collectors look at."""

    prompt_tokens_buckets = generation_tokens_buckets = None
    prefill_delayer_max_delay_passes = 30
    prefill_delayer_forward_passes_buckets = prefill_delayer_wait_seconds_buckets = None


def load(folder):
    for name in MODULES:
        sys.modules[name] = types.ModuleType(name)
    sys.modules["sglang.srt.environ"].envs = Anything()
    sys.modules["sglang.srt.model_executor.forward_batch_info"].ForwardMode = Anything
    sys.modules["sglang.srt.server_args"].ServerArgs = ServerArgs
    sys.modules["sglang.srt.utils"].get_bool_env_var = lambda name: False
    for name in ("utils.gauge_histogram", "observability.utils", "observability.metrics_collector"):
        file = folder / "srt" / (name.replace(".", "/") + ".py")
        spec = importlib.util.spec_from_file_location("sglang.srt." + name, file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    return sys.modules["sglang.srt.observability.metrics_collector"]


def main(folder, file):
    folder = Path(folder)
    collectors = load(folder)
    tokenizer = {"model_name": "m", "engine_type": "unified"}
    scheduler = {**tokenizer, "tp_rank": 0, "pp_rank": 0, "moe_ep_rank": 0}
    collectors.SchedulerMetricsCollector(scheduler, server_args=ServerArgs())
    collectors.TokenizerMetricsCollector(ServerArgs(), tokenizer)
    collectors.RadixCacheMetricsCollector({"cache_type": "RadixCache"})
    # The middleware's are made inside a function that wants the whole server; its text says the same.
    common = (folder / "srt/utils/common.py").read_text()
    middleware = common[common.index("def add_prometheus_track_response_middleware"):]
    for kind, name, text, labels in re.findall(
            r"(Counter|Gauge)\(\s*name=\"(sglang:http\w+)\",\s*documentation=\"([^\"]+)\",\s*labelnames=(\[[^\]]+\])",
            middleware[:middleware.index("routing_keys_active")]):
        getattr(prometheus_client, kind)(name, text, labelnames=json.loads(labels))

    metrics = {}
    for collector in prometheus_client.REGISTRY._collector_to_names:
        name = getattr(collector, "_name", "")
        if not name.startswith("sglang:"):
            continue
        metric = {"type": collector._type, "help": collector._documentation, "labels": list(collector._labelnames)}
        if collector._type == "histogram":
            metric["le"] = [prometheus_client.utils.floatToGoString(b) for b in
                            [*map(float, collector._kwargs["buckets"]), float("inf")]]
        metrics[name + ("_total" if collector._type == "counter" else "")] = metric
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(metric)}" for name, metric in sorted(metrics.items()))
    Path(file).write_text(f'{{"sglang": "0.5.12", "metrics": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
