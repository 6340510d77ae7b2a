"""Questions for `tpsim plan`, drawn by a seed: a model and a GPU of the catalogue, how many of them, service levels, and
a short load. What plan_questions_test.py and the long test against SGLang's own parser ask.
"""

import json
import os
import random
import shlex

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
CATALOGUE = os.path.join(ROOT, "rank", "catalogue")
LENGTHS = ((256, 8), (1024, 16), (3000, 8), (128, 32), (6000, 4))
MOST = 4


def names(folder):
    return sorted(name[:-5] for name in os.listdir(os.path.join(CATALOGUE, folder)) if name.endswith(".json"))


def catalogue(folder, name):
    with open(os.path.join(CATALOGUE, folder, name + ".json")) as file:
        return json.load(file)


def looked_at(best):
    """Settings of an answer: the first MOST, and the first of each kind, which are pairs, heads and several nodes."""
    kinds, out = set(), []
    for rank, one in enumerate(best):
        flags = one["flags"]
        kind = (flags.get("speculative_algorithm"), "pd_disaggregation" in flags, " --nnodes " in one["launch"][0])
        if rank < MOST or kind not in kinds:
            out.append(one)
        kinds.add(kind)
    return out


def run_words(best, settled=()):
    """Behind `tpsim run`: the command of an answer; where it has several, its flags and those that were settled."""
    if len(best["launch"]) == 1:
        return shlex.split(best["launch"][0])
    model = shlex.split(best["launch"][0])
    words = ["--model-path", model[model.index("--model-path") + 1], *settled]
    for name, value in best["flags"].items():
        if name == "attention_backends":
            prefill, _, decode = value.partition("+")
            words += ["--prefill-attention-backend", prefill, "--decode-attention-backend", decode or prefill]
        else:
            words += ["--" + name.replace("_", "-"), *([] if value == "true" else [value])]
    return words


class Question:
    def __init__(self, seed):
        draw = random.Random(seed)
        prompt, answer = draw.choice(LENGTHS)
        self.model = draw.choice(names("models"))
        self.hardware = draw.choice(names("hardware"))
        self.gpus = draw.choice((1, 2, 3, 4, 8, 16))
        self.load = ["--dataset-name", "random", "--num-prompts", draw.choice(("4", "8", "12")), "--random-input-len",
                     str(prompt), "--random-output-len", str(answer), "--random-range-ratio", draw.choice(("0.2", "1")),
                     "--random-seed", str(seed)]
        self.load += draw.choice(([], ["--request-rate", draw.choice("148")], ["--max-concurrency", draw.choice("18")]))
        self.load += draw.choice(([], ["--slo", f"ttft:{draw.choice((300, 1000, 4000))}", f"tpot:{draw.choice((12, 30))}"],
                                  ["--slo", f"e2e:{draw.choice((1000, 5000))}"]))
        # Settled by the user; the rest is plan's to find.
        self.flags = ["--chunked-prefill-size", draw.choice(("2048", "4096", "8192")), "--schedule-policy",
                      draw.choice(("fcfs", "lpm"))]
        self.flags += draw.choice(([], [], ["--kv-cache-dtype", "fp8_e4m3"], ["--page-size", draw.choice(("16", "64"))],
                                   ["--mem-fraction-static", "0.8"]))

    def words(self):
        """Behind `tpsim plan`."""
        return ["--model-path", self.model, "--hardware", self.hardware, "--gpus", str(self.gpus), *self.load, *self.flags]
