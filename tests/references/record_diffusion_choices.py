#!/usr/bin/env python3
"""What SGLang's own selector gives a layer of a diffusion pipeline, on random requests.

    python3 record_diffusion_choices.py SITE_PACKAGES > diffusion_choices.txt    # where sglang 0.5.23 is unpacked

The selector, the platforms and the resolvers are taken out of their files and run as they are, without PyTorch, which
stands beside them as names; packages count as importable where the request has them installed and they have kernels for
the device. Lines: generation head_dim dtype self|cross ring|- requested|- component|transformer|auxiliary and the
packages that are not installed, then the backend, or "refused".
"""
import __future__
import ast
import builtins
import enum
import pathlib
import random
import sys
import types

ROOT = pathlib.Path(sys.argv[1]) / "sglang/multimodal_gen/runtime"
LAYERS = "sglang.multimodal_gen.runtime.layers.attention.backends."
CAPABILITIES = {"turing": (7, 5), "ampere": (8, 0), "ada": (8, 9), "hopper": (9, 0), "blackwell": (10, 0),
                "blackwell_sm120": (12, 0)}
CUDA = set(CAPABILITIES)
SINCE_AMPERE = CUDA - {"turing"}
# Of tpsim's --installed: what is imported, and for which devices it is built.
PACKAGES = {"fa": ("flash_attn", CUDA | {"xpu"}), "sage": ("sage_attn", {"ampere", "ada", "hopper", "blackwell_sm120"}),
            "sage3": ("sage_attn3", {"blackwell", "blackwell_sm120"}), "vsa": ("video_sparse_attn", CUDA),
            "vmoba": ("vmoba", SINCE_AMPERE), "st_attn": ("sliding_tile_attn", {"hopper"}),
            "svg": ("sparse_video_gen_2_attn", SINCE_AMPERE), "aiter": ("aiter", {"rocm"}),
            "spargeattn": ("spas_sage_attn", SINCE_AMPERE)}
NAMES = ["fa", "torch_sdpa", "torch_cudnn_sdpa", "dynamic_cudnn_sdpa", "sliding_tile_attn", "sage_attn", "sage_attn_3",
         "video_sparse_attn", "vmoba_attn", "aiter", "aiter_sage", "sla_attn", "sage_sla_attn", "sparse_video_gen_2_attn"]
# Module and class that a path of a backend ends with -> name, head sizes of those that are asked for them.
ENUM_OF = {"FlashAttentionBackend": "FA", "SDPABackend": "TORCH_SDPA", "CudnnSDPABackend": "TORCH_CUDNN_SDPA",
           "DynamicCudnnSDPABackend": "DYNAMIC_CUDNN_SDPA", "AITerBackend": "AITER", "AITERSageBackend": "AITER_SAGE",
           "SparseLinearAttentionBackend": "SLA_ATTN", "SageSparseLinearAttentionBackend": "SAGE_SLA_ATTN",
           "SlidingTileAttentionBackend": "SLIDING_TILE_ATTN", "SageAttentionBackend": "SAGE_ATTN",
           "SageAttention3Backend": "SAGE_ATTN_3", "VideoSparseAttentionBackend": "VIDEO_SPARSE_ATTN",
           "SparseVideoGen2AttentionBackend": "SPARSE_VIDEO_GEN_2_ATTN", "VMOBAAttentionBackend": "VMOBA_ATTN",
           "XPUAttentionBackend": "FA", "AscendFABackend": "FA"}
RING = {"FlashAttentionBackend", "SageAttentionBackend", "XPUAttentionBackend", "AscendFABackend"}
state = {}


