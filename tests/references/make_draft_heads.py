#!/usr/bin/env python3
"""Makes the reference values of drafts that are computed: tiny heads (EAGLE, EAGLE3, NEXTN) for tiny target models,
trained for some seconds on what their targets say, what plain PyTorch says they compute, and how many tokens each step
of whole greedy runs keeps.

Usage: make_draft_heads.py FOLDER [NAME ...]      FOLDER: tests/golden/heads, beside tests/golden/models; NAME: only these

Needs what make_references.py needs. Heads are written down here from the equations of the papers (EAGLE: Li et al.
2024; EAGLE-3: Li et al. 2025; DeepSeek-V3 technical report, section 2.2) and SGLang's models and workers
(models/llama_eagle.py, llama_eagle3.py, deepseek_nextn.py; speculative/eagle_worker_v2.py, spec_utils.py,
eagle_utils.py of 0.5.23), without caches: every pass is computed anew from what its slots were given.
"""

import json
import os
import sys

import safetensors.torch
import torch
import transformers

import make_references as base

NEW_TOKENS = 64
BEYOND = 8  # tokens that the last step may keep behind them
# Steps, guesses, drafts that are verified.
TREES = [(3, 1, 4), (3, 2, 6), (4, 4, 8), (2, 3, 9)]
# Probabilities that decide something differ by this much of the larger one.
LEAST_GAP = 2e-5

# Deep enough for EAGLE3's three layers by default: 2, n / 2, n - 3.
base.MODELS["llama-deep"] = ("Llama", {"num_hidden_layers": 7, "hidden_size": 32, "head_dim": 8, "intermediate_size": 32,
                                       **base.rope("default")}, {})
TARGETS = {"eagle": "llama", "eagle3": "llama-deep", "nextn": "deepseek-v3", "standalone": "llama"}
EAGLE3_VOCABULARY = 96


def norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


class Target:
    """A model of Transformers: its greedy tokens, and the hidden states that heads read."""

    def __init__(self, model):
        self.model = model
        self.config = model.config
        self.embedding = model.get_input_embeddings().weight.detach()
        self.head = model.get_output_embeddings().weight.detach()

    def look(self, ids):
        """Logits, what the output head reads, and what goes into each layer: of every token."""
        with torch.no_grad():
            out = self.model(torch.tensor([ids]), use_cache=False, output_hidden_states=True)
        return out.logits[0], out.hidden_states[-1][0], [x[0] for x in out.hidden_states[:-1]]

    def greedy(self, ids, count):
        ids = list(ids)
        for _ in range(count):
            ids.append(int(base.logits_of(self.model, ids).argmax()))
        return ids


