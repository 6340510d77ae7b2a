"""What SGLang 0.5.12 wants to be told where its __init__ does not run."""

import paged_kernels
import speculation_v1
import stand_ins
import torch
from sglang.srt.managers.overlap_utils import FutureMap
from sglang.srt.mem_cache import allocator as allocators
from sglang.srt.mem_cache.chunk_cache import ChunkCache
from sglang.srt.mem_cache.radix_cache import RadixCache
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler
from sglang.srt.speculative.eagle_info import EagleDraftInput

paged_kernels.replace_in(allocators)

# The CPU stands for a GPU: it has n-grams, and attention that verifies trees in pages; nothing is lent to streams.
_speculate = ServerArgs._handle_speculative_decoding


def _speculate_on_gpu(self):
    own = self.device, self.attention_backend
    self.device, self.attention_backend = "cuda", "fa3"
    _speculate(self)
    self.device, self.attention_backend = own


ServerArgs._handle_speculative_decoding = _speculate_on_gpu
torch.Tensor.record_stream = lambda self, stream: None


def speculative_worker(worker):
    """Spec v2 where there is overlap."""
    class V1(speculation_v1.WorkerV1, worker):
        pass

    def make(workload, config):
        if not config["disable_overlap_schedule"]:
            return worker(workload, config)
        made = V1(workload, config)
        speculation_v1.install(made)
        return made

    return make


def speculative_row_tokens(config):
    drafts, steps = config["speculative_num_draft_tokens"], config["speculative_num_steps"]
    return 2 * max(drafts, steps) + config["speculative_eagle_topk"] * (steps + 2 * config["page_size"])


def speculative_input(config, new_seq_lens, accept_lens, last_tokens):
    guesses = torch.zeros(len(accept_lens), config["speculative_eagle_topk"])
    return EagleDraftInput(topk_p=guesses, topk_index=guesses.to(torch.int64), bonus_tokens=last_tokens,
                           hidden_states=torch.zeros(len(accept_lens), 1), new_seq_lens=new_seq_lens,
                           verify_done=stand_ins.NoDevice.Event())


def attention_backend(config):
    return "torch_native"


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
    update_spec_metrics = _nothing

    def _get_num_pending_tokens(self, chunk_deduct=0):
        return 0

    def _maybe_prepare_ngram_embedding(self, batch):
        return batch
