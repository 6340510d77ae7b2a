#!/usr/bin/env python3
"""Quantised tensors and what the real libraries dequantise them to.

Usage: quantised.py FOLDER      FOLDER: tests/golden/quantised

Writes FOLDER/model.safetensors (tiny tensors in every format that tpsim reads) and FOLDER/expected.safetensors (what
they stand for, in fp32). make_references.py uses the functions here for its quantised models.

Dequantised by: Transformers (fp8 blocks: finegrained_fp8.Fp8Dequantize; mxfp4: mxfp4.convert_moe_packed_tensors),
compressed-tensors (pack-quantized, nvfp4-pack-quantized, float-quantized, int-quantized: its compressors), AutoAWQ
(utils.packing_utils.dequantize_gemm) and the sentence of the format for GPTQ, (code - (zero + 1)) * scale in fp16,
and for ModelOpt's fp8 and nvfp4. Needs torch, transformers, safetensors, compressed-tensors and autoawq (with loguru and pydantic).
"""

import importlib.util
import os
import sys

import safetensors.torch
import torch

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def quantise_fp8_block(weight, block):
    """(codes in e4m3, scales in fp32) of a matrix; the last blocks may be short."""
    n, k = weight.shape
    rows, columns = -(-n // block[0]), -(-k // block[1])
    padded = torch.zeros(rows * block[0], columns * block[1])
    padded[:n, :k] = weight
    parts = padded.view(rows, block[0], columns, block[1])
    scales = parts.abs().amax(dim=(1, 3)).clamp(min=1e-4) / 448.0
    codes = (parts / scales[:, None, :, None]).view_as(padded)[:n, :k].to(torch.float8_e4m3fn)
    return codes.contiguous(), scales


def dequantise_fp8_block(codes, scales):
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    return Fp8Dequantize(None)._dequantize_one(codes, scales, output_dtype=torch.float32)


def quantise_mxfp4(weight):
    """(blocks, scales) of [experts, n, k]: 32 codes of a row, 16 bytes, share an e8m0 scale."""
    experts, n, k = weight.shape
    parts = weight.reshape(experts, n, k // 32, 32)
    exponent = torch.floor(torch.log2(parts.abs().amax(-1).clamp(min=1e-9))) - 2
    codes = nearest_e2m1(parts / torch.exp2(exponent)[..., None])
    return codes[..., ::2] | codes[..., 1::2] << 4, (exponent + 127).to(torch.uint8)


def dequantise_mxfp4(blocks, scales):
    """[experts, k, n], as gpt-oss has it in 16 bit."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    return convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16).to(torch.float32)


def nearest_e2m1(values):
    grid = E2M1[:8]
    codes = (values.abs()[..., None] - grid).abs().argmin(-1)
    return (codes + 8 * (values < 0)).to(torch.uint8)


def quantise_nvfp4(weight):
    """(packed, scales in e4m3, scale of the tensor) as ModelOpt stores them."""
    n, k = weight.shape
    scale_2 = weight.abs().max() / (6.0 * 448.0)
    parts = weight.reshape(n, k // 16, 16)
    scales = (parts.abs().amax(-1) / 6.0 / scale_2).clamp(min=0.01).to(torch.float8_e4m3fn)
    codes = nearest_e2m1(parts / (scales.to(torch.float32) * scale_2)[..., None]).reshape(n, k)
    return codes[:, ::2] | codes[:, 1::2] << 4, scales, scale_2.to(torch.float32)


def dequantise_nvfp4(packed, scales, scale_2):
    codes = torch.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1)
    by_16 = (scales.to(torch.float32) * scale_2).repeat_interleave(16, dim=1)
    return E2M1[codes.long()] * by_16


def quantise_model(model, method):
    """Replaces the model's weights by what their quantisation stands for; returns the tensors to store instead, by
    name, and the quantization_config. A fused expert tensor [experts, 2 x width, hidden] is taken apart."""
    stored, config = {}, None
    with torch.no_grad():
        for key, tensor in model.named_parameters():
            matrix = tensor.dim() >= 2 and "embed" not in key and "lm_head" not in key
            router = key.endswith(("mlp.gate.weight", "router.weight"))
            if method == "fp8-block" and matrix and not router:
                config = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [8, 16]}
                for name, part in parts_of(key, tensor):
                    codes, scales = quantise_fp8_block(part, (8, 16))
                    part.copy_(dequantise_fp8_block(codes, scales))
                    stored[name], stored[name + "_scale_inv"] = codes, scales
            elif method == "mxfp4" and tensor.dim() == 3:
                config = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
                blocks, scales = quantise_mxfp4(tensor.transpose(1, 2))
                tensor.copy_(dequantise_mxfp4(blocks, scales))
                stored[key + "_blocks"], stored[key + "_scales"] = blocks, scales
            elif method == "nvfp4" and matrix:
                config = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"],
                          "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}}}
                packed, scales, scale_2 = quantise_nvfp4(tensor)
                tensor.copy_(dequantise_nvfp4(packed, scales, scale_2))
                stored[key], stored[key + "_scale"], stored[key + "_scale_2"] = packed, scales, scale_2
            else:
                stored[key] = tensor.to(torch.bfloat16)
        for key, tensor in model.state_dict().items():
            if key.endswith("e_score_correction_bias"):
                stored[key] = tensor.to(torch.float32)
    return {name: tensor.contiguous().clone() for name, tensor in stored.items()}, config


def parts_of(key, tensor):
    if tensor.dim() == 2:
        return [(key, tensor)]
    at, leaf = key.rsplit(".", 1)
    names = ("gate_proj", "up_proj") if leaf == "gate_up_proj" else (leaf,)
    return [(f"{at}.{i}.{name}.weight", part) for i, expert in enumerate(tensor)
            for name, part in zip(names, expert.chunk(len(names)))]


def pack(codes, bits=4):
    """Eight codes of the last dimension in an int32, the first lowest."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int64)
    words = (codes.reshape(*codes.shape[:-1], -1, 8).to(torch.int64) << shifts).sum(-1)
    return torch.where(words >= 2 ** 31, words - 2 ** 32, words).to(torch.int32)


def gptq(generator, stored, expected, name, n, k, group, act_order, bf16=False):
    codes = torch.randint(0, 16, (k, n), generator=generator)
    zeros = torch.randint(0, 15, (k // group, n), generator=generator)
    scales = (torch.rand(k // group, n, generator=generator) * 0.02 + 1e-3).to(torch.bfloat16 if bf16 else torch.float16)
    index = torch.arange(k) // group
    if act_order:
        index = index[torch.randperm(k, generator=generator)]
        stored[f"{name}.g_idx"] = index.to(torch.int32)
    stored[f"{name}.qweight"] = pack(codes.t()).t()
    stored[f"{name}.qzeros"] = pack(zeros)
    stored[f"{name}.scales"] = scales
    weight = (codes - (zeros + 1)[index]).to(scales.dtype) * scales[index]
    expected[f"{name}.weight"] = weight.t().to(torch.float32)


def awq(generator, stored, expected, name, n, k, group):
    # The package itself asks for much more than this file of it.
    folder = importlib.util.find_spec("awq").submodule_search_locations[0]
    spec = importlib.util.spec_from_file_location("packing_utils", os.path.join(folder, "utils", "packing_utils.py"))
    packing_utils = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(packing_utils)

    word = lambda *shape: torch.randint(-2 ** 31, 2 ** 31, shape, generator=generator).to(torch.int32)
    codes, zeros = word(k, n // 8), word(k // group, n // 8)
    scales = (torch.rand(k // group, n, generator=generator) * 0.02 + 1e-3).to(torch.float16)
    stored.update({f"{name}.qweight": codes, f"{name}.qzeros": zeros, f"{name}.scales": scales})
    expected[f"{name}.weight"] = packing_utils.dequantize_gemm(codes, zeros, scales, 4, group).t().to(torch.float32)


def compressed(generator, stored, expected):
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    # 4-bit groups of 32, symmetric; compressed-tensors shifts codes by 8.
    args = QuantizationArgs(num_bits=4, type="int", strategy="group", group_size=32, symmetric=True)
    packed = torch.randint(-2 ** 31, 2 ** 31, (24, 12), generator=generator).to(torch.int32)
    scale = (torch.rand(24, 3, generator=generator) * 0.02 + 1e-3).to(torch.bfloat16)
    stored.update({"ct4.weight_packed": packed, "ct4.weight_scale": scale, "ct4.weight_shape": torch.tensor([24, 96])})
    codes = unpack_from_int32(packed, 4, torch.Size([24, 96]))
    expected["ct4.weight"] = dequantize(codes, scale, args=args).to(torch.float32)
    # 4-bit groups with zero points, packed along the outputs.
    zeros = torch.randint(-2 ** 31, 2 ** 31, (3, 3), generator=generator).to(torch.int32)
    stored.update({"ct4zp.weight_packed": packed, "ct4zp.weight_scale": scale, "ct4zp.weight_zero_point": zeros,
                   "ct4zp.weight_shape": torch.tensor([24, 96])})
    args = QuantizationArgs(num_bits=4, type="int", strategy="group", group_size=32, symmetric=False)
    points = unpack_from_int32(zeros, 4, torch.Size([24, 3]), packed_dim=0)
    expected["ct4zp.weight"] = dequantize(codes, scale, points, args=args).to(torch.float32)
    # fp8 for each output, int8 for each output.
    args = QuantizationArgs(num_bits=8, type="float", strategy="channel", symmetric=True)
    codes = (torch.randn(24, 40, generator=generator) * 100).clamp(-448, 448).to(torch.float8_e4m3fn)
    scale = (torch.rand(24, 1, generator=generator) * 0.02 + 1e-3).to(torch.bfloat16)
    stored.update({"ct8.weight": codes, "ct8.weight_scale": scale})
    expected["ct8.weight"] = dequantize(codes, scale, args=args).to(torch.float32)
    args = QuantizationArgs(num_bits=8, type="int", strategy="channel", symmetric=True)
    codes = torch.randint(-128, 128, (24, 40), generator=generator).to(torch.int8)
    stored.update({"cti8.weight": codes, "cti8.weight_scale": scale.to(torch.float32)})
    expected["cti8.weight"] = dequantize(codes, scale.to(torch.float32), args=args).to(torch.float32)
    # nvfp4 with its global scale as a divisor.
    args = QuantizationArgs(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True)
    packed = torch.randint(0, 256, (24, 32), generator=generator).to(torch.uint8)
    scale = (torch.rand(24, 4, generator=generator) * 400 + 1).to(torch.float8_e4m3fn)
    divisor = torch.tensor([1234.5])
    stored.update({"ctnv.weight_packed": packed, "ctnv.weight_scale": scale, "ctnv.weight_global_scale": divisor})
    codes = unpack_fp4_from_uint8(packed, 24, 64, dtype=torch.float32)
    expected["ctnv.weight"] = dequantize(codes, scale.to(torch.float32), args=args, global_scale=divisor).to(torch.float32)


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    generator = torch.Generator().manual_seed(5)
    stored, expected = {}, {}
    weight = torch.randn(24, 48, generator=generator)
    codes, scales = quantise_fp8_block(weight, (8, 16))
    stored["block.weight"], stored["block.weight_scale_inv"] = codes, scales
    expected["block.weight"] = dequantise_fp8_block(codes, scales)
    # A last block that is short, as DeepSeek's 576 rows of 128 have it.
    codes, scales = quantise_fp8_block(weight[:20, :40], (16, 16))
    stored["short.weight"], stored["short.weight_scale_inv"] = codes, scales
    expected["short.weight"] = codes.to(torch.float32) * scales.repeat_interleave(16, 0)[:20].repeat_interleave(16, 1)[:, :40]
    codes = weight.clamp(-400, 400).to(torch.float8_e4m3fn)
    stored["tensor.weight"], stored["tensor.weight_scale"] = codes, torch.tensor(0.0123)
    expected["tensor.weight"] = codes.to(torch.float32) * torch.tensor(0.0123)
    packed, scales, scale_2 = quantise_nvfp4(weight)
    stored.update({"nv.weight": packed, "nv.weight_scale": scales, "nv.weight_scale_2": scale_2})
    expected["nv.weight"] = dequantise_nvfp4(packed, scales, scale_2)
    blocks, scales = quantise_mxfp4(torch.randn(3, 10, 64, generator=generator))
    stored["experts.gate_up_proj_blocks"], stored["experts.gate_up_proj_scales"] = blocks, scales
    expected["experts.gate_up_proj"] = dequantise_mxfp4(blocks, scales)
    gptq(generator, stored, expected, "gptq", 24, 64, 32, act_order=False)
    gptq(generator, stored, expected, "gptqorder", 16, 64, 16, act_order=True)
    awq(generator, stored, expected, "awq", 32, 48, 16)
    compressed(generator, stored, expected)
    stored["plain.weight"] = weight.to(torch.bfloat16)
    expected["plain.weight"] = weight.to(torch.bfloat16).to(torch.float32)
    for name, tensors in (("model", stored), ("expected", expected)):
        tensors = {key: tensor.clone().contiguous() for key, tensor in tensors.items()}
        safetensors.torch.save_file(tensors, os.path.join(folder, name + ".safetensors"))
    print(f"{len(expected)} tensors")


if __name__ == "__main__":
    main()
