#!/usr/bin/env python3
"""Records the trees that SGLang's own functions make of random guesses: select_top_k_tokens of speculative/spec_utils.py
and organize_draft_results of speculative/eagle_utils.py. What its CUDA kernel does with their results, finding each
draft's parent (build_tree_kernel_efficient of sgl-kernel), is written down here.

Usage: record_draft_trees.py SGLANG_FOLDER OUTPUT      SGLANG_FOLDER: sglang/srt of a release; OUTPUT: JSON

Needs torch; the functions are taken out of their files, so that the rest of SGLang need not be there.
"""

import ast
import json
import os
import sys

import torch


def functions(path, names, **environment):
    """Those functions of a file, without decorators and annotations, in a namespace of their own."""
    with open(path) as file:
        tree = ast.parse(file.read())
    kept = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    for node in kept:
        node.decorator_list, node.returns = [], None
        for argument in node.args.args:
            argument.annotation = None
    space = {"torch": torch, **environment}
    exec(compile(ast.Module(body=kept, type_ignores=[]), path, "exec"), space)
    return [space[name] for name in names]


def fast_topk(values, topk, dim):
    return torch.max(values, dim=dim, keepdim=True) if topk == 1 else torch.topk(values, topk, dim=dim)


def main():
    folder, output = sys.argv[1:]
    first, later, select = functions(os.path.join(folder, "speculative/spec_utils.py"),
                                     ["_select_top_k_tokens_first", "_select_top_k_tokens_later",
                                      "select_top_k_tokens"], fast_topk=fast_topk)
    select.__globals__.update(_select_top_k_tokens_first=first, _select_top_k_tokens_later=later)
    [organize] = functions(os.path.join(folder, "speculative/eagle_utils.py"), ["organize_draft_results"],
                           maybe_detect_oob=lambda *_: None)
    torch.manual_seed(1)
    cases = []
    for topk, steps, drafts in ((1, 4, 5), (2, 1, 3), (2, 3, 6), (3, 3, 9), (4, 4, 8), (4, 5, 16), (5, 2, 20), (8, 3, 32)):
        scores, score_list, token_list, parents_list, given, places = None, [], [], [], [], []
        for step in range(steps):
            rows = 1 if step == 0 else topk
            probabilities, tokens = torch.randn(rows, 32).mul(2).softmax(-1).topk(topk)
            given.append([[[int(t), float(p)] for t, p in zip(*pair)] for pair in zip(tokens, probabilities)])
            # The hidden state of a leaf tells its place: select_top_k_tokens says from which one each new leaf comes.
            hidden = torch.arange(float(rows)).view(rows, 1)
            ids, hidden, scores, info = select(step, probabilities, tokens, hidden, scores, topk)
            places.append([[int(t), int(h)] for t, h in zip(ids, hidden.flatten())])
            for into, what in zip((score_list, token_list, parents_list), info):
                into.append(what)
        parents, chosen, tokens = organize(score_list, token_list, parents_list, drafts)
        chosen, out = chosen[0].tolist(), []
        for node in chosen:
            parent = 0
            if node >= topk:
                parent = 1 + chosen.index(int(parents[0][node // topk]))
            out.append(parent)
        cases.append({"topk": topk, "num_draft_tokens": drafts, "guesses": given, "leaves": places,
                      "tokens": tokens[0].tolist(), "parents": out})
    with open(output, "w") as file:
        json.dump(cases, file)
    print(f"{len(cases)} trees, {os.path.getsize(output)} bytes")


if __name__ == "__main__":
    main()
