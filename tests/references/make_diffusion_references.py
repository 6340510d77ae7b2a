#!/usr/bin/env python3
"""Makes the reference values of numeric execution of diffusion pipelines: what Diffusers says in fp32 of one pass of a
tiny transformer, of a denoising loop with guidance, and of the VAE's pixels behind it.

Usage: make_diffusion_references.py FOLDER [NAME ...]      FOLDER: tests/golden/diffusion; NAME: only these

Weights, latents and embeddings of the prompts come from the rule of diffusion_weights.py. Needs torch, diffusers and
transformers; the values in the repository were made with Diffusers 0.42.1, Transformers 5.24 and PyTorch 2.9.1 (of VAEs
and of text encoders that are not T5: 2.15.0). A run writes FOLDER/NAME/{model_index.json, transformer/config.json,
scheduler/scheduler_config.json, reference.json}, and of text encoders and a VAE their config.json.
"""

import json
import math
import os
import sys

import diffusers
import numpy
import torch
import transformers
from diffusers.pipelines.flux.pipeline_flux import FluxPipeline, calculate_shift
from diffusers.pipelines.flux2.pipeline_flux2_klein import Flux2KleinPipeline, compute_empirical_mu

import diffusion_weights

STEPS, GUIDANCE, TEXT_TOKENS, SEED = 4, 5.0, 7, 3

WAN = {"_class_name": "WanTransformer3DModel", "patch_size": [1, 2, 2], "num_attention_heads": 8,
       "attention_head_dim": 6, "in_channels": 4, "out_channels": 4, "text_dim": 20, "freq_dim": 16, "ffn_dim": 40,
       "num_layers": 2, "cross_attn_norm": True, "qk_norm": "rms_norm_across_heads", "eps": 1e-6}
UNIPC = {"_class_name": "UniPCMultistepScheduler", "num_train_timesteps": 1000, "prediction_type": "flow_prediction",
         "use_flow_sigmas": True, "flow_shift": 3.0, "solver_order": 2, "solver_type": "bh2", "predict_x0": True,
         "lower_order_final": True, "final_sigmas_type": "zero"}
EULER = {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 5.0}

# NAME: what else its model_index.json says, and its second transformer's config, as Wan 2.2 has them
MORE = {"wan-euler": {"expand_timesteps": True, "boundary_ratio": 0.9,
                      "transformer_2": ["diffusers", "WanTransformer3DModel"]}}
SECOND = {"wan-euler": {**WAN, "patch_size": [1, 2, 1], "ffn_dim": 32}}

FLUX = {"_class_name": "FluxTransformer2DModel", "patch_size": 1, "in_channels": 16, "num_layers": 1,
        "num_single_layers": 1, "attention_head_dim": 8, "num_attention_heads": 8, "joint_attention_dim": 20,
        "pooled_projection_dim": 12, "guidance_embeds": True, "axes_dims_rope": [2, 4, 2]}
DYNAMIC = {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 3.0,
           "use_dynamic_shifting": True, "base_shift": 0.5, "max_shift": 1.15, "base_image_seq_len": 256,
           "max_image_seq_len": 4096}

FLUX2 = {"_class_name": "Flux2Transformer2DModel", "patch_size": 1, "in_channels": 16, "num_layers": 1,
         "num_single_layers": 1, "attention_head_dim": 8, "num_attention_heads": 8, "joint_attention_dim": 24,
         "timestep_guidance_channels": 32, "mlp_ratio": 1.5, "guidance_embeds": False, "axes_dims_rope": [2, 2, 2, 2]}

QWEN = {"_class_name": "QwenImageTransformer2DModel", "patch_size": 2, "in_channels": 16, "out_channels": 4,
        "num_layers": 2, "attention_head_dim": 8, "num_attention_heads": 8, "joint_attention_dim": 20,
        "guidance_embeds": False, "axes_dims_rope": [2, 4, 2]}

