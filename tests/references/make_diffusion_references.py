#!/usr/bin/env python3
"""Makes the reference values of numeric execution of diffusion pipelines: a run of Diffusers' own pipeline in fp32, from
the prompt to its pixels. What the text encoders make of the ids, one pass of the transformer, the latents behind the
loop and what the VAE makes of them are kept; a pipeline without encoders is given embeddings by the rule.

Usage: make_diffusion_references.py FOLDER [NAME ...]      FOLDER: tests/golden/diffusion; NAME: only these

Weights, latents and such embeddings come from the rule of diffusion_weights.py. Needs torch, diffusers and transformers;
the values in the repository were made with Diffusers 0.42.1, Transformers 5.24 and PyTorch 2.15.0. A run writes FOLDER/NAME/{model_index.json, transformer/config.json,
scheduler/scheduler_config.json, reference.json}, and of text encoders and a VAE their config.json.
"""

import copy
import json
import math
import os
import re
import sys
import types
import zlib

import diffusers
import torch
import transformers
from diffusers.pipelines.flux2.pipeline_flux2_klein import Flux2KleinPipeline
from diffusers.pipelines.flux.pipeline_flux import FluxPipeline
from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit as edit

import diffusion_weights

STEPS, GUIDANCE, TEXT_TOKENS, PADDED, SEED = 4, 5.0, 7, 22, 3

WAN = {"_class_name": "WanTransformer3DModel", "patch_size": [1, 2, 2], "num_attention_heads": 8,
       "attention_head_dim": 6, "in_channels": 4, "out_channels": 4, "text_dim": 24, "freq_dim": 16, "ffn_dim": 40,
       "num_layers": 2, "cross_attn_norm": True, "qk_norm": "rms_norm_across_heads", "eps": 1e-6}
UNIPC = {"_class_name": "UniPCMultistepScheduler", "num_train_timesteps": 1000, "prediction_type": "flow_prediction",
         "use_flow_sigmas": True, "flow_shift": 3.0, "solver_order": 2, "solver_type": "bh2", "predict_x0": True,
         "lower_order_final": True, "final_sigmas_type": "zero"}
EULER = {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 5.0}

# NAME: what else its model_index.json says, and its second transformer's config, as Wan 2.2 has them
MORE = {"wan-ti2v": {"expand_timesteps": True},
        "wan-euler": {"expand_timesteps": True, "boundary_ratio": 0.9,
                      "transformer_2": ["diffusers", "WanTransformer3DModel"]}}
SECOND = {"wan-euler": {**WAN, "ffn_dim": 32}}

FLUX = {"_class_name": "FluxTransformer2DModel", "patch_size": 1, "in_channels": 16, "num_layers": 1,
        "num_single_layers": 1, "attention_head_dim": 8, "num_attention_heads": 8, "joint_attention_dim": 24,
        "pooled_projection_dim": 24, "guidance_embeds": True, "axes_dims_rope": [2, 4, 2]}
DYNAMIC = {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 3.0,
           "use_dynamic_shifting": True, "base_shift": 0.5, "max_shift": 1.15, "base_image_seq_len": 256,
           "max_image_seq_len": 4096}

FLUX2 = {"_class_name": "Flux2Transformer2DModel", "patch_size": 1, "in_channels": 16, "num_layers": 1,
         "num_single_layers": 1, "attention_head_dim": 8, "num_attention_heads": 8, "joint_attention_dim": 24,
         "timestep_guidance_channels": 32, "mlp_ratio": 1.5, "guidance_embeds": False, "axes_dims_rope": [2, 2, 2, 2]}

QWEN = {"_class_name": "QwenImageTransformer2DModel", "patch_size": 2, "in_channels": 16, "out_channels": 4,
        "num_layers": 2, "attention_head_dim": 8, "num_attention_heads": 8, "joint_attention_dim": 24,
        "guidance_embeds": False, "axes_dims_rope": [2, 4, 2]}

