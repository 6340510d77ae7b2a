"""What SGLang 0.5.12 wants to be told where its __init__ does not run."""

import paged_kernels
import stand_ins
import torch
from sglang.srt.managers.overlap_utils import FutureMap
from sglang.srt.mem_cache import allocator as allocators
from sglang.srt.mem_cache.chunk_cache import ChunkCache
from sglang.srt.mem_cache.radix_cache import RadixCache
from sglang.srt.server_args import set_global_server_args_for_scheduler

paged_kernels.replace_in(allocators)


def publish(args, config):
    args.pp_max_micro_batch_size = config.get("micro_batch", config["max_running_requests"])
    set_global_server_args_for_scheduler(args)
    for name in ("page_size", "chunked_prefill_size", "schedule_policy", "enable_mixed_chunk",
                 "disable_overlap_schedule", "enable_priority_scheduling"):
        if getattr(args, name) != config[name]:
            raise RuntimeError(f"SGLang resolved {name} to {getattr(args, name)}, wanted {config[name]}")


def allocator(tokens, page_size):
    kv = stand_ins.Nothing()
    if page_size == 1:
        return allocators.TokenToKVPoolAllocator(tokens, torch.float16, "cpu", kv, False)
    return allocators.PagedTokenToKVPoolAllocator(tokens, page_size, torch.float16, "cpu", kv, False)


def token_ids(ids):
    return ids


def low_priority_values_first(req, server_args):
    return server_args.schedule_low_priority_values_first


class _Sender:
    def __init__(self, scheduler):
        self.scheduler = scheduler

    def send_output(self, abort_req, req):
        self.scheduler.aborted(req.rid)


class Hooks:
    def make_tree_cache(self, params):
        return ChunkCache(params) if self.disable_radix_cache else RadixCache(params)

    def init_release(self):
        self.send_to_tokenizer = _Sender(self)
        self.future_map = FutureMap(
            self.max_running_requests, self.chunked_prefill_size, self.model_config.context_len, self.device,
            self.spec_algorithm,
        )
        self.num_generated_tokens = self.forward_ct_decode = 0

    def recv_requests(self):
        return []

    def process_input_requests(self, recv_reqs):
        self.arrive()

    def reset_new_token_ratio(self):
        self.new_token_ratio = self.init_new_token_ratio

    def is_partly_filled(self, req):
        return len(req.fill_ids) < len(req.origin_input_ids) + len(req.output_ids)

    def maybe_prepare_mlp_sync_batch(self, batch, need_sync=None):
        return batch

    def _nothing(self, *args, **kwargs):
        return None

    _abort_on_waiting_timeout = _abort_on_running_timeout = maybe_send_health_check_signal = _nothing
    _maybe_clear_mm_inputs = log_batch_result_stats = update_device_timer = _profile_batch_predicate = _nothing
    stream_output = report_prefill_stats = report_decode_stats = update_cache_from_scheduler = _nothing

    def _get_num_pending_tokens(self, chunk_deduct=0):
        return 0

    def _maybe_prepare_ngram_embedding(self, batch):
        return batch
