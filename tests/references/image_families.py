"""Tiny models with vision encoders: Gemma 3, Llama 4, InternVL (as its own checkpoints spell it, and as Transformers
does). For make_tiled_vision_references.py.

Each family says how its model is made, what stands for an image of some size in the prompt, the shape of what the
encoder reads of it, what else Transformers is to be given, and how its tensors are stored.
"""

import torch
import transformers

VOCABULARY = 131
TEXT = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 8,
        "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 512, "head_dim": 8,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
# Ids of what a processor writes around an image.
BLANK = 108  # of Gemma 3's tokenizer
BEGIN = VOCABULARY - 14
# In the order of Llama 4's tokenizer.
END, COLUMN, ROW, IMAGE, PATCH = (BEGIN + i for i in (1, 4, 5, 10, 12))


class Gemma3:
    """SigLIP of a fixed square, pooled; its tokens see each other."""

    side, patch, tokens, window = 32, 4, 16, 12
    # The names of Google's checkpoints; Transformers 5 leaves a part out.
    renamed = {"vision_tower.": "vision_tower.vision_model."}

    def make(self):
        text = {**TEXT, "sliding_window": self.window, "query_pre_attn_scalar": 24,
                "layer_types": ["sliding_attention", "full_attention"],
                "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                                    "full_attention": {"rope_type": "linear", "factor": 8.0,
                                                       "rope_theta": 1000000.0}}}
        vision = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                  "patch_size": self.patch, "image_size": self.side, "vision_use_head": False}
        config = transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=self.tokens,
                                           boi_token_index=BEGIN, eoi_token_index=END, image_token_index=PATCH)
        return transformers.Gemma3ForConditionalGeneration(config)

    def shape(self, width, height):
        return (1, 3, self.side, self.side)

    def ids(self, width, height):
        return [BLANK, BEGIN], [PATCH] * self.tokens, [END, BLANK]

    # What SGLang computes: image tokens that see each other (triton), causal ones (other backends), and chunks of a
    # prompt, each of which shows the images that begin in it as far as it has them.
    variants = {"": "causal", "both_ways": "both_ways", "both_ways_chunks_of_16": 16}

    def words(self, ids, prompt, variant):
        if variant == "causal":
            return {}
        if variant == "both_ways":
            return {"token_type_ids": (torch.tensor([ids]) == PATCH).int()}
        place = torch.arange(len(ids))
        ends = place + 1
        for begin in range(0, prompt, variant):
            end = min(begin + variant, prompt)
            for at in range(begin, end):
                if ids[at] == PATCH and (at == begin or ids[at - 1] != PATCH):
                    if at == begin and begin > 0 and ids[begin - 1] == PATCH:
                        continue  # the rest of an image
                    stop = at
                    while stop < end and ids[stop] == PATCH:
                        stop += 1
                    ends[at:stop] = stop
        seen = place[None, :] < ends[:, None]
        near = place[None, :] > place[:, None] - self.window
        masks = {"full_attention": seen, "sliding_attention": seen & near}
        return {"attention_mask": {kind: torch.where(mask, 0.0, float("-inf"))[None, None] for kind, mask in masks.items()}}