Z_IMAGE = {"_class_name": "ZImageTransformer2DModel", "all_patch_size": [2], "all_f_patch_size": [1], "in_channels": 4,
           "dim": 48, "n_layers": 2, "n_refiner_layers": 1, "n_heads": 8, "n_kv_heads": 8, "norm_eps": 1e-5,
           "qk_norm": True, "cap_feat_dim": 20, "rope_theta": 256.0, "t_scale": 1000.0, "axes_dims": [2, 2, 2],
           "axes_lens": [128, 64, 64]}

# NAME: (pipeline, transformer's config, scheduler's, shape of the latents)
PIPELINES = {
    "wan": ("WanPipeline", WAN, UNIPC, [4, 3, 6, 10]),
    "wan-euler": ("WanPipeline", {**WAN, "patch_size": [1, 2, 1], "cross_attn_norm": False, "num_layers": 1}, EULER,
                  [4, 2, 6, 5]),
    "flux": ("FluxPipeline", FLUX, DYNAMIC, [4, 1, 10, 14]),
    "flux-schnell": ("FluxPipeline", {**FLUX, "guidance_embeds": False, "num_layers": 0},
                     {**EULER, "shift": 1.0}, [4, 1, 6, 10]),
    "flux2-klein": ("Flux2KleinPipeline", FLUX2, DYNAMIC, [4, 1, 6, 10]),
    "qwen-image": ("QwenImagePipeline", QWEN,
                   {**DYNAMIC, "shift": 1.0, "max_shift": 0.9, "max_image_seq_len": 8192, "shift_terminal": 0.02},
                   [4, 1, 10, 14]),
    "z-image": ("ZImagePipeline", Z_IMAGE, {**EULER, "shift": 6.0}, [4, 1, 10, 12]),
}

T5 = {"d_model": 24, "d_kv": 6, "d_ff": 40, "num_layers": 2, "num_heads": 4, "vocab_size": 50,
      "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "feed_forward_proj": "gated-gelu",
      "layer_norm_epsilon": 1e-6}
CLIP = {"model_type": "clip_text_model", "hidden_size": 24, "intermediate_size": 40, "num_attention_heads": 4,
        "num_hidden_layers": 2, "vocab_size": 50, "max_position_embeddings": 20, "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-5, "bos_token_id": 48, "eos_token_id": 2}
LANGUAGE = {"hidden_size": 24, "intermediate_size": 40, "num_attention_heads": 4, "num_key_value_heads": 2,
            "num_hidden_layers": 3, "vocab_size": 50, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
            "hidden_act": "silu", "rope_theta": 1e4, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2}
QWEN3 = {"architectures": ["Qwen3Model"], "model_type": "qwen3", **LANGUAGE, "head_dim": 8}
QWEN_VL = {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl",
           "text_config": {"model_type": "qwen2_5_vl_text", **LANGUAGE, "num_attention_heads": 2,
                           "rope_scaling": {"type": "mrope", "mrope_section": [2, 2, 2]}},
           "vision_config": {"model_type": "qwen2_5_vl", "depth": 1, "hidden_size": 16, "intermediate_size": 16,
                             "num_heads": 2, "out_hidden_size": 24, "fullatt_block_indexes": [0]}}
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
                                 lambda out: out.hidden_states[-1][:, 34:])]}
AUTOENCODER = {"_class_name": "AutoencoderKL", "down_block_types": ["DownEncoderBlock2D"] * 2,
               "up_block_types": ["UpDecoderBlock2D"] * 2, "block_out_channels": [8, 12], "layers_per_block": 1,
               "norm_num_groups": 4, "latent_channels": 4, "use_quant_conv": False, "use_post_quant_conv": False}
SCALE = {"scaling_factor": 0.3611, "shift_factor": 0.1159}
WAN_VAE = {"_class_name": "AutoencoderKLWan", "base_dim": 4, "z_dim": 4, "dim_mult": [1, 2, 2], "num_res_blocks": 1,
           "temperal_downsample": [True, True], "latents_mean": [-0.75, 0.1, 0.4, -0.2],
           "latents_std": [1.4, 2.3, 0.7, 1]}
