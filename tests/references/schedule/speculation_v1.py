"""SGLang 0.5.12's spec v1 (trees, n-grams, and chains without overlap) on a CPU: its own allocation for drafts and
verification, its own taking of what was accepted, and freeing; kernels are written out, and which drafts are right is
what the workload says."""

import torch
from sglang.srt.speculative import eagle_info, eagle_worker, ngram_info, spec_utils
from sglang.srt.speculative.eagle_info import EagleDraftInput, EagleVerifyInput
from sglang.srt.speculative.ngram_info import NgramVerifyInput

import stand_ins


class _Kernel:
    """A Triton kernel's name, with what it does as a function."""

    def __init__(self, function):
        self.function = function

    def __getitem__(self, grid):
        return self.function


def assign_slots(rows, req_to_token, starts, ends, slots, *sizes):
    at = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        req_to_token[row, start:end] = slots[at : at + end - start].to(req_to_token.dtype)
        at += end - start


def _align_evict_mask(seq_lens, evict_mask, page_size, drafts, *sizes):
    for i, length in enumerate(seq_lens.tolist()):
        row = evict_mask[i * drafts : (i + 1) * drafts]
        kept = drafts - int(row.sum())
        start = (length + kept - 1) // page_size * page_size - length
        row[max(start, 0) : max(0, min(start + page_size, drafts))] = False


def _target_slots(targets, to_free, correct, num_to_free, slots, drafts, *sizes):
    kept_at = free_at = 0
    for i, (right, freed) in enumerate(zip(correct.tolist(), num_to_free.tolist(), strict=True)):
        row = slots[i * drafts : (i + 1) * drafts]
        targets[kept_at : kept_at + right + 1] = row[: right + 1]
        to_free[free_at : free_at + freed] = row[drafts - freed :]
        kept_at, free_at = kept_at + right + 1, free_at + freed


def _nothing(*args):
    pass


for _module in (spec_utils, eagle_info, ngram_info, eagle_worker):
    for _name, _value in {
        "assign_req_to_token_pool": _Kernel(assign_slots), "assign_req_to_token_pool_func": assign_slots,
        "assign_draft_cache_locs": _Kernel(_nothing), "align_evict_mask_to_page_size": _Kernel(_align_evict_mask),
        "get_target_cache_loc": _Kernel(_target_slots), "filter_finished_cache_loc_kernel": _Kernel(_nothing),
    }.items():
        if hasattr(_module, _name):
            setattr(_module, _name, _value)


class WorkerV1:
    """Mixed with the stand-in worker of the harness, whose tokens and accepted lengths it takes."""

    def __init__(self, workload, config):
        super().__init__(workload, config)
        self.device, self.page_size = "cpu", config["page_size"]
        self.topk, self.speculative_num_steps = config["speculative_eagle_topk"], config["speculative_num_steps"]
        self.extend_lens = self.num_new_pages_per_topk = None
        self.draft_model_runner = stand_ins.Nothing()
        self.plan = []

    def _next_input(self, requests):
        guesses = torch.zeros(requests, self.topk)
        return EagleDraftInput(topk_p=guesses, topk_index=guesses.to(torch.int64),
                               bonus_tokens=torch.zeros(requests, dtype=torch.int32))

    def forward_batch_generation(self, batch, **kwargs):
        self.token_to_kv_pool_allocator = batch.token_to_kv_pool_allocator
        heads = self.config["speculative_algorithm"] != "NGRAM"
        if not batch.forward_mode.is_decode():
            result = super().forward_batch_generation(batch)
            if heads:
                batch.spec_info = self._next_input(len(batch.reqs))
            result.accept_lens = None
            return result
        requests, drafts = len(batch.reqs), self.drafts
        if heads:
            eagle_worker.EAGLEWorker._draft_preprocess_decode(self, batch)
        tree = torch.arange(requests * drafts).reshape(requests, drafts)
        zeros = torch.zeros(requests * drafts, dtype=torch.int64)
        if heads:
            verify = EagleVerifyInput(
                draft_token=zeros, custom_mask=zeros, positions=zeros, retrieve_index=tree, retrieve_next_token=tree,
                retrieve_next_sibling=tree, retrieve_cum_len=None, spec_steps=self.speculative_num_steps,
                topk=self.topk, draft_token_num=drafts, capture_hidden_mode=None, seq_lens_sum=0,
                seq_lens_cpu=batch.seq_lens_cpu,
            )
            verify.hidden_states = None
        else:
            verify = NgramVerifyInput(zeros, zeros, zeros, tree, tree, tree, drafts)
        batch.spec_info = verify
        verify.prepare_for_verify(batch, self.page_size)
        self.allocated()
        self.plan = self.steps(batch)
        logits = stand_ins.Nothing(next_token_logits=torch.zeros(requests * drafts, 1), hidden_states=None)
        if heads:
            done = verify.verify(batch, logits, batch.token_to_kv_pool_allocator, self.page_size)
            correct = done.num_correct_drafts_per_req_cpu
            batch.spec_info = self._next_input(len(done.draft_extend_input.input_ids) and sum(
                not r.finished() for r in batch.reqs))
        else:
            verify.verify(batch, logits, self.page_size)
            correct = verify.num_correct_drafts.tolist()
        from sglang.srt.managers.utils import GenerationBatchResult

        return GenerationBatchResult(next_token_ids=zeros, num_correct_drafts=sum(correct),
                                     num_correct_drafts_per_req_cpu=correct)


def install(worker):
    """Makes the kernel that walks the tree say what `worker` has planned for the step."""

    def walk(predicts, accept_index, accept_token_num, **kwargs):
        drafts = worker.drafts
        for i, (kept, tokens) in enumerate(worker.plan):
            accept_index[i, :kept] = torch.arange(i * drafts, i * drafts + kept)
            predicts[i * drafts : i * drafts + kept] = torch.tensor(tokens[:kept], dtype=predicts.dtype)
            accept_token_num[i] = kept - 1
        return predicts, accept_index, accept_token_num

    eagle_info.verify_tree_greedy_func = walk
    ngram_info.verify_tree_greedy = walk
