#!/usr/bin/env python3
"""Makes the reference values of numeric execution with images for the models of image_families.py, as
make_vision_references.py does for Qwen-VL.

Usage: make_tiled_vision_references.py FOLDER [NAME ...]      FOLDER: tests/golden/models; NAME: only these

A family of several variants has their logits and tokens under their names, beside those of the plain one.
"""

import json
import os
import shutil
import sys

import safetensors.torch
import torch
import transformers

from image_families import FAMILIES, PATCH
from image_pixels import pixels

NEW_TOKENS = 48
LEAST_LEAD = 2e-3  # as make_references.py: near ties are not compared
LEAST_DISTINCT = 12  # an answer that goes in circles says little
LAST_TEXT_ID = 106
# Text in front of every image, and behind the last; images as (number, width, height).
PROMPTS = [
    ([3], []),
    ([4, 9], [(7, 40, 24)]),
    ([4, 5], [(7, 40, 24)]),
    ([4, 3, 11], [(7, 40, 24), (8, 16, 16)]),
    ([1, 1, 6], [(9, 90, 31), (9, 31, 90)]),
]


def make_model(name):
    model = FAMILIES[name].make().float().eval()  # Llama 4's rotation stays complex
    model.config._attn_implementation = "eager"
    for part in model.modules():
        if hasattr(part, "config"):
            part.config._attn_implementation = part.config._experts_implementation = "eager"
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    gemma = name.startswith("gemma")

    def fill(key, tensor):
        normal = torch.randn(tensor.shape, generator=generator)
        if tensor.dim() == 1 or "cls_token" in key:
            # Gemma's norms are stored less 1; SigLIP's are not.
            around = 1 if "norm" in key and "bias" not in key or "lambda" in key else 0
            return 0.2 * normal + (0 if gemma and ("language_model" in key or "soft_emb" in key) else around)
        if "embed_tokens" in key or "lm_head" in key:
            return normal * (0.02 if gemma else 1)
        if "position" in key:
            return normal * 0.5
        fan_in = tensor.shape[0] if "mm_input" in key else tensor[0].numel() if tensor.dim() != 3 else tensor.shape[-1]
        gain = 2.0 if any(part in key for part in ("q_proj", "k_proj")) else 1.2
        # As large as the embeddings of text, which Gemma scales by the root of their width.
        last = "mm_input" in key or "linear_2" in key or "multi_modal_projector.linear_1" in key and "llama" in name
        return normal * (0.14 if gemma and last else gain) / fan_in ** 0.5

    with torch.no_grad():
        for key, tensor in model.named_parameters():
            tensor.copy_(fill(key, tensor).to(torch.bfloat16))
    return model


def answer(family, model, ids, images, variant):
    """(the first logits, greedy tokens), fewer where one is decided by rounding or is a place for an image."""
    behind, first = [], None
    with torch.no_grad():
        for _ in range(NEW_TOKENS):
            words = family.words(ids + behind, len(ids), variant) if images else {}
            if images:
                words["pixel_values"] = torch.cat(images)
            logits = model(torch.tensor([ids + behind]), use_cache=False, **words).logits[0, -1]
            first = logits if first is None else first
            best = torch.topk(logits, 2)
            if float((best.values[0] - best.values[1]) / logits.abs().max()) < LEAST_LEAD or best.indices[0] == PATCH:
                break
            behind.append(int(best.indices[0]))
    return [float(f"{x:.7g}") for x in first], behind


def make_prompt(name, model, number):
    """Text is drawn until all greedy tokens are clear. The text in front of the first image is always the same."""
    family = FAMILIES[name]
    lengths, images = PROMPTS[number]
    for attempt in range(400):
        generator = torch.Generator().manual_seed(1000 * number + attempt)
        text, positions, ids, given = [], [], [], []
        for i, length in enumerate(lengths):
            source = torch.Generator().manual_seed(5) if images and i == 0 else generator
            part = torch.randint(3, LAST_TEXT_ID, (length,), generator=source).tolist()
            text += part
            ids += part
            if i < len(images):
                content, width, height = images[i]
                positions.append(len(text))
                ids += sum(family.ids(width, height), [])
                given.append(pixels(family.shape(width, height), content, width, height))
        variants = {key: answer(family, model, ids, given, variant)
                    for key, variant in family.variants.items() if images or key == ""}
        if all(len(behind) == NEW_TOKENS and len(set(behind)) >= LEAST_DISTINCT for _, behind in variants.values()):
            break
    else:
        raise SystemExit(f"{name}: no prompt {number} without near ties")
    logits, behind = variants.pop("")
    out = {"prompt_ids": text}
    if images:
        out.update(images=[[w, h] for _, w, h in images], image_ids=[content for content, _, _ in images],
                   image_positions=positions)
    out.update(prompt_tokens=len(ids), token_ids=behind, logits=logits)
    for key, (logits, behind) in variants.items():
        out[key] = {"token_ids": behind, "logits": logits}
    return out


def save(model, name, folder):
    family = FAMILIES[name]
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    model.bfloat16().save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    weights, config_file = (os.path.join(folder, file) for file in ("model.safetensors", "config.json"))
    tensors = safetensors.torch.load_file(weights)
    with open(config_file) as file:
        config = json.load(file)
    for old, new in family.renamed.items():
        tensors = {new + key.removeprefix(old) if key.startswith(old) else key: value for key, value in tensors.items()}
    if hasattr(family, "stored"):
        tensors, config = family.stored(tensors, config)
    safetensors.torch.save_file({key: value.contiguous() for key, value in tensors.items()}, weights,
                                metadata={"format": "pt"})
    with open(config_file, "w") as file:
        json.dump(config, file, indent=1)
    for file_name, content in (("preprocessor_config.json", getattr(family, "preprocessor", None)),
                               ("added_tokens.json", getattr(family, "added_tokens", None))):
        if content is not None:
            with open(os.path.join(folder, file_name), "w") as file:
                json.dump(content, file, indent=1)


def main():
    torch.set_num_threads(1)
    for name in sys.argv[2:] or FAMILIES:
        model = make_model(name)
        prompts = [make_prompt(name, model, number) for number in range(len(PROMPTS))]
        folder = os.path.join(sys.argv[1], name)
        save(model, name, folder)
        with open(os.path.join(folder, "reference.json"), "w") as file:
            json.dump({"made_with": f"transformers {transformers.__version__}, torch {torch.__version__}",
                       "prompts": prompts}, file, indent=None)
        size = sum(os.path.getsize(os.path.join(folder, file)) for file in os.listdir(folder))
        print(f"{name}: {sorted(os.listdir(folder))}, {size} bytes, distinct tokens",
              [len(set(prompt["token_ids"])) for prompt in prompts], [p["prompt_tokens"] for p in prompts], flush=True)


if __name__ == "__main__":
    main()
