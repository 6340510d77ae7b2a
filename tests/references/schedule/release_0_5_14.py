"""What SGLang 0.5.14 wants to be told where its __init__ does not run."""

from array import array

import paged_kernels
import stand_ins
import torch
from sglang.srt.mem_cache.allocator import paged
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.chunk_cache import ChunkCache
from sglang.srt.mem_cache.radix_cache import RadixCache
from sglang.srt.server_args import set_global_server_args_for_scheduler

paged_kernels.replace_in(paged)


def attention_backend(config):
    return "torch_native"


def publish(args, config):
    args.pp_max_micro_batch_size = config["max_running_requests"]
    set_global_server_args_for_scheduler(args)
    for name in ("page_size", "chunked_prefill_size", "schedule_policy", "enable_mixed_chunk",
                 "disable_overlap_schedule", "enable_priority_scheduling"):
        if getattr(args, name) != config[name]:
            raise RuntimeError(f"SGLang resolved {name} to {getattr(args, name)}, wanted {config[name]}")


def allocator(tokens, page_size):
    kv = stand_ins.Nothing()
    if page_size == 1:
        return TokenToKVPoolAllocator(tokens, torch.float16, "cpu", kv, False)
    return paged.PagedTokenToKVPoolAllocator(tokens, page_size, torch.float16, "cpu", kv, False)


def token_ids(ids):
    return array("q", ids)


def low_priority_values_first(req, server_args):
    return server_args.schedule_low_priority_values_first


class _Same:
    """Answers with what it was asked about: hooks of data parallelism and n-gram embeddings."""

    def maybe_prepare_mlp_sync_batch(self, batch, need_sync=None):
        return batch

    def recv_requests(self):
        return []


class _Sender:
    def __init__(self, scheduler):
        self.scheduler = scheduler

    def send_output(self, abort_req, req):
        self.scheduler.aborted(req.rid)


class Hooks:
    def make_tree_cache(self, params):
        return ChunkCache(params) if self.disable_radix_cache else RadixCache(params)

    def init_release(self):
        self.request_receiver = self.dp_attn_adapter = self.ngram_embedding_manager = _Same()
        self.ipc_channels = stand_ins.Nothing(send_to_tokenizer=_Sender(self))
        self.future_map = self.spec_algorithm.create_future_map(
            self.device, self.req_to_token_pool, needs_cpu_seq_lens=True
        )
        self.result_queue = []
        self.init_batch_result_processor()

    def process_input_requests(self, recv_reqs):
        self.arrive()

    def reset_new_token_ratio(self):
        self.new_token_ratio_tracker.reset()

    def is_partly_filled(self, req):
        return req.fill_len < len(req.full_untruncated_fill_ids)

    def _abort_on_waiting_timeout(self):
        pass

    def _abort_on_running_timeout(self):
        pass

    def _maybe_prepare_ngram_embedding(self, batch):
        return batch

    def maybe_send_health_check_signal(self):
        pass

    def _maybe_clear_mm_inputs(self, batch):
        pass