# NAME: config of its VAE
VAES = {"flux": {**AUTOENCODER, **SCALE}, "wan": WAN_VAE,
        "flux2-klein": {**AUTOENCODER, "_class_name": "AutoencoderKLFlux2", "block_out_channels": [4, 8],
                        "decoder_block_out_channels": [8, 12], "use_quant_conv": True, "use_post_quant_conv": True,
                        "batch_norm_eps": 1e-4, "patch_size": [2, 2]},
        "wan-euler": {**WAN_VAE, "decoder_base_dim": 6, "temperal_downsample": [False, True], "is_residual": True,
                      "patch_size": 2, "in_channels": 12, "out_channels": 12},
        "z-image": {**AUTOENCODER, **SCALE, "block_out_channels": [8], "up_block_types": ["UpDecoderBlock2D"],
                    "down_block_types": ["DownEncoderBlock2D"], "use_post_quant_conv": True,
                    "mid_block_add_attention": False},
        "qwen-image": {**WAN_VAE, "_class_name": "AutoencoderKLQwenImage", "dim_mult": [1, 2],
                       "temperal_downsample": [True]}}
IDS = [3, 17, 41, 8, 8, 0, 29, 12, 49, 5, 33, 2, 21, 40, 11, 7, 1]


def seeded(name, shape):
    """Of variance 1."""
    values = diffusion_weights.unit(name, math.prod(shape), SEED)
    return torch.tensor([math.sqrt(3) * x for x in values], dtype=torch.float32).reshape(shape)


def make(config):
    config = dict(config)
    return getattr(diffusers, config.pop("_class_name")).from_config(config)