class LlamaLayer(torch.nn.Module):
    """One layer of a Llama, by hand. Its queries, keys and values are made of `inputs` numbers."""

    def __init__(self, config, inputs):
        super().__init__()
        hidden, dim = config.hidden_size, config.head_dim
        self.config = config
        shapes = {"self_attn.q_proj": (config.num_attention_heads * dim, inputs),
                  "self_attn.k_proj": (config.num_key_value_heads * dim, inputs),
                  "self_attn.v_proj": (config.num_key_value_heads * dim, inputs),
                  "self_attn.o_proj": (hidden, config.num_attention_heads * dim),
                  "mlp.gate_proj": (config.intermediate_size, hidden), "mlp.up_proj": (config.intermediate_size, hidden),
                  "mlp.down_proj": (hidden, config.intermediate_size)}
        self.weights = torch.nn.ParameterDict(
            {name.replace(".", "/"): torch.nn.Parameter(torch.randn(shape) / shape[1] ** 0.5)
             for name, shape in shapes.items()})
        self.post_norm = torch.nn.Parameter(torch.ones(hidden))

    def tensors(self):
        out = {name.replace("/", ".") + ".weight": value for name, value in self.weights.items()}
        return {**out, "post_attention_layernorm.weight": self.post_norm}

    def linear(self, name, x):
        return x @ self.weights[name.replace(".", "/")].T

    def forward(self, read, residual):
        """`read`: what attention reads [tokens, inputs]; token i is at position i."""
        config, tokens = self.config, read.shape[0]
        dim = config.head_dim
        frequency = config.rope_parameters["rope_theta"] ** -(torch.arange(0, dim, 2) / dim)
        angle = torch.arange(tokens)[:, None] * torch.cat([frequency, frequency])

        def heads(name, turned):
            x = self.linear("self_attn." + name, read).view(tokens, -1, dim).transpose(0, 1)
            if not turned:
                return x
            half = torch.cat([-x[..., dim // 2:], x[..., :dim // 2]], -1)
            return x * angle.cos() + half * angle.sin()

        q, k, v = heads("q_proj", True), heads("k_proj", True), heads("v_proj", False)
        group = q.shape[0] // k.shape[0]
        k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
        scores = q @ k.transpose(1, 2) / dim ** 0.5
        scores = scores.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), float("-inf"))
        attended = (scores.softmax(-1) @ v).transpose(0, 1).reshape(tokens, -1)
        x = residual + self.linear("self_attn.o_proj", attended)
        y = norm(x, self.post_norm, config.rms_norm_eps)
        y = torch.nn.functional.silu(self.linear("mlp.gate_proj", y)) * self.linear("mlp.up_proj", y)
        return x + self.linear("mlp.down_proj", y)


class Eagle(torch.nn.Module):
    """The embedding and the hidden state joined, then a layer without a norm before it; no last norm."""

    algorithm = "EAGLE"

    def __init__(self, target):
        super().__init__()
        self.target = target
        hidden = target.config.hidden_size
        self.layer = LlamaLayer(target.config, hidden)
        self.fc = torch.nn.Linear(2 * hidden, hidden)

    def read(self, look):
        return look[1]

    def forward(self, tokens, hidden):
        x = self.fc(torch.cat([self.target.embedding[tokens], hidden], -1))
        out = self.layer(x, x)
        return out @ self.target.head.T, out

    def token_of(self, index):
        return index

    def tensors(self):
        out = {"layers.0." + name: value for name, value in self.layer.tensors().items()}
        return {**out, "fc.weight": self.fc.weight, "fc.bias": self.fc.bias}

    def config(self):
        config = json.loads(self.target.config.to_json_string(use_diff=False))
        return {**base.classic_config(config), "architectures": ["LlamaForCausalLMEagle"], "num_hidden_layers": 1}


class Eagle3(torch.nn.Module):
    """Three hidden states joined, a layer that reads the embedding beside that, a vocabulary of its own."""

    algorithm = "EAGLE3"

    def __init__(self, target):
        super().__init__()
        self.target = target
        hidden = target.config.hidden_size
        self.layer = LlamaLayer(target.config, 2 * hidden)
        self.fc = torch.nn.Linear(3 * hidden, hidden, bias=False)
        self.norms = torch.nn.ParameterDict({name: torch.nn.Parameter(torch.ones(hidden))
                                             for name in ("embedding", "hidden", "last")})
        self.head = torch.nn.Parameter(torch.randn(EAGLE3_VOCABULARY, hidden) / hidden ** 0.5)
        kept = torch.randperm(base.VOCABULARY, generator=torch.Generator().manual_seed(5))[:EAGLE3_VOCABULARY]
        self.tokens = kept.sort().values

    def read(self, look):
        layers = look[2]
        return torch.cat([layers[i] for i in (2, len(layers) // 2, len(layers) - 3)], -1)

    def forward(self, tokens, hidden):
        eps = self.target.config.rms_norm_eps
        # What it goes on with is as wide as what joining makes.
        rows = [self.fc(row) if row.shape[-1] == self.fc.in_features else row for row in hidden]
        x = torch.stack(rows)
        read = torch.cat([norm(self.target.embedding[tokens], self.norms["embedding"], eps),
                          norm(x, self.norms["hidden"], eps)], -1)
        out = self.layer(read, x)
        return norm(out, self.norms["last"], eps) @ self.head.T, out

    def token_of(self, index):
        return int(self.tokens[index])

    def tensors(self):
        out = {"midlayer." + name: value for name, value in self.layer.tensors().items()}
        offsets = self.tokens - torch.arange(len(self.tokens))
        known = torch.zeros(base.VOCABULARY, dtype=torch.bool)
        known[self.tokens] = True
        return {**out, "midlayer.input_layernorm.weight": self.norms["embedding"],
                "midlayer.hidden_norm.weight": self.norms["hidden"], "norm.weight": self.norms["last"],
                "fc.weight": self.fc.weight, "lm_head.weight": self.head, "d2t": offsets, "t2d": known}

    def config(self):
        config = json.loads(self.target.config.to_json_string(use_diff=False))
        return {**base.classic_config(config), "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1,
                "draft_vocab_size": EAGLE3_VOCABULARY}


class NextN(torch.nn.Module):
    """DeepSeek's layer for the next token: both normed, joined, a layer with experts, a last norm."""

    algorithm = "NEXTN"

    def __init__(self, target):
        super().__init__()
        self.target = target
        config = target.config
        self.index = config.num_hidden_layers
        kind = type(target.model.model.layers[-1])
        self.layer = kind(config, self.index).to(torch.float32)
        generator = torch.Generator().manual_seed(17)
        with torch.no_grad():
            for key, tensor in self.layer.named_parameters():
                normal = torch.randn(tensor.shape, generator=generator)
                tensor.copy_(normal * 1.2 / tensor.shape[-1] ** 0.5 if tensor.dim() > 1 else 1 + 0.1 * normal)
            for key, tensor in self.layer.named_buffers():
                tensor.copy_(0.1 * torch.randn(tensor.shape, generator=generator))
        self.join = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.norms = torch.nn.ParameterDict({name: torch.nn.Parameter(torch.ones(config.hidden_size))
                                             for name in ("enorm", "hnorm", "shared_head/norm")})

    def read(self, look):
        return look[1]

    def forward(self, tokens, hidden):
        eps = self.target.config.rms_norm_eps
        x = self.join(torch.cat([norm(self.target.embedding[tokens], self.norms["enorm"], eps),
                                 norm(hidden, self.norms["hnorm"], eps)], -1))[None]
        count = x.shape[1]
        positions = torch.arange(count)[None]
        mask = torch.zeros(count, count).masked_fill(torch.ones(count, count).triu(1).bool(), float("-inf"))
        angles = self.target.model.model.rotary_emb(x, positions)
        out = self.layer(x, attention_mask=mask[None, None], position_ids=positions, position_embeddings=angles)
        out = out[0] if isinstance(out, tuple) else out
        out = norm(out[0], self.norms["shared_head/norm"], eps)
        return out @ self.target.head.T, out

    def token_of(self, index):
        return index

    def tensors(self):
        at = f"model.layers.{self.index}."
        out = {at + name: value for name, value in self.layer.state_dict().items()}
        out |= {at + name.replace("/", ".") + ".weight": value for name, value in self.norms.items()}
        return {**out, at + "eh_proj.weight": self.join.weight}

    def config(self):
        return None  # the target's


class Standalone:
    """The target itself as a second model. It is one token ahead, and so never sees the first one."""

    algorithm = "STANDALONE"

    def __init__(self, target):
        self.target = target

    def read(self, look):
        return torch.zeros(look[1].shape[0], 0)

    def __call__(self, tokens, hidden):
        logits, _, _ = self.target.look(tokens.tolist())
        return logits, torch.zeros(len(tokens), 0)

    def token_of(self, index):
        return index


def train(head, texts, steps=400):
    """On what the target says behind its own tokens: the token after the next, and its hidden state there."""
    looks = [(ids, head.target.look(ids)) for ids in texts]
    optimizer = torch.optim.Adam(head.parameters(), lr=4e-3)
    for _ in range(steps):
        loss = torch.zeros(())
        for ids, look in looks:
            tokens = torch.tensor(ids[1:])
            read = head.read(look)[:-1]
            logits, out = head(tokens, read)
            wanted = look[0][1:]
            if isinstance(head, Eagle3):
                wanted = wanted[:, head.tokens].softmax(-1)
                loss = loss - (wanted * logits.log_softmax(-1)).sum(-1).mean()
                # Some tokens follow what it was left with itself.
                mixed = [out[i - 1].detach() if i > 0 and torch.rand(()) < 0.4 else row for i, row in enumerate(read)]
                loss = loss - (wanted * head(tokens, mixed)[0].log_softmax(-1)).sum(-1).mean()
                continue
            loss = loss - (wanted.softmax(-1) * logits.log_softmax(-1)).sum(-1).mean()
            loss = loss + torch.nn.functional.smooth_l1_loss(out, look[1][1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"  loss {loss.item():.4f} of {len(texts)} texts")
    with torch.no_grad():
        for tensor in [*head.parameters(), *head.buffers()]:
            if tensor.dtype == torch.float32 and not any(tensor is x for x in head.target.model.parameters()):
                tensor.copy_(tensor.to(torch.bfloat16))


class NearTie(Exception):
    pass


def best(values, count, ordered=True):
    """Places of the `count` largest, largest first; what decides must not hang on rounding."""
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    first = 0 if ordered else count - 1
    for a, b in list(zip(order, order[1:]))[first:count]:
        if values[a] - values[b] < LEAST_GAP * values[a]:
            raise NearTie
    return order[:count]


def guesses(head, logits, topk):
    probabilities = logits.double().softmax(-1).tolist()
    return [(head.token_of(i), probabilities[i]) for i in best(probabilities, topk)]


def draft(head, tokens, hidden, seed, tree):
    """A tree as (token, parent) below the root, parents before children; -1 is the root. `tokens`, `hidden`: what every
    slot was given so far; `seed`: logits and hidden state of the last."""
    steps, topk, count = tree
    nodes = [(token, -1, score) for token, score in guesses(head, seed[0], topk)]
    leaves = list(range(topk))  # nodes
    going_on = [seed[1]] * topk
    given = [([], []) for _ in range(topk)]  # of each branch's place
    for _ in range(steps - 1):
        grown, outs = [], []
        for place, leaf in enumerate(leaves):
            given[place][0].append(nodes[leaf][0])
            given[place][1].append(going_on[place])
            logits, out = head(torch.tensor(tokens + given[place][0]), pile(head, hidden, given[place][1]))
            outs.append(out[-1])
            grown += [(token, leaf, nodes[leaf][2] * score) for token, score in guesses(head, logits[-1], topk)]
        chosen = best([node[2] for node in grown], topk)
        leaves = [len(nodes) + i for i in chosen]
        going_on = [outs[i // topk] for i in chosen]
        nodes += grown
    kept = sorted(best([node[2] for node in nodes], count - 1, ordered=False))
    return [(nodes[i][0], kept.index(nodes[i][1]) if nodes[i][1] >= 0 else -1) for i in kept]


def pile(head, hidden, more):
    """Rows of hidden states; those of EAGLE3 differ in width."""
    if isinstance(head, Eagle3):
        return [*hidden, *more]
    return torch.stack([*hidden, *more])


def accept_lengths(head, ids, text, tree):
    """Tokens that each step keeps until NEW_TOKENS are there. `text`: the prompt and all greedy tokens behind it."""
    look = head.target.look(text)
    read = head.read(look)
    stored, generated, lengths = len(ids), 1, []
    while generated < NEW_TOKENS:
        tokens, hidden = text[1:stored + 1], list(read[:stored])
        logits, out = head(torch.tensor(tokens), pile(head, hidden, []))
        nodes = draft(head, tokens, hidden, (logits[-1], out[-1]), tree)
        at, kept = -1, 1
        while True:
            follows = [i for i, (token, parent) in enumerate(nodes) if parent == at and token == text[stored + kept]]
            if not follows:
                break
            at, kept = follows[0], kept + 1
        lengths.append(kept)
        stored += kept
        generated += kept
    return lengths


def passes(head, text, count=24):
    """What a pass over some tokens says, and one that goes on from its own hidden state."""
    read = head.read(head.target.look(text))[:count]
    tokens = torch.tensor(text[1:count + 1])
    logits, out = head(tokens, read)
    guess = head.token_of(int(logits[-1].argmax()))
    next_logits, next_out = head(torch.cat([tokens, torch.tensor([guess])]), pile(head, list(read), [out[-1]]))

    def numbers(x):
        return [float(f"{value:.7g}") for value in x.flatten().tolist()]

    return {"token_ids": tokens.tolist(), "hidden": numbers(read), "logits": numbers(logits[-1]),
            "hidden_out": numbers(out[-1]), "next_token_id": guess, "next_logits": numbers(next_logits[-1]),
            "next_hidden_out": numbers(next_out[-1])}


def write(folder, name, head, target_name):
    at = os.path.join(folder, name)
    os.makedirs(at, exist_ok=True)
    tensors = {key: (value.detach().to(torch.bfloat16) if value.is_floating_point() else value).contiguous()
               for key, value in head.tensors().items()}
    if isinstance(head, NextN):
        tensors = base.one_tensor_per_expert(tensors, mixtral=False)
        tensors = {key: value.contiguous() for key, value in tensors.items()}
    safetensors.torch.save_file(tensors, os.path.join(at, "model.safetensors"), metadata={"format": "pt"})
    config = head.config()
    if config is not None:
        config = {key: value for key, value in config.items() if not key.startswith("_")}
        config["torch_dtype"] = "bfloat16"
        with open(os.path.join(at, "config.json"), "w") as file:
            json.dump(config, file, indent=1)


def open_target(folder, name):
    models = os.path.join(os.path.dirname(os.path.abspath(folder)), "models")
    if os.path.isdir(os.path.join(models, name)):
        at = os.path.join(models, name)
        model = transformers.AutoModelForCausalLM.from_pretrained(at, dtype=torch.float32, attn_implementation="eager")
        model.config._experts_implementation = "eager"
        with open(os.path.join(at, "reference.json")) as file:
            prompts = [prompt["prompt_ids"] for prompt in json.load(file)["prompts"]]
        return Target(model.eval()), prompts
    model = base.make_model(name)
    generator = torch.Generator().manual_seed(7)
    prompts = [base.make_prompt(model, length, generator)["prompt_ids"] for length in base.PROMPT_LENGTHS]
    base.save(model, name, os.path.join(folder, name))
    return Target(model), prompts


def main():
    folder = sys.argv[1]
    torch.set_num_threads(1)
    for name in sys.argv[2:] or TARGETS:
        torch.manual_seed(3)
        target, prompts = open_target(folder, TARGETS[name])
        for parameter in target.model.parameters():
            parameter.requires_grad_(False)
        head = {"eagle": Eagle, "eagle3": Eagle3, "nextn": NextN, "standalone": Standalone}[name](target)
        texts = [target.greedy(ids, NEW_TOKENS + BEYOND) for ids in prompts]
        reference = {"made_with": f"transformers {transformers.__version__}, torch {torch.__version__}",
                     "algorithm": head.algorithm, "target": TARGETS[name], "new_tokens": NEW_TOKENS, "runs": []}
        if name != "standalone":
            train(head, texts)
            write(folder, name, head, TARGETS[name])
        with torch.no_grad():
            if name != "standalone":
                reference["passes"] = [passes(head, texts[-1])]
            for tree in TREES:
                run = {"num_steps": tree[0], "topk": tree[1], "num_draft_tokens": tree[2], "prompts": []}
                for ids, text in zip(prompts, texts):
                    try:
                        lengths = accept_lengths(head, ids, text, tree)
                    except NearTie:
                        continue
                    run["prompts"].append({"prompt_ids": ids, "token_ids": text[len(ids):len(ids) + NEW_TOKENS],
                                           "accept_lengths": lengths})
                if not run["prompts"]:
                    raise SystemExit(f"{name} {tree}: every prompt has a near tie")
                reference["runs"].append(run)
                kept = [length for prompt in run["prompts"] for length in prompt["accept_lengths"]]
                print(f"{name} {tree}: {len(run['prompts'])} prompts, {sum(kept) / len(kept):.3f} tokens a step", flush=True)
        at = os.path.join(folder, name)
        os.makedirs(at, exist_ok=True)
        with open(os.path.join(at, "reference.json"), "w") as file:
            json.dump(reference, file)
        print(f"{name}: {sum(os.path.getsize(os.path.join(at, x)) for x in os.listdir(at))} bytes", flush=True)


if __name__ == "__main__":
    main()
