#!/usr/bin/env python3
"""Makes the reference values of numeric execution with images: for each family a tiny randomly initialised model with
its vision encoder, and what Transformers says in fp32 of prompts with images: the logits at the last position and
greedy tokens behind each.

Usage: make_vision_references.py FOLDER [NAME ...]      FOLDER: tests/golden/vision; NAME: only these

Images have a number, a width and a height, and no picture: their pixels, as the model's processor would hand them
over, come from the generator of rank/numeric/vision/patches.h, which pixels() below is written after. Needs torch,
transformers, numpy and safetensors. The values in the repository were made with Transformers 5.23 and PyTorch 2.15. A
run writes FOLDER/NAME/{config.json, preprocessor_config.json, model.safetensors, reference.json}.
"""

import json
import os
import shutil
import sys

import numpy
import safetensors.torch
import torch
import transformers
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

VOCABULARY = 131
NEW_TOKENS = 48
LEAST_LEAD = 2e-3  # as make_references.py: near ties are not compared
LEAST_DISTINCT = 12  # an answer that goes in circles says little
START, END, IMAGE = 120, 121, 122  # tokens around an image, and in its place

TEXT = {"vocab_size": VOCABULARY, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 8,
        "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 512, "head_dim": 16,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
QWEN_VISION = {"depth": 2, "hidden_size": 32, "num_heads": 4, "patch_size": 4, "temporal_patch_size": 2,
               "spatial_merge_size": 2, "in_channels": 3}
QWEN3_VISION = {**QWEN_VISION, "intermediate_size": 40, "out_hidden_size": 48, "num_position_embeddings": 36,
                "deepstack_visual_indexes": [0, 1]}
QWEN_ROOT = {"image_token_id": IMAGE, "video_token_id": 123, "vision_start_token_id": START,
             "vision_end_token_id": END, "tie_word_embeddings": False}
QWEN_PIXELS = {"min_pixels": 192, "max_pixels": 2048}


def rope(**more):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, **more}}


# NAME: (classes, text_config, vision_config, root of config.json, preprocessor_config.json, how it is stored).
# Stored: "hub": as the Hub's checkpoints are, where save_pretrained() makes another: names with these prefixes, and
# with "columns" the tensors of experts transposed.
MODELS = {
    "qwen2.5-vl": ("Qwen2_5_VL", {**TEXT, "hidden_size": 64, "head_dim": None,
                                  **rope(mrope_section=[2, 1, 1])},
                   {**QWEN_VISION, "intermediate_size": 36, "out_hidden_size": 64, "window_size": 16,
                    "fullatt_block_indexes": [1], "hidden_act": "silu"}, QWEN_ROOT, QWEN_PIXELS,
                   {"hub": {"model.visual.": "visual.", "model.language_model.": "model."}}),
    "qwen3-vl": ("Qwen3VL", {**TEXT, **rope(mrope_section=[3, 3, 2], mrope_interleaved=True)}, QWEN3_VISION,
                 QWEN_ROOT, QWEN_PIXELS, {}),
    "qwen3-vl-moe": ("Qwen3VLMoe", {**TEXT, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
                                    "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
                                    **rope(mrope_section=[4, 2, 2], mrope_interleaved=True)},
                     QWEN3_VISION, QWEN_ROOT, QWEN_PIXELS, {"hub": {}, "columns": True}),
}

# Of each prompt: text in front of every image, and behind the last; images as (number, width, height). Some share
# a beginning with an image in it, one is longer than what it shares, one has no image.
PROMPTS = [
    ([3], [], 0),
    ([4, 9], [(7, 40, 24)], 1),
    ([4, 9], [(7, 40, 24)], 2),
    ([4, 3, 11], [(7, 40, 24), (8, 16, 16)], 3),
    ([1, 1, 6], [(9, 90, 61), (9, 61, 90)], 4),
]


def pixels(shape, number, width, height):
    """splitmix64 of a counter, as fp32 in [-1, 1)."""
    golden = 0x9E3779B97F4A7C15
    with numpy.errstate(over="ignore"):
        seed = numpy.uint64((number * golden & (1 << 64) - 1) ^ (width << 32 | height))
        z = seed + (numpy.arange(int(numpy.prod(shape)), dtype=numpy.uint64) + numpy.uint64(1)) * numpy.uint64(golden)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z = z ^ (z >> numpy.uint64(31))
    values = (z >> numpy.uint64(40)).astype(numpy.float32) / numpy.float32(1 << 23) - numpy.float32(1)
    return torch.from_numpy(values).reshape(shape)