class Wan:
    """Passes and steps as pipelines/wan/pipeline_wan.py has them."""

    second, boundary, expanded = None, 0, False

    def __init__(self, transformer, scheduler, shape):
        self.transformer, self.shape = transformer, shape
        scheduler.set_timesteps(STEPS)
        self.latents = seeded("latents", [1, *shape])
        self.prompts = [seeded(which, [1, TEXT_TOKENS, transformer.config.text_dim])
                        for which in ("prompt", "negative_prompt")]

    def one(self, latents, t, which=0):
        transformer = self.transformer if t >= self.boundary else self.second
        timestep = t.expand(1)
        if self.expanded:
            timestep = t.expand(1, math.prod(self.shape[1:]) // math.prod(transformer.config.patch_size))
        return transformer(latents, timestep=timestep, encoder_hidden_states=self.prompts[which],
                           return_dict=False)[0]

    def guided(self, latents, t):
        conditional, other = self.one(latents, t), self.one(latents, t, 1)
        return other + GUIDANCE * (conditional - other)

    def unpacked(self, latents):
        return latents


class Image:
    """An image's sigmas, and its tokens of 2 x 2 latents."""

    def __init__(self, transformer, scheduler, shape):
        self.transformer, self.shape = transformer, shape
        channels, _, high, wide = shape
        config = scheduler.config
        scheduler.set_timesteps(sigmas=numpy.linspace(1.0, 1 / STEPS, STEPS), mu=self.shift(high * wide // 4, config))
        self.latents = FluxPipeline._pack_latents(seeded("latents", [1, channels, high, wide]), 1, channels, high, wide)

    def shift(self, tokens, config):
        return calculate_shift(tokens, config.base_image_seq_len, config.max_image_seq_len, config.base_shift,
                               config.max_shift)

    def unpacked(self, latents):
        channels, _, high, wide = self.shape
        return FluxPipeline._unpack_latents(latents, high * 8, wide * 8, 8)


class Flux(Image):
    """As pipelines/flux/pipeline_flux.py has them."""

    def __init__(self, transformer, scheduler, shape):
        super().__init__(transformer, scheduler, shape)
        channels, _, high, wide = shape
        self.given = {"encoder_hidden_states": seeded("prompt", [1, TEXT_TOKENS, transformer.config.joint_attention_dim]),
                      "pooled_projections": seeded("pooled_prompt", [1, transformer.config.pooled_projection_dim]),
                      "txt_ids": torch.zeros(TEXT_TOKENS, 3),
                      "img_ids": FluxPipeline._prepare_latent_image_ids(1, high // 2, wide // 2, "cpu", torch.float32)}
        if transformer.config.guidance_embeds:
            self.given["guidance"] = torch.full([1], GUIDANCE)

    def one(self, latents, t):
        return self.transformer(latents, timestep=t.expand(1) / 1000, return_dict=False, **self.given)[0]

    guided = one


class Flux2Klein(Image):
    """As pipelines/flux2/pipeline_flux2_klein.py has them."""

    def __init__(self, transformer, scheduler, shape):
        super().__init__(transformer, scheduler, shape)
        self.prompts = [seeded(which, [1, TEXT_TOKENS, transformer.config.joint_attention_dim])
                        for which in ("prompt", "negative_prompt")]

    def shift(self, tokens, config):
        return compute_empirical_mu(tokens, STEPS)

    def one(self, latents, t, which=0):
        high, wide = self.shape[2:]
        return self.transformer(latents, timestep=t.expand(1) / 1000, encoder_hidden_states=self.prompts[which],
                                txt_ids=Flux2KleinPipeline._prepare_text_ids(self.prompts[which]),
                                img_ids=Flux2KleinPipeline._prepare_latent_ids(torch.zeros(1, 1, high // 2, wide // 2)),
                                return_dict=False)[0]

    def guided(self, latents, t):
        conditional, other = self.one(latents, t), self.one(latents, t, 1)
        return other + GUIDANCE * (conditional - other)


class QwenImage(Image):
    """As pipelines/qwenimage/pipeline_qwenimage.py has them."""

    def __init__(self, transformer, scheduler, shape):
        super().__init__(transformer, scheduler, shape)
        self.prompts = [seeded(which, [1, TEXT_TOKENS, transformer.config.joint_attention_dim])
                        for which in ("prompt", "negative_prompt")]

    def one(self, latents, t, which=0):
        return self.transformer(latents, timestep=t.expand(1) / 1000, encoder_hidden_states=self.prompts[which],
                                img_shapes=[[(1, self.shape[2] // 2, self.shape[3] // 2)]], return_dict=False)[0]

    def guided(self, latents, t):
        conditional, other = self.one(latents, t), self.one(latents, t, 1)
        both = other + GUIDANCE * (conditional - other)
        return both * (torch.norm(conditional, dim=-1, keepdim=True) / torch.norm(both, dim=-1, keepdim=True))


class ZImage:
    """As pipelines/z_image/pipeline_z_image.py has them."""

    def __init__(self, transformer, scheduler, shape):
        self.transformer = transformer
        scheduler.set_timesteps(sigmas=torch.linspace(1.0, 1 / STEPS, STEPS).tolist())
        self.latents = seeded("latents", shape)
        self.prompts = [seeded(which, [TEXT_TOKENS, transformer.config.cap_feat_dim])
                        for which in ("prompt", "negative_prompt")]

    def one(self, latents, t, which=0):
        return -self.transformer([latents], (1000 - t.expand(1)) / 1000, [self.prompts[which]], return_dict=False)[0][0]

    def guided(self, latents, t):
        conditional, other = self.one(latents, t), self.one(latents, t, 1)
        return conditional + GUIDANCE * (conditional - other)

    def unpacked(self, latents):
        return latents


def fill(model):
    """Sets weights by the rule; their shapes."""
    shapes = {}
    for key, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if not key.startswith("bn.running") and not isinstance(tensor, torch.nn.Parameter):
            continue
        shapes[key] = list(tensor.shape)
        values = diffusion_weights.weight(key, shapes[key])
        tensor.copy_(torch.tensor(values, dtype=torch.float32).reshape(tensor.shape))
    return shapes


@torch.no_grad()
def record_text_encoder(component, kind, config, read):
    kind = getattr(transformers, kind)
    model = kind(kind.config_class(**config)).to(torch.float32).eval()
    shapes = fill(model)
    ids = 3 * IDS if "text_config" in config else IDS  # of which the template's are dropped
    rows = read(model(torch.tensor([ids]), output_hidden_states=True))
    return {"folder": component, "ids": ids, "rows": [float(f"{x:.7g}") for x in rows.flatten().tolist()],
            "tensors": {key: shape for key, shape in shapes.items() if "visual" not in key and "lm_head" not in key}}


@torch.no_grad()
def record_pixels(name, latents):
    """What the pipelines make of the latents at their end, and of the VAE its decoder's tensors."""
    vae = make(VAES[name]).to(torch.float32).eval()
    config = vae.config
    shapes = {key: shape for key, shape in fill(vae).items() if key.startswith(("decoder", "post_quant", "bn"))}
    if "latents_mean" in VAES[name]:
        mean, std = (torch.tensor(values).view(1, -1, 1, 1, 1) for values in (config.latents_mean, config.latents_std))
        latents = latents.reshape(1, *PIPELINES[name][3]) / (1 / std) + mean
    elif VAES[name]["_class_name"] == "AutoencoderKLFlux2":
        mean, std = vae.bn.running_mean.view(1, -1, 1, 1), torch.sqrt(vae.bn.running_var.view(1, -1, 1, 1) + 1e-4)
        latents = Flux2KleinPipeline._patchify_latents(latents) * std + mean
        latents = Flux2KleinPipeline._unpatchify_latents(latents)
    else:
        channels, _, high, wide = PIPELINES[name][3]
        latents = latents.reshape(1, channels, high, wide) / config.scaling_factor + config.shift_factor
    pixels = vae.decode(latents, return_dict=False)[0]
    frames = pixels.shape[2] if pixels.dim() == 5 else 1
    stride = 53 if frames > 1 else 5  # of the pixels that a reference keeps
    values = [float(f"{x:.7g}") for x in pixels.flatten()[::stride].tolist()]
    return {"shape": [pixels.shape[1], frames, *pixels.shape[-2:]], "stride": stride, "values": values,
            "tensors": shapes}


@torch.no_grad()
def record(name):
    pipeline, config, scheduler_config, shape = PIPELINES[name]
    transformer = make(config).to(torch.float32).eval()
    shapes = fill(transformer)
    scheduler = make(scheduler_config)
    kind = {"WanPipeline": Wan, "FluxPipeline": Flux, "Flux2KleinPipeline": Flux2Klein, "QwenImagePipeline": QwenImage,
            "ZImagePipeline": ZImage}[pipeline]
    loop = kind(transformer, scheduler, shape)
    if name in SECOND:
        loop.second = make(SECOND[name]).to(torch.float32).eval()
        second_shapes = fill(loop.second)
        loop.expanded = MORE[name]["expand_timesteps"]
        loop.boundary = MORE[name]["boundary_ratio"] * 1000
    latents = loop.latents
    first = loop.one(latents, scheduler.timesteps[0])
    for t in scheduler.timesteps:
        latents = scheduler.step(loop.guided(latents, t), t, latents, return_dict=False)[0]
    numbers = lambda tensor: [float(f"{x:.7g}") for x in loop.unpacked(tensor).flatten().tolist()]
    out = {"latent_shape": shape, "text_tokens": TEXT_TOKENS, "seed": SEED, "steps": STEPS,
           "guidance_scale": GUIDANCE, "timesteps": [float(t) for t in scheduler.timesteps],
           "first_pass": numbers(first), "latents": numbers(latents), "tensors": shapes}
    if name in SECOND:
        out["transformer_2"] = second_shapes
    if name in VAES:
        out["pixels"] = record_pixels(name, loop.unpacked(latents))
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
        for component, kind, config, read in TEXT_ENCODERS.get(name, []):
            index[component] = ["transformers", kind]
            write(os.path.join(at, component, "config.json"), config)
            reference.setdefault("text_encoders", []).append(record_text_encoder(component, kind, config, read))
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
