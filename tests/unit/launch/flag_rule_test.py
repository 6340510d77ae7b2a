"""Where a flag stands: in its subject's file of launch/flags, and in its subject's file of launch/deployment.

Reads the tree, so that a new flag that is strewn over files fails here and not in a review.
"""

import collections
import re
import sys
from pathlib import Path

ROOT = Path(sys.argv[1])
FLAGS = ROOT / "launch" / "flags"
DEPLOYMENT = ROOT / "launch" / "deployment"

# The subject's file of launch/deployment, where it has another name than that of launch/flags.
HOMES = {"state": "states", "kernel": "kernels", "batch": "batches", "image": "images",
         "disaggregation": "sides"}
# Subjects of a run, which no deployment knows.
OF_RUNS = {"output"}
# Subjects that are members of ServerArgs; of the others it has the fields themselves.
MEMBERS = {"parallel": "parallel", "speculation": "speculation", "image": "images", "router": "router",
           "disaggregation": "disaggregation", "hicache": "hicache"}
# What files of other subjects read as well: how large the deployment is and what is to be served, what one
# subject bounds of another one, and what refuses a combination.
SHARED = {
    "model.model_path": "speculation", "model.hardware": "attention", "model.executor": "resolve",
    "model.tp_size": "attention batches memory nodes parallel resolve", "model.context_length": "batches",
    "model.rank_slowdown": "resolve", "model.dtype": "attention", "model.quantization": "speculation",
    "attention.attention_backends": "resolve", "memory.max_total_tokens": "batches",
    "memory.max_running_requests": "batches states", "state.max_mamba_cache_size": "memory",
    "batch.max_prefill_tokens": "memory", "batch.enable_mixed_chunk": "attention speculation",
    "batch.disable_radix_cache": "attention speculation", "batch.disable_overlap_schedule": "host speculation",
    "batch.sglang_release": "attention draft hicache images kernels memory model sides speculation states",
    "host.launch_queue": "resolve", "load.dataset_name": "images", "load.random_seed": "elastic parallel resolve router", "load.max_goodput_rate": "elastic",
    "parallel.nnodes": "nodes", "parallel.pp_size": "batches hicache memory nodes router", "parallel.expert_distribution": "model", "parallel.load_balance": "batches router",
    "speculation.algorithm": "batches images", "speculation.draft_attention_backend": "attention",
    "image.image_count": "load", "image.image_resolution": "load", "image.random_image_count": "load",
    "image.image_content": "load", "disaggregation.pd_disaggregation": "resolve router",
}


def code(path):
    return re.sub(r"//[^\n]*", "", path.read_text())


def fields(subject):
    """Names of the fields of the subject's struct."""
    body = re.search(r"struct \w+Args \{(.*?)\n\};", code(FLAGS / f"{subject}_flags.h"), re.S).group(1)
    for statement in body.split(";"):
        declaration = re.sub(r"=.*", "", statement.strip(), flags=re.S)
        if "(" not in declaration:
            yield from re.findall(r"(\w+)\s*(?:,|$)", declaration)


def main():
    failures = []
    declared = collections.defaultdict(set)
    for path in FLAGS.glob("*.cc"):
        for names in re.findall(r'add_(?:value|list|switch)\(\s*"([^"]+)"', code(path)):
            for name in names.split(","):
                declared[name].add(path.name)
    # --seed is an own flag of a load, and a name of --random-seed where there is no load.
    failures += [f"{flag} is declared in {sorted(files)}" for flag, files in declared.items()
                 if len(files) > 1 and flag not in ("--random-seed", "--seed", "--hardware", "--model-path", "--model")]
    if len(declared) < 120:
        failures.append(f"only {len(declared)} flags were found: the declarations are written in another way")

    sources = {path: code(path) for path in DEPLOYMENT.iterdir() if path.suffix in (".cc", ".h")}
    used = set()
    for header in FLAGS.glob("*_flags.h"):
        subject = header.name.removesuffix("_flags.h")
        home = HOMES.get(subject, subject)
        if subject not in OF_RUNS and not (DEPLOYMENT / f"{home}.cc").exists():
            failures.append(f"{header.name} has no {home}.cc in launch/deployment")
        for field in fields(subject):
            member = MEMBERS.get(subject)
            read = rf"\b(?:args|server)\.{member + '[.]' if member else ''}{field}\b"
            for path, text in sources.items():
                where = path.stem
                if where == home or subject in OF_RUNS or not re.search(read, text):
                    continue
                used.add(f"{subject}.{field} {where}")
                if where not in SHARED.get(f"{subject}.{field}", "").split():
                    failures.append(f"{path.name} reads {field} of {header.name}")
    failures += [f"{shared} is not read by {where}: take it off the list" for shared, files in SHARED.items()
                 for where in files.split() if f"{shared} {where}" not in used]
    print("\n".join(failures))
    return 1 if failures else 0


sys.exit(main())
