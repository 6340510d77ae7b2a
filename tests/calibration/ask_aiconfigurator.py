"""What AIConfigurator answers about servers: regret.py's questions, a line of JSON each, and its answers in their order.

Run by regret.py with a Python that has `aiconfigurator` (0.12 was tried). A question: model, system, tp_size, pp_size,
attention_dp_size, ep_size, isl, osl, concurrency, weights ("", "fp8", "fp4"), kv ("", "fp8"), attention_backend. An answer:
{"ttft_ms", "tpot_ms"}, or {"reason"} where it has none.
"""

import json
import logging
import sys

from aiconfigurator.cli.api import cli_estimate

# Released weights of its own list, where SGLang quantises them or they go by another name.
MODELS = {"llama-3.1-8b": "meta-llama/Meta-Llama-3.1-8B", "llama-3.1-8b-instruct": "meta-llama/Meta-Llama-3.1-8B",
          "qwen3-30b-a3b": "Qwen/Qwen3-30B-A3B", "qwen3-32b": "Qwen/Qwen3-32B",
          "deepseek-v3": "deepseek-ai/DeepSeek-V3", "deepseek-r1": "deepseek-ai/DeepSeek-R1"}
# Tokens of prompts in a step. Its own default, one prompt, chose worse.
CHUNK = 8192
MIXTURES = ("qwen3-30b-a3b", "deepseek-v3", "deepseek-r1")


def answer(asked):
    name = asked["model"].split("/")[-1].lower()
    if name not in MODELS:
        return {"reason": f"it has no {name}"}
    words = {}
    if name in MIXTURES:
        words = {"moe_ep_size": asked["ep_size"], "moe_tp_size": asked["tp_size"] // asked["ep_size"]}
    if asked["weights"] == "fp4":
        words |= {"gemm_quant_mode": "nvfp4", "moe_quant_mode": "nvfp4"}
    elif asked["weights"] == "fp8" and name not in MIXTURES:  # those of DeepSeek are released so
        words |= {"gemm_quant_mode": "fp8"}
    if asked["kv"]:
        words |= {"kvcache_quant_mode": asked["kv"]}
    if asked["attention_backend"] in ("fa3", "triton", "flashinfer", "trtllm_mha"):
        words |= {"attention_backend": asked["attention_backend"]}
    elif asked["attention_backend"] != "trtllm_mla":  # what it takes for MLA on Blackwell without being told
        return {"reason": f"it has no {asked['attention_backend']}"}
    try:
        said = cli_estimate(MODELS[name], asked["system"], backend_name="sglang", backend_version="current",
                            isl=asked["isl"], osl=asked["osl"],
                            batch_size=asked["concurrency"] // asked["attention_dp_size"],
                            tp_size=asked["tp_size"] // asked["attention_dp_size"], pp_size=asked["pp_size"],
                            attention_dp_size=asked["attention_dp_size"], ctx_tokens=CHUNK, **words)
    except Exception as error:  # its own say what they lack
        return {"reason": f"{type(error).__name__}: {str(error)[:70]}"}
    return {"ttft_ms": float(said.ttft), "tpot_ms": float(said.tpot)}


if __name__ == "__main__":
    logging.disable(logging.ERROR)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
