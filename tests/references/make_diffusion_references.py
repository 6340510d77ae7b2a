#!/usr/bin/env python3
"""Makes the reference values of numeric execution of diffusion pipelines: what Diffusers says in fp32 of one pass of a
tiny transformer, and of a denoising loop with guidance.

Usage: make_diffusion_references.py FOLDER [NAME ...]      FOLDER: tests/golden/diffusion; NAME: only these

Weights, latents and embeddings of the prompts come from the rule of diffusion_weights.py. Needs torch and diffusers; the
values in the repository were made with Diffusers 0.42.1 and PyTorch 2.9.1. A run writes FOLDER/NAME/{model_index.json,
transformer/config.json, scheduler/scheduler_config.json, reference.json}.
"""

import json
import math
import os
import sys

import diffusers
import torch

import diffusion_weights

STEPS, GUIDANCE, TEXT_TOKENS, SEED = 4, 5.0, 7, 3

WAN = {"_class_name": "WanTransformer3DModel", "patch_size": [1, 2, 2], "num_attention_heads": 8,
       "attention_head_dim": 6, "in_channels": 4, "out_channels": 4, "text_dim": 20, "freq_dim": 16, "ffn_dim": 40,
       "num_layers": 2, "cross_attn_norm": True, "qk_norm": "rms_norm_across_heads", "eps": 1e-6}
UNIPC = {"_class_name": "UniPCMultistepScheduler", "num_train_timesteps": 1000, "prediction_type": "flow_prediction",
         "use_flow_sigmas": True, "flow_shift": 3.0, "solver_order": 2, "solver_type": "bh2", "predict_x0": True,
         "lower_order_final": True, "final_sigmas_type": "zero"}
EULER = {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 5.0}

# NAME: (pipeline, transformer's config, scheduler's, shape of the latents)
PIPELINES = {
    "wan": ("WanPipeline", WAN, UNIPC, [4, 3, 6, 10]),
    "wan-euler": ("WanPipeline", {**WAN, "patch_size": [1, 2, 1], "cross_attn_norm": False, "num_layers": 1}, EULER,
                  [4, 2, 6, 5]),
}


def seeded(name, shape):
    """Of variance 1."""
    values = diffusion_weights.unit(name, math.prod(shape), SEED)
    return torch.tensor([math.sqrt(3) * x for x in values], dtype=torch.float32).reshape(shape)


def make(config):
    config = dict(config)
    return getattr(diffusers, config.pop("_class_name")).from_config(config)


@torch.no_grad()
def record(name):
    _, config, scheduler_config, shape = PIPELINES[name]
    transformer = make(config).to(torch.float32).eval()
    shapes = {}
    for key, tensor in transformer.named_parameters():
        shapes[key] = list(tensor.shape)
        values = diffusion_weights.weight(key, shapes[key])
        tensor.copy_(torch.tensor(values, dtype=torch.float32).reshape(tensor.shape))
    latents = seeded("latents", [1, *shape])
    prompt, negative = (seeded(which, [1, TEXT_TOKENS, config["text_dim"]]) for which in ("prompt", "negative_prompt"))
    scheduler = make(scheduler_config)
    scheduler.set_timesteps(STEPS)
    passes = lambda x, t, text: transformer(x, timestep=t.expand(1), encoder_hidden_states=text, return_dict=False)[0]
    first = passes(latents, scheduler.timesteps[0], prompt)
    for t in scheduler.timesteps:
        conditional, other = passes(latents, t, prompt), passes(latents, t, negative)
        latents = scheduler.step(other + GUIDANCE * (conditional - other), t, latents, return_dict=False)[0]
    numbers = lambda tensor: [float(f"{x:.7g}") for x in tensor.flatten().tolist()]
    return {"latent_shape": shape, "text_tokens": TEXT_TOKENS, "seed": SEED, "steps": STEPS,
            "guidance_scale": GUIDANCE, "timesteps": [float(t) for t in scheduler.timesteps],
            "first_pass": numbers(first), "latents": numbers(latents), "tensors": shapes}


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        json.dump(data, file)
        file.write("\n")


def main():
    folder, names = sys.argv[1], sys.argv[2:] or PIPELINES
    for name in names:
        pipeline, transformer, scheduler, _ = PIPELINES[name]
        at = os.path.join(folder, name)
        write(os.path.join(at, "model_index.json"),
              {"_class_name": pipeline, "transformer": ["diffusers", transformer["_class_name"]],
               "scheduler": ["diffusers", scheduler["_class_name"]]})
        write(os.path.join(at, "transformer", "config.json"), transformer)
        write(os.path.join(at, "scheduler", "scheduler_config.json"), scheduler)
        write(os.path.join(at, "reference.json"), record(name))


if __name__ == "__main__":
    main()