def best_canvas(width, height, side, most):
    """get_best_fit of Transformers' image_processing_llama4.py, which wants torchvision: rows and columns of the
    canvas that enlarges least, else shrinks least, and of equals the smallest (compared with it in
    record_image_tokens.py)."""
    canvases = [(rows, columns) for rows in range(1, most + 1) for columns in range(1, most // rows + 1)]
    scale = {canvas: min(canvas[1] * side / width, canvas[0] * side / height) for canvas in canvases}
    return min(canvases, key=lambda canvas: (scale[canvas] < 1, abs(scale[canvas] - 1), canvas[0] * canvas[1]))


class Llama4:
    """Tiles of a canvas and a small copy of the whole, rotated in two dimensions, shuffled."""

    side, patch, most = 16, 4, 6
    renamed = {}
    preprocessor = {"max_patches": most}

    def make(self):
        text = {**TEXT, "intermediate_size": 16, "intermediate_size_mlp": 32,
                "num_local_experts": 4, "num_experts_per_tok": 2, "interleave_moe_layer_step": 2,
                "no_rope_layers": [1, 0], "attention_chunk_size": 32, "floor_scale": 16, "attn_scale": 0.5, **ROPE}
        vision = {"hidden_size": 32, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
                  "patch_size": self.patch, "image_size": self.side, "projector_input_dim": 24,
                  "projector_output_dim": 24, "vision_output_dim": 24, "pixel_shuffle_ratio": 0.5}
        config = transformers.Llama4Config(text_config=text, vision_config=vision, boi_token_index=BEGIN,
                                           eoi_token_index=END, image_token_index=PATCH)
        return transformers.Llama4ForConditionalGeneration(config)

    def grid(self, width, height):
        return best_canvas(width, height, self.side, self.most)

    def shape(self, width, height):
        rows, columns = self.grid(width, height)
        tiles = rows * columns
        return (tiles + (tiles > 1), 3, self.side, self.side)

    def ids(self, width, height):
        rows, columns = self.grid(width, height)
        tile = [PATCH] * (self.side // self.patch // 2) ** 2
        inside = []
        if rows * columns > 1:
            for _ in range(rows):
                for column in range(columns):
                    inside += tile + ([COLUMN] if column + 1 < columns else [ROW])
        return [BEGIN], inside + [IMAGE] + tile, [END]

    variants = {"": None}

    def words(self, ids, prompt, variant):
        return {}


class InternVL:
    """InternViT with its class token and layer scales; `own`: 300M's kind, as OpenGVLab's checkpoints spell it; else
    6B's kind (normed queries and keys), as Transformers does."""

    side, patch, most = 16, 4, 12

    renamed = {}
    added_tokens = {"<img>": BEGIN, "</img>": END, "<IMG_CONTEXT>": PATCH}

    def __init__(self, own):
        self.own = own

    def make(self):
        text = {**TEXT, **ROPE, "model_type": "qwen3" if self.own else "qwen2"}
        if not self.own:
            text.update(hidden_size=64, head_dim=None)
        vision = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                  "patch_size": [self.patch] * 2, "image_size": [self.side] * 2, "attention_bias": self.own,
                  "norm_type": "layer_norm" if self.own else "rms_norm", "use_qk_norm": not self.own}
        text = {key: value for key, value in text.items() if value is not None or key == "pad_token_id"}
        config = transformers.InternVLConfig(text_config=text, vision_config=vision, image_token_id=PATCH,
                                             downsample_ratio=0.5, tie_word_embeddings=False)
        return transformers.InternVLForConditionalGeneration(config)

    def tiles(self, width, height):
        """dynamic_preprocess of SGLang's processor: the grid nearest in aspect ratio, of equals the largest."""
        best = None
        for blocks in range(1, self.most + 1):
            for columns in range(1, blocks + 1):
                if blocks % columns == 0:
                    rank = (abs(width / height - columns / (blocks // columns)), -blocks)
                    best = rank if best is None else min(best, rank)
        blocks = -best[1]
        return blocks + (blocks > 1)

    def shape(self, width, height):
        return (self.tiles(width, height), 3, self.side, self.side)

    def ids(self, width, height):
        return [BEGIN], [PATCH] * (self.tiles(width, height) * (self.side // self.patch // 2) ** 2), [END]

    variants = {"": None}

    def words(self, ids, prompt, variant):
        return {}

    def stored(self, tensors, config):
        """Tensors and config.json as OpenGVLab's checkpoints have them."""
        if not self.own:
            return tensors, config
        names = {"vision_tower.embeddings.cls_token": "vision_model.embeddings.class_embedding",
                 "vision_tower.embeddings.position_embeddings": "vision_model.embeddings.position_embedding",
                 "vision_tower.embeddings.patch_embeddings.projection.": "vision_model.embeddings.patch_embedding.",
                 "vision_tower.encoder.layer.": "vision_model.encoder.layers.", ".lambda_1": ".ls1",
                 ".lambda_2": ".ls2", ".layernorm_before.": ".norm1.", ".layernorm_after.": ".norm2.",
                 ".attention.projection_layer.": ".attn.proj.", "multi_modal_projector.layer_norm.": "mlp1.0.",
                 "multi_modal_projector.linear_1.": "mlp1.1.", "multi_modal_projector.linear_2.": "mlp1.3."}
        out = {}
        for key, tensor in tensors.items():
            if ".attention.k_proj." in key or ".attention.v_proj." in key:
                continue
            if ".attention.q_proj." in key:
                parts = [tensors[key.replace("q_proj", f"{part}_proj")] for part in "qkv"]
                key, tensor = key.replace(".attention.q_proj.", ".attn.qkv."), torch.cat(parts)
            for old, new in names.items():
                key = key.replace(old, new)
            out[key] = tensor
        vision, text = dict(config["vision_config"]), dict(config["text_config"])
        vision.update(image_size=self.side, patch_size=self.patch, qkv_bias=vision.pop("attention_bias"),
                      qk_normalization=vision.pop("use_qk_norm"), model_type="intern_vit_6b",
                      architectures=["InternVisionModel"])
        text["architectures"] = ["Qwen3ForCausalLM"]
        return out, {"architectures": ["InternVLChatModel"], "model_type": "internvl_chat", "llm_config": text,
                     "vision_config": vision, "downsample_ratio": 0.5, "force_image_size": self.side,
                     "ps_version": "v2", "select_layer": -1, "max_dynamic_patch": self.most,
                     "dtype": config["dtype"]}


FAMILIES = {"gemma3-vision": Gemma3(), "llama4-vision": Llama4(), "internvl": InternVL(own=True),
            "internvl-hf": InternVL(own=False)}