class Qwen:
    """Inputs of Qwen's processors: patches in the order in which they merge."""

    def __init__(self, name):
        self.vision, self.limits = MODELS[name][2], MODELS[name][4]

    def image(self, number, width, height):
        """(tokens in the prompt, what the encoder is given)"""
        patch, merge, frames = (self.vision[key] for key in ("patch_size", "spatial_merge_size",
                                                             "temporal_patch_size"))
        high, wide = smart_resize(height, width, patch * merge, self.limits["min_pixels"], self.limits["max_pixels"])
        grid = (1, high // patch, wide // patch)
        image = pixels((3, high, wide), number, width, height).expand(frames, 3, high, wide)
        patches = image.reshape(1, frames, 3, grid[1] // merge, merge, patch, grid[2] // merge, merge, patch)
        patches = patches.permute(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(grid[1] * grid[2], -1)
        tokens = grid[1] * grid[2] // merge ** 2
        return [START] + [IMAGE] * tokens + [END], (patches, grid)

    def logits(self, model, ids, images):
        ids = torch.tensor([ids])
        if not images:
            return model(ids, use_cache=False).logits[0, -1]
        grids = torch.tensor([grid for _, grid in images])
        kinds = (ids == IMAGE).int()
        return model(ids, use_cache=False, pixel_values=torch.cat([patches for patches, _ in images]),
                     image_grid_thw=grids, mm_token_type_ids=kinds).logits[0, -1]


def family(name):
    return Qwen(name)


def make_model(name):
    kind, text, vision, root, _, stored = MODELS[name]
    text = {key: value for key, value in text.items() if value is not None}
    config = getattr(transformers, kind + "Config")(text_config=text, vision_config=vision, **root)
    config._attn_implementation = "eager"
    model = getattr(transformers, kind + "ForConditionalGeneration")(config).to(torch.float32).eval()
    generator = torch.Generator().manual_seed(sum(map(ord, name)))

    def fill(key, tensor):
        normal = torch.randn(tensor.shape, generator=generator)
        if tensor.dim() == 1:
            return 0.2 * normal + 1 if "norm" in key and "bias" not in key or "ln_q" in key else 0.3 * normal
        if "embed_tokens" in key or "lm_head" in key or "pos_embed" in key:
            return normal
        fan_in = tensor[0].numel() if tensor.dim() != 3 else tensor.shape[-1]
        gain = 2.0 if any(part in key for part in ("q_proj", "k_proj", "qkv")) else 1.2
        return normal * gain / fan_in ** 0.5

    with torch.no_grad():
        for key, tensor in model.named_parameters():
            tensor.copy_(fill(key, tensor).to(torch.bfloat16))
    return model


def assembled(name, lengths, images, generator):
    """A prompt: text ids, where images stand in it, all ids, and what the encoder is given."""
    text, positions, ids, given = [], [], [], []
    for i, length in enumerate(lengths):
        part = torch.randint(3, 110, (length,), generator=generator).tolist()
        text += part
        ids += part
        if i < len(images):
            positions.append(len(text))
            tokens, one = family(name).image(*images[i])
            ids += tokens
            given.append(one)
    return text, positions, ids, given


def make_prompt(name, model, prompt):
    """Text is drawn until no greedy token is decided by rounding. Equal text comes first where images are shared."""
    lengths, images, number = prompt
    for attempt in range(400):
        generator = torch.Generator().manual_seed(1000 * (attempt + 1))
        shared = torch.randint(3, 110, (lengths[0],), generator=torch.Generator().manual_seed(5)).tolist()
        generator.manual_seed(1000 * number + attempt)
        text, positions, ids, given = assembled(name, lengths, images, generator)
        if images:  # the same text in front of the first image
            text[:lengths[0]] = ids[:lengths[0]] = shared
        behind, first = [], None
        with torch.no_grad():
            for _ in range(NEW_TOKENS):
                logits = family(name).logits(model, ids + behind, given)
                first = logits if first is None else first
                best = torch.topk(logits, 2)
                if float((best.values[0] - best.values[1]) / logits.abs().max()) < LEAST_LEAD:
                    break
                # An image token in the answer would be a place for an image.
                if int(best.indices[0]) in (START, END, IMAGE, 123):
                    break
                behind.append(int(best.indices[0]))
        if len(behind) == NEW_TOKENS and len(set(behind)) >= LEAST_DISTINCT:
            out = {"prompt_ids": text}
            if images:
                out.update(images=[[w, h] for _, w, h in images], image_ids=[n for n, _, _ in images],
                           image_positions=positions)
            return {**out, "prompt_tokens": len(ids), "token_ids": behind,
                    "logits": [float(f"{x:.7g}") for x in first]}
    raise SystemExit(f"{name}: no prompt {prompt} without near ties")


def save(model, name, folder):
    _, _, _, _, processor, stored = MODELS[name]
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    model.to(torch.bfloat16).save_pretrained(folder)
    if "hub" in stored:
        tensors = {}
        for key, value in model.state_dict().items():
            for ours, theirs in stored["hub"].items():
                if key.startswith(ours):
                    key = theirs + key.removeprefix(ours)
                    break
            tensors[key] = (value.transpose(1, 2) if "columns" in stored and "experts" in key else value).contiguous()
        safetensors.torch.save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    model.to(torch.float32)
    os.remove(os.path.join(folder, "generation_config.json"))
    with open(os.path.join(folder, "preprocessor_config.json"), "w") as file:
        json.dump(processor, file, indent=1)


def main():
    torch.set_num_threads(1)
    for name in sys.argv[2:] or MODELS:
        model = make_model(name)
        prompts = [make_prompt(name, model, prompt) for prompt in PROMPTS]
        folder = os.path.join(sys.argv[1], name)
        save(model, name, folder)
        with open(os.path.join(folder, "reference.json"), "w") as file:
            json.dump({"made_with": f"transformers {transformers.__version__}, torch {torch.__version__}",
                       "prompts": prompts}, file, indent=None)
        size = sum(os.path.getsize(os.path.join(folder, file)) for file in os.listdir(folder))
        print(f"{name}: {sorted(os.listdir(folder))}, {size} bytes, distinct tokens",
              [len(set(prompt["token_ids"])) for prompt in prompts], flush=True)


if __name__ == "__main__":
    main()