def head_sizes(module):
    """What get_supported_head_sizes() of the file's first class returns."""
    tree = ast.parse((ROOT / f"layers/attention/backends/{module}.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "get_supported_head_sizes":
            return eval(compile(ast.Expression(node.body[-1].value), module, "eval"))
    return []


def importable(module):
    return any(module in names and name in state["installed"] and state["generation"] in devices
               for name, (own, devices) in PACKAGES.items()
               for names in [{own, own + "_kernels"}])


class Logger:
    def __getattr__(self, name):
        return lambda *args, **kwargs: None


def backend_class(path):
    module, name = path.rsplit(".", 2)[-2:]
    needs = {"aiter": "aiter", "aiter_sage": "aiter"}.get(module)
    if needs and not importable(needs):
        raise ImportError(needs)
    kind = types.SimpleNamespace(name=name)
    kind.get_enum = lambda: Enum[ENUM_OF[name]]
    kind.unsupported_requirements = lambda requirements: ()
    kind.get_supported_head_sizes = lambda: head_sizes(module)
    kind.ring = name in RING
    return kind


class Finder:
    """Answers the imports inside the selector's functions."""

    MODULES = {"st_attn": "sliding_tile_attn", "sageattention": "sage_attn", "vsa": "video_sparse_attn",
               "kernel.attn.vmoba_attn.vmoba": "vmoba", "svg.kernels.triton.permute": "sparse_video_gen_2_attn",
               "svg.kmeans_utils": "sparse_video_gen_2_attn", LAYERS + "sage_attn3": "sage_attn3",
               LAYERS + "flash_attn": "flash_attn", "flash_attn": "flash_attn"}

    def __call__(self, name, globals=None, locals=None, fromlist=(), level=0):
        if name in self.MODULES and not importable(self.MODULES[name]):
            raise ImportError(name)
        if name == "sglang.multimodal_gen.runtime.platforms":
            return types.SimpleNamespace(current_platform=state["platform"])
        found = types.SimpleNamespace()
        for item in fromlist or ():
            module = name.rsplit(".", 1)[-1]
            setattr(found, item, backend_class(f"{name}.{item}") if name.startswith(LAYERS) and item in ENUM_OF
                    else (lambda *args, **kwargs: module != "flash_attention_v3"))
        return found


def take(path, names, scope):
    """The classes and functions `names` of a file, decorators left out, defined in `scope`."""
    tree = ast.parse((ROOT / path).read_text())
    chosen = []
    for node in tree.body:
        if getattr(node, "name", None) in names or (isinstance(node, ast.ClassDef) and node.name.endswith("Resolver")):
            if isinstance(node, ast.FunctionDef):
                node.decorator_list = []
            chosen.append(node)
        elif isinstance(node, ast.Assign) and any(len(getattr(target, "id", "")) > 3 and target.id.isupper()
                                                  for target in node.targets):
            chosen.append(node)
    exec(compile(ast.Module(chosen, []), path, "exec", __future__.annotations.compiler_flag), scope)


def methods(path, class_name, names, scope):
    tree = ast.parse((ROOT / path).read_text())
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            node.body = [item for item in node.body if getattr(item, "name", "") in names] or [ast.Pass()]
            node.bases, node.decorator_list = [ast.Name("Base", ast.Load())], []
            exec(compile(ast.fix_missing_locations(ast.Module([node], [])), path, "exec", __future__.annotations.compiler_flag), scope)
            return scope[class_name]
    raise KeyError(class_name)


class Base:
    device_name = "device"

    @classmethod
    def get_device_capability(cls):
        return types.SimpleNamespace(major=CAPABILITIES[state["generation"]][0], minor=CAPABILITIES[state["generation"]][1])

    @classmethod
    def is_blackwell(cls):
        return state["generation"] == "blackwell"

    @classmethod
    def is_hopper(cls):
        return state["generation"] == "hopper"

    @classmethod
    def is_sm120(cls):
        return state["generation"] == "blackwell_sm120"

    @classmethod
    def has_device_capability(cls, capability):
        major, minor = CAPABILITIES[state["generation"]]
        return 10 * major + minor >= capability


torch = types.SimpleNamespace(float16="fp16", bfloat16="bf16", float32="fp32", dtype=str,
                              nn=types.SimpleNamespace(Module=object), Tensor=object)
scope = {"torch": torch, "enum": enum, "types": types, "logger": Logger(), "Base": Base, "cast": lambda kind, value: value,
         "type": type, "Any": object, "resolve_name": lambda path: backend_class(path),
         "srt_envs": types.SimpleNamespace(SGLANG_USE_SAGE_ATTENTION_IMPL=types.SimpleNamespace(get=lambda: "")),
         "__name__": "recorded"}
scope["__builtins__"] = {**vars(builtins), "__import__": Finder()}
take("platforms/interface.py", {"AttentionBackendEnum"}, scope)
Enum = scope["AttentionBackendEnum"]
take("platforms/cuda.py", set(), scope)
RULES = {"get_attn_backend_cls_str", "_resolve_default_attn_backend", "_prepare_flash_attention_for_blackwell",
         "_resolve_flash_attention_backend_cls_str"}
PLATFORMS = {"rocm": methods("platforms/rocm.py", "RocmPlatform", RULES, scope),
             "xpu": methods("platforms/xpu.py", "XpuPlatform", RULES, scope),
             "npu": methods("platforms/npu.py", "NPUPlatformBase", RULES, scope) if "NPUPlatformBase" in
             (ROOT / "platforms/npu.py").read_text() else methods("platforms/npu.py", "NPUPlatform", RULES, scope),
             "cpu": methods("platforms/cpu.py", "CpuPlatform", RULES, scope)}
PLATFORMS.update({generation: methods("platforms/cuda.py", "CudaPlatformBase", RULES, scope) for generation in CUDA})


class ServerArgs:
    def __init__(self, backend, explicit):
        self.attention_backend, self.explicit = backend, explicit

    def is_arg_explicitly_set(self, name):
        return self.explicit


scope.update(
    AttentionRole=types.SimpleNamespace(CROSS=types.SimpleNamespace(value="cross"), SELF=types.SimpleNamespace(value="self")),
    AttentionRequirements=lambda: None, AttentionBackend=object, ServerArgs=ServerArgs,
    get_global_forced_attn_backend=lambda: None, get_component_forced_attn_backend_for_role=lambda role: None,
    get_component_forced_attn_backend=lambda: state["component"], get_global_server_args=lambda: state["args"],
    _component_allows_global_backend_fallback=lambda: state["auxiliary"], get_component_attn_backend_name=lambda: None,
    _record_component_attn_backend=lambda *args: True, make_component_role_key=lambda *args: "")
take("layers/attention/selector.py", {"get_attn_backend", "_cached_get_attn_backend", "_is_backend_supported"}, scope)


def answer(request):
    state.update(request, platform=PLATFORMS[request["generation"]], component=None)
    backend, explicit = request["requested"], request["requested"] is not None
    if request["for"] == "component" and explicit:
        state["component"], backend, explicit = Enum[backend.upper()], None, False
    if request["ring"]:  # server_args.py, _adjust_attention_backend
        if backend is not None and backend not in ("fa", "sage_attn"):
            return "refused"
        backend = backend or "fa"
    if backend is None and request["generation"] == "rocm":
        backend = "aiter"
    state["args"], state["auxiliary"] = ServerArgs(backend, explicit), request["for"] == "auxiliary"
    try:
        kind = scope["get_attn_backend"](request["head"], request["dtype"], is_cross_attention=request["cross"])
        # What its constructor asserts (sparse_linear_attn.py), and what a layer does in a ring (layer.py).
        if kind.name == "SageSparseLinearAttentionBackend" and not importable("spas_sage_attn"):
            return "refused"
        if request["ring"] and not kind.ring:
            return "refused"
    except (ValueError, ImportError, RuntimeError):
        return "refused"
    return kind.get_enum().name.lower()


def main():
    dice = random.Random(22)
    lines = set()
    while len(lines) < 650:
        request = {"generation": dice.choice(sorted(PLATFORMS)), "head": dice.choice([40, 64, 72, 80, 96, 128, 160, 256]),
                   "dtype": dice.choice(["bf16", "bf16", "fp16", "fp32"]), "cross": dice.random() < 0.3,
                   "ring": dice.random() < 0.15, "requested": dice.choice([None, None, None, *NAMES]),
                   "for": dice.choice(["transformer", "transformer", "component", "auxiliary"]),
                   "installed": {name for name in PACKAGES if dice.random() < 0.7} or {"fa"}}
        lines.add(" ".join([request["generation"], str(request["head"]), request["dtype"],
                            "cross" if request["cross"] else "self", "ring" if request["ring"] else "-",
                            request["requested"] or "-", request["for"], ",".join(sorted(PACKAGES.keys() - request["installed"])) or "-",
                            answer(request)]))
    print("\n".join(sorted(lines)))


main()