Z_IMAGE = {"_class_name": "ZImageTransformer2DModel", "all_patch_size": [2], "all_f_patch_size": [1], "in_channels": 4,
           "dim": 48, "n_layers": 2, "n_refiner_layers": 1, "n_heads": 8, "n_kv_heads": 8, "norm_eps": 1e-5,
           "qk_norm": True, "cap_feat_dim": 24, "rope_theta": 256.0, "t_scale": 1000.0, "axes_dims": [2, 2, 2],
           "axes_lens": [128, 64, 64]}

SD3 = {"_class_name": "SD3Transformer2DModel", "sample_size": 8, "patch_size": 2, "in_channels": 4, "out_channels": 4,
       "num_layers": 2, "attention_head_dim": 6, "num_attention_heads": 8, "joint_attention_dim": 24,
       "caption_projection_dim": 48, "pooled_projection_dim": 16, "pos_embed_max_size": 9, "qk_norm": "rms_norm"}

# NAME: (pipeline, transformer's config, scheduler's, shape of the latents)
PIPELINES = {
    "wan": ("WanPipeline", WAN, UNIPC, [4, 3, 6, 10]),
    "wan-euler": ("WanPipeline", {**WAN, "cross_attn_norm": False, "num_layers": 1}, EULER, [4, 2, 6, 6]),
    "wan-i2v": ("WanImageToVideoPipeline", {**WAN, "in_channels": 12, "num_layers": 1}, UNIPC, [4, 3, 4, 8]),
    "wan-clip": ("WanImageToVideoPipeline", {**WAN, "in_channels": 12, "num_layers": 1, "image_dim": 24,
                                             "added_kv_proj_dim": 48}, UNIPC, [4, 3, 4, 8]),
    "wan-ti2v": ("WanImageToVideoPipeline", {**WAN, "num_layers": 1}, UNIPC, [4, 3, 4, 8]),
    "flux": ("FluxPipeline", FLUX, DYNAMIC, [4, 1, 10, 14]),
    "flux-schnell": ("FluxPipeline", {**FLUX, "guidance_embeds": False, "num_layers": 0},
                     {**EULER, "shift": 1.0}, [4, 1, 6, 10]),
    "flux2-klein": ("Flux2KleinPipeline", FLUX2, DYNAMIC, [4, 1, 6, 10]),
    "qwen-image": ("QwenImagePipeline", QWEN,
                   {**DYNAMIC, "shift": 1.0, "max_shift": 0.9, "max_image_seq_len": 8192, "shift_terminal": 0.02},
                   [4, 1, 10, 14]),
    "qwen-image-edit": ("QwenImageEditPipeline", {**QWEN, "num_layers": 1},
                        {**DYNAMIC, "shift": 1.0, "max_shift": 0.9, "max_image_seq_len": 8192,
                         "shift_terminal": 0.02}, [4, 1, 6, 10]),
    "sd3": ("StableDiffusion3Pipeline", SD3, {**EULER, "shift": 3.0}, [4, 1, 6, 10]),
    "z-image": ("ZImagePipeline", Z_IMAGE, {**EULER, "shift": 6.0}, [4, 1, 10, 12]),
}

T5 = {"d_model": 24, "d_kv": 6, "d_ff": 40, "num_layers": 2, "num_heads": 4, "vocab_size": 50,
      "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "feed_forward_proj": "gated-gelu",
      "layer_norm_epsilon": 1e-6}
CLIP = {"model_type": "clip_text_model", "hidden_size": 24, "intermediate_size": 40, "num_attention_heads": 4,
        "num_hidden_layers": 2, "vocab_size": 50, "max_position_embeddings": 20, "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-5, "bos_token_id": 48, "eos_token_id": 2}
# NAME: its image encoder's config
CLIP_VISION = {"wan-clip": {"model_type": "clip_vision_model", "hidden_size": 24, "intermediate_size": 40,
                            "num_attention_heads": 4, "num_hidden_layers": 3, "image_size": 8, "patch_size": 4,
                            "hidden_act": "gelu", "layer_norm_eps": 1e-5}}
LANGUAGE = {"hidden_size": 24, "intermediate_size": 40, "num_attention_heads": 4, "num_key_value_heads": 2,
            "num_hidden_layers": 3, "vocab_size": 50, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
            "hidden_act": "silu", "rope_theta": 1e4, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2}
QWEN3 = {"architectures": ["Qwen3Model"], "model_type": "qwen3", **LANGUAGE, "head_dim": 8}
QWEN_VL = {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl",
           "text_config": {"model_type": "qwen2_5_vl_text", **LANGUAGE, "num_attention_heads": 2,
                           "rope_scaling": {"type": "mrope", "mrope_section": [2, 2, 2]}},
           "vision_config": {"model_type": "qwen2_5_vl", "depth": 1, "hidden_size": 16, "intermediate_size": 16,
                             "num_heads": 2, "out_hidden_size": 24, "fullatt_block_indexes": [0]}}
# Shown an image of these pixels, which its processor leaves as they are, and numbered as
# rank/numeric/vision/patches.h has it.
SHOWN, IMAGE_TOKEN, TEMPLATE = {"width": 84, "height": 56, "content": 5}, 47, 64
QWEN_VL_SEEING = {**QWEN_VL, "image_token_id": IMAGE_TOKEN, "vision_start_token_id": 45, "vision_end_token_id": 46,
                  "video_token_id": 48}
# NAME: of each text encoder (component, class, config, what the pipeline reads)
TEXT_ENCODERS = {"wan": [("text_encoder", "UMT5EncoderModel", {**T5, "model_type": "umt5"},
                          lambda out: out.last_hidden_state)],
                 "flux": [("text_encoder", "CLIPTextModel", CLIP, lambda out: out.pooler_output),
                          ("text_encoder_2", "T5EncoderModel", {**T5, "model_type": "t5"},
                           lambda out: out.last_hidden_state)],
                 "flux2-klein": [("text_encoder", "Qwen3ForCausalLM",
                                  {**QWEN3, "num_hidden_layers": 28, "hidden_size": 8, "intermediate_size": 8,
                                   "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4},
                                  lambda out: torch.cat([out.hidden_states[k] for k in (9, 18, 27)], dim=-1))],
                 "z-image": [("text_encoder", "Qwen3Model", QWEN3, lambda out: out.hidden_states[-2])],
                 "qwen-image": [("text_encoder", "Qwen2_5_VLForConditionalGeneration", QWEN_VL,
                                 lambda out: out.hidden_states[-1][:, 34:])],
                 "qwen-image-edit": [("text_encoder", "Qwen2_5_VLForConditionalGeneration", QWEN_VL_SEEING,
                                      lambda out: out.hidden_states[-1][:, TEMPLATE:])]}
AUTOENCODER = {"_class_name": "AutoencoderKL", "down_block_types": ["DownEncoderBlock2D"] * 2,
               "up_block_types": ["UpDecoderBlock2D"] * 2, "block_out_channels": [8, 12], "layers_per_block": 1,
               "norm_num_groups": 4, "latent_channels": 4, "use_quant_conv": False, "use_post_quant_conv": False}
SCALE = {"scaling_factor": 0.3611, "shift_factor": 0.1159}
WAN_VAE = {"_class_name": "AutoencoderKLWan", "base_dim": 4, "z_dim": 4, "dim_mult": [1, 2, 2], "num_res_blocks": 1,
           "temperal_downsample": [True, True], "latents_mean": [-0.75, 0.1, 0.4, -0.2],
           "latents_std": [1.4, 2.3, 0.7, 1]}
# NAME: config of its VAE
VAES = {"flux": {**AUTOENCODER, **SCALE}, "wan": WAN_VAE, "wan-i2v": {**WAN_VAE, "scale_factor_spatial": 4},
        "flux2-klein": {**AUTOENCODER, "_class_name": "AutoencoderKLFlux2", "block_out_channels": [4, 8],
                        "decoder_block_out_channels": [8, 12], "use_quant_conv": True, "use_post_quant_conv": True,
                        "batch_norm_eps": 1e-4, "patch_size": [2, 2]},
        "wan-euler": {**WAN_VAE, "decoder_base_dim": 6, "temperal_downsample": [False, True], "is_residual": True,
                      "patch_size": 2, "in_channels": 12, "out_channels": 12},
        "z-image": {**AUTOENCODER, **SCALE, "block_out_channels": [8], "up_block_types": ["UpDecoderBlock2D"],
                    "down_block_types": ["DownEncoderBlock2D"], "use_post_quant_conv": True,
                    "mid_block_add_attention": False},
        "wan-ti2v": {**WAN_VAE, "temperal_downsample": [False, True], "is_residual": True, "patch_size": 2,
                     "in_channels": 12, "out_channels": 12, "scale_factor_spatial": 8},
        "qwen-image": {**WAN_VAE, "_class_name": "AutoencoderKLQwenImage", "dim_mult": [1, 2],
                       "temperal_downsample": [True]}}
VAES["qwen-image-edit"] = VAES["qwen-image"]
VAES["wan-clip"] = VAES["wan-i2v"]
VAES["sd3"] = VAES["z-image"]
PROMPT = "Two foxes and a crane dance on thin ice while snow falls upon the old mill"
NEGATIVE = "blurred, washed out"


class Tokenizer:
    """Numbers for words, and what the pipelines ask of a tokenizer."""

    model_max_length, pad, added_tokens_encoder = 20, 1, {}

    def tokenize(self, text):
        return re.findall(r"\w+|[^\w\s]", text)

    def apply_chat_template(self, messages, **_):
        return f"user: {messages[0]['content']} assistant:"

    def __call__(self, texts, padding=None, max_length=None, **_):
        (text,) = [texts] if isinstance(texts, str) else texts
        ids = [zlib.crc32(word.encode()) % 50 for word in self.tokenize(text)][:max_length]
        pads = max_length - len(ids) if padding == "max_length" else 0
        return transformers.BatchEncoding({"input_ids": [ids + [self.pad] * pads],
                                           "attention_mask": [[1] * len(ids) + [0] * pads]}, tensor_type="pt")


def shown():
    """SHOWN as the encoder is given it: patches in the order in which they merge, and their grid."""
    wide, high, patch, merge = SHOWN["width"], SHOWN["height"], 14, 2
    state = SHOWN["content"] * diffusion_weights.GOLDEN & diffusion_weights.MASK ^ (wide << 32 | high)
    values = diffusion_weights.unit("", 3 * high * wide, state - diffusion_weights.unit_start(""))
    rows, columns = high // patch, wide // patch
    image = torch.tensor(values).reshape(3, high, wide).expand(2, 3, high, wide)
    patches = image.reshape(1, 2, 3, rows // merge, merge, patch, columns // merge, merge, patch)
    patches = patches.permute(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(rows * columns, -1)
    return patches, torch.tensor([[1, rows, columns]]), rows * columns // merge**2


class Processor(Tokenizer):
    """Of text with one image in it."""

    def __call__(self, text, images, **_):
        patches, grid, tokens = shown()
        before, behind = ([zlib.crc32(word.encode()) % 45 for word in self.tokenize(part)]
                          for part in text[0].split("<|image_pad|>"))
        ids = before + [IMAGE_TOKEN] * tokens + behind
        return transformers.BatchEncoding({"input_ids": torch.tensor([ids]), "pixel_values": patches, "image_grid_thw": grid,
                                           "attention_mask": torch.ones(1, len(ids), dtype=torch.long)})


def seeded(name, shape):
    """Of variance 1."""
    values = diffusion_weights.unit(name, math.prod(shape), SEED)
    return torch.tensor([math.sqrt(3) * x for x in values], dtype=torch.float32).reshape(shape)


def make(config):
    config = dict(config)
    return getattr(diffusers, config.pop("_class_name")).from_config(config)


def fill(model):
    """Sets weights by the rule; their shapes."""
    shapes = {}
    for key, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if not key.startswith(("bn.running", "pos_embed")) and not isinstance(tensor, torch.nn.Parameter):
            continue
        shapes[key] = list(tensor.shape)
        values = diffusion_weights.weight(key, shapes[key])
        tensor.copy_(torch.tensor(values, dtype=torch.float32).reshape(tensor.shape))
    return shapes


def numbers(tensor):
    return [float(f"{x:.7g}") for x in tensor.flatten().tolist()]


def watched(component, model, read, into, padded):
    """Has `into` told of each run of a text encoder: its ids, the rows that are read, and how many are padding, which is
    cut off unless it is read (`padded`)."""

    def hook(_, args, given, out):
        ids = args[0] if args else given["input_ids"]
        mask = given.get("attention_mask", args[1] if len(args) > 1 else None)
        pads = 0 if mask is None else ids.shape[1] - int(mask.sum())
        rows, cut = read(out), 0 if padded else pads
        into.append((component, ids[0].tolist()[: ids.shape[1] - cut], rows[..., : rows.shape[-2] - cut, :]
                     if rows.dim() == 3 else rows, pads - cut))

    model.register_forward_hook(hook, with_kwargs=True)


def components(name, encoded):
    """The pipeline, and of each component's tensors their shapes."""
    kind, config, scheduler, _ = PIPELINES[name]
    shapes = {}

    def filled(component, model):
        model = model.to(torch.float32).eval()
        shapes[component] = fill(model)
        return model

    parts = {"scheduler": make(scheduler), "transformer": filled("transformer", make(config)), "vae": None,
             "text_encoder": None, "tokenizer": None}
    if kind == "FluxPipeline":
        parts.update({"text_encoder_2": None, "tokenizer_2": None})
    if kind == "StableDiffusion3Pipeline":
        parts.update({f"{part}_{i}": None for part in ("text_encoder", "tokenizer") for i in (2, 3)})
    if kind == "QwenImageEditPipeline":
        parts["processor"] = Processor()
    if name in SECOND:
        parts["transformer_2"] = filled("transformer_2", make(SECOND[name]))
    if name in VAES:
        parts["vae"] = filled("vae", make(VAES[name]))
    if name in CLIP_VISION:
        config = transformers.CLIPVisionConfig(**CLIP_VISION[name])
        parts["image_encoder"] = filled("image_encoder", transformers.CLIPVisionModel(config))
    for component, model, config, read in TEXT_ENCODERS.get(name, []):
        model = getattr(transformers, model)
        parts[component] = filled(component, model(model.config_class(**copy.deepcopy(config))))
        parts[component.replace("text_encoder", "tokenizer")] = Tokenizer()
        watched(component, parts[component], read, encoded, kind == "Flux2KleinPipeline")
        if kind == "QwenImageEditPipeline":  # which leaves out what Transformers knows an image's places by
            parts[component].register_forward_pre_hook(
                lambda _, args, given: (args, {**given, "mm_token_type_ids": (given["input_ids"] == IMAGE_TOKEN).int()}),
                with_kwargs=True)
    more = {key: value for key, value in MORE.get(name, {}).items() if key != "transformer_2"}
    return getattr(diffusers, kind)(**parts, **more), shapes


def text_tokens(name):
    """Without encoders. Beside an image's, Diffusers takes 512 to be the text's."""
    return 512 if name in CLIP_VISION else TEXT_TOKENS


def takes_image(kind):
    return kind in ("WanImageToVideoPipeline", "QwenImageEditPipeline")


def arguments(name, pipeline):
    """What the pipeline is called with: a prompt, or embeddings where it has no encoder."""
    kind, config, _, shape = PIPELINES[name]
    latents = seeded("latents", [1, *shape])
    wan = kind.startswith("Wan")
    if not wan:
        latents = latents[:, :, 0]
    if kind == "Flux2KleinPipeline":
        latents = Flux2KleinPipeline._patchify_latents(latents)
    elif kind in ("FluxPipeline", "QwenImagePipeline", "QwenImageEditPipeline"):
        latents = FluxPipeline._pack_latents(latents, 1, *latents.shape[1:])
    if kind == "WanPipeline":  # which checks its size, and takes that of the latents
        high = wide = 16
    elif wan:
        high, wide = (size * pipeline.vae_scale_factor_spatial for size in shape[2:])
    else:
        high, wide = (size * pipeline.vae_scale_factor for size in shape[2:])
    out = {"latents": latents, "height": high, "width": wide, "num_inference_steps": STEPS,
           "true_cfg_scale" if kind.startswith("QwenImage") else "guidance_scale": GUIDANCE,
           "output_type": "pt" if name in VAES else "latent"}
    if wan:
        out["num_frames"] = 4 * (shape[1] - 1) + 1
    if takes_image(kind):
        image = torch.tensor(diffusion_weights.unit("image", 3 * high * wide, SEED)).reshape(1, 3, high, wide)
    if kind == "WanImageToVideoPipeline":  # which takes colours from 0 to 1
        out["image"] = (image + 1) / 2
    if name in CLIP_VISION:  # whose processor would take an image to its size, and colours to others
        side = CLIP_VISION[name]["image_size"]
        seen = torch.tensor(diffusion_weights.unit("image", 3 * side * side, SEED)).reshape(1, 3, side, side)
        pipeline.image_processor = lambda **_: transformers.BatchEncoding({"pixel_values": seen})
    if kind == "QwenImageEditPipeline":  # which would take it to a megapixel
        edit.calculate_dimensions = lambda *_: (wide, high, None)
        pipeline.image_processor.resize = lambda given, *_: given
        pipeline.image_processor.preprocess = lambda *_: image
        out["image"] = types.SimpleNamespace(size=(wide, high))
    if name not in TEXT_ENCODERS:
        width = config.get("text_dim", config.get("joint_attention_dim"))
        tokens = text_tokens(name)
        out["prompt_embeds"] = seeded("prompt", [1, tokens, width])
        if kind == "StableDiffusion3Pipeline":
            for kept in ("", "negative_"):
                out[f"{kept}pooled_prompt_embeds"] = seeded(f"pooled_{kept}prompt", [1, config["pooled_projection_dim"]])
        if kind == "FluxPipeline":
            out["pooled_prompt_embeds"] = seeded("pooled_prompt", [1, config["pooled_projection_dim"]])
        else:
            out["negative_prompt_embeds"] = seeded("negative_prompt", [1, tokens, width])
        return out
    out["prompt"] = PROMPT
    if kind in ("WanPipeline", "FluxPipeline"):
        out["max_sequence_length"] = PADDED
    if kind == "Flux2KleinPipeline":  # whose negative prompt is empty
        out["max_sequence_length"] = PADDED
    elif kind != "FluxPipeline":
        out["negative_prompt"] = NEGATIVE
    return out


@torch.no_grad()
def record(name):
    kind, _, _, shape = PIPELINES[name]
    encoded, passes, steps, decoded, given_first = [], [], [], [], []
    pipeline, shapes = components(name, encoded)
    pipeline.set_progress_bar_config(disable=True)

    def kept(function, into, part=0):
        def call(*args, **given):
            out = function(*args, **given)
            into.append(out[part])
            return out
        return call

    pipeline.transformer.forward = kept(pipeline.transformer.forward, passes)
    if name == "wan-ti2v":  # which puts an image's latents in their place at last
        pipeline.prepare_latents = kept(pipeline.prepare_latents, given_first, 1)
    pipeline.scheduler.step = kept(pipeline.scheduler.step, steps)
    if pipeline.vae is not None:
        pipeline.vae.decode = kept(pipeline.vae.decode, decoded)
    given = arguments(name, pipeline)
    pipeline(**given)
    for first in given_first:
        steps[-1][:, :, :1] = first
    made = shape[2] * shape[3] // 4  # tokens; those of an image that is edited lie behind them
    unpacked = lambda x: (FluxPipeline._unpack_latents(x[:, :made], shape[2] * 8, shape[3] * 8, 8) if x.dim() == 3 else x)
    first = -passes[0][0] if kind == "ZImagePipeline" else unpacked(passes[0][-1:])  # behind the negative prompt's
    out = {"latent_shape": shape, "seed": SEED, "steps": STEPS, "guidance_scale": GUIDANCE, "first_pass": numbers(first),
           "latents": numbers(unpacked(steps[-1])), "tensors": shapes["transformer"]}
    if name not in TEXT_ENCODERS:
        out["text_tokens"] = text_tokens(name)
    elif kind == "WanPipeline":
        out["text_tokens"] = PADDED
    for component in ("transformer_2", "image_encoder"):
        if component in shapes:
            out[component] = shapes[component]
    for component, *_ in TEXT_ENCODERS.get(name, []):
        (ids, rows, pads), *other = [run[1:] for run in encoded if run[0] == component]
        of = {"folder": component, "ids": ids, "rows": numbers(rows),
              "tensors": {key: shape for key, shape in shapes[component].items()
                          if ("visual" not in key or name == "qwen-image-edit") and "lm_head" not in key}}
        if name == "qwen-image-edit":
            of["image"] = {"position": ids.index(IMAGE_TOKEN), "tokens": ids.count(IMAGE_TOKEN), **SHOWN}
        if other:
            of["negative_ids"] = other[0][0]
        if pads:
            of.update(padding=pads, negative_padding=other[0][2])
        out.setdefault("text_encoders", []).append(of)
    if decoded:
        (pixels,) = decoded
        frames = pixels.shape[2] if pixels.dim() == 5 else 1
        reads = ("encoder", "quant") if takes_image(kind) else ()
        stride = 53 if frames > 1 else 5  # of the pixels that a reference keeps
        out["pixels"] = {"shape": [pixels.shape[1], frames, *pixels.shape[-2:]], "stride": stride,
                         "values": numbers(pixels.flatten()[::stride]),
                         "tensors": {key: shape for key, shape in shapes["vae"].items()
                                     if key.startswith(("decoder", "post_quant", "bn", *reads))}}
    return out


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
        index = {"_class_name": pipeline, "transformer": ["diffusers", transformer["_class_name"]],
                 "scheduler": ["diffusers", scheduler["_class_name"]], **MORE.get(name, {})}
        reference = record(name)
        for component, kind, config, _ in TEXT_ENCODERS.get(name, []):
            index[component] = ["transformers", kind]
            write(os.path.join(at, component, "config.json"), config)
        if name in CLIP_VISION:
            index["image_encoder"] = ["transformers", "CLIPVisionModel"]
            write(os.path.join(at, "image_encoder", "config.json"), CLIP_VISION[name])
        if name in VAES:
            index["vae"] = ["diffusers", VAES[name]["_class_name"]]
            write(os.path.join(at, "vae", "config.json"), VAES[name])
        write(os.path.join(at, "model_index.json"), index)
        write(os.path.join(at, "transformer", "config.json"), transformer)
        if name in SECOND:
            write(os.path.join(at, "transformer_2", "config.json"), SECOND[name])
        write(os.path.join(at, "scheduler", "scheduler_config.json"), scheduler)
        write(os.path.join(at, "reference.json"), reference)


if __name__ == "__main__":
    main()
