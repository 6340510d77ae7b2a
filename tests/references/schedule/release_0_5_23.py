"""What SGLang 0.5.23 wants to be told where its __init__ does not run. The prefix cache is the one its servers
build: UnifiedRadixCache with the Rust core."""

from array import array

import sglang.srt.runtime_context as runtime_context
import stand_ins
import torch
import workloads
from sglang.srt.arg_groups import mamba_hook, speculative_hook
from sglang.srt.configs.mamba_utils import Mamba2CacheParams, Mamba2StateShape
from sglang.srt.mem_cache import allocation, allocation_sizing, registry
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_swa_memory_pool import BaseSWAKVPool
from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool
from sglang.srt.model_executor import pool_configurator
from sglang.srt.speculative.eagle_info import EagleDraftInput
from sglang.srt.speculative.ngram_info import NgramVerifyInput


# On a CPU SGLang does not overlap speculative decoding; here the CPU stands for a GPU.
speculative_hook._disable_overlap_schedule_for_cpu = lambda args: None


def _assign_slots(req_pool_indices, req_to_token, starts, ends, slots, batch_size):
    """What its Triton kernel does: each request's new slots, one request's after the other, into its row."""
    at = 0
    for row, start, end in zip(req_pool_indices.tolist(), starts.tolist(), ends.tolist(), strict=True):
        req_to_token[row, start:end] = slots[at : at + end - start].to(req_to_token.dtype)
        at += end - start


allocation.assign_req_to_token_pool_func = _assign_slots
allocation.get_last_loc_triton = allocation.get_last_loc_torch


def speculative_worker(worker):
    return worker


def speculative_row_tokens(config):
    return allocation_sizing.get_alloc_reserve_per_decode() + config["page_size"]


def speculative_input(config, new_seq_lens, accept_lens, last_tokens):
    """What the next step drafts from: with overlap all that matters goes through the FutureMap."""
    drafts, requests = config["speculative_num_draft_tokens"], len(accept_lens)
    if config["speculative_algorithm"] == "NGRAM":
        return NgramVerifyInput(draft_token_num=drafts, new_seq_lens=new_seq_lens, accept_lens=accept_lens,
                                accept_tokens=torch.zeros(requests * drafts, dtype=torch.int32))
    if not config["disable_overlap_schedule"]:
        return EagleDraftInput(bonus_tokens=last_tokens)
    guesses = torch.zeros(requests, config["speculative_eagle_topk"])
    return EagleDraftInput(bonus_tokens=last_tokens, topk_p=guesses, topk_index=guesses.to(torch.int64))


# What a server on a GPU may ask for; and pinned memory is that of one.
mamba_hook._platform_supports_mamba_cache_extra_buffer = lambda: True
torch.Tensor.pin_memory = lambda self, *args: self


def attention_backend(config):
    """Trees in pages are for some alone."""
    return "triton" if config.get("speculative_eagle_topk", 1) > 1 else "torch_native"


def publish(args, config):
    runtime_context.publish(
        args, role="scheduler", ranks=runtime_context.SpawnRanks(world_rank=0, gpu_id=0, dp_rank=None)
    )
    context = runtime_context.get_context()
    context.override("references", pp_max_micro_batch_size=config.get("micro_batch", config["max_running_requests"]))
    resolved = runtime_context.get_schedule()
    for name in ("page_size", "chunked_prefill_size", "schedule_policy", "enable_mixed_chunk",
                 "disable_overlap_schedule", "enable_priority_scheduling"):
        if getattr(resolved, name) != config[name]:
            raise RuntimeError(f"SGLang resolved {name} to {getattr(resolved, name)}, wanted {config[name]}")


def state_pool(config, longest):
    """The request rows and the smallest states that the pool's own code takes."""
    resolved = runtime_context.get_exec().mamba
    return HybridReqToTokenPool(
        size=config["max_running_requests"], max_context_len=longest, device="cpu", enable_memory_saver=False,
        mamba_size=config["max_mamba_cache_size"], mamba_spec_state_size=0, mamba_layer_ids=[0],
        cache_params=Mamba2CacheParams(layers=[0], shape=Mamba2StateShape.create(
            tp_world_size=1, intermediate_size=2, n_groups=1, num_heads=1, head_dim=2, state_size=2, conv_kernel=2,
        )),
        enable_mamba_extra_buffer=resolved.enable_mamba_extra_buffer,
        enable_mamba_extra_buffer_lazy=resolved.enable_mamba_extra_buffer_lazy,
        enable_overlap_schedule=not config["disable_overlap_schedule"],
    )


def state_cache_params():
    resolved = runtime_context.get_exec().mamba
    return {"enable_mamba_extra_buffer": resolved.enable_mamba_extra_buffer,
            "enable_mamba_extra_buffer_lazy": resolved.enable_mamba_extra_buffer_lazy}


class _WindowPool(BaseSWAKVPool):
    """SWAKVPool without tensors."""

    def __init__(self):
        self.full_kv_pool = self.swa_kv_pool = stand_ins.Nothing()

    def register_mapping(self, full_to_swa_index_mapping):
        self.full_to_swa_index_mapping = full_to_swa_index_mapping

    def translate_loc_from_full_to_swa(self, kv_indices):
        return self.full_to_swa_index_mapping[kv_indices]

    def get_state_buf_infos(self):
        raise NotImplementedError

    get_key_buffer = get_value_buffer = get_kv_buffer = set_kv_buffer = get_state_buf_infos


def swa_tokens(config, tokens):
    """HybridSWAPoolConfigurator, and SWARequestCapPoolConfigurator where nothing is cached."""
    page = config["page_size"]
    if config["disable_radix_cache"] and config["chunked_prefill_size"] > 0:
        most = pool_configurator.compute_swa_request_cap(
            page_size=page, window=config["sliding_window"], attn_dp_size=1,
            max_running_requests=config["max_running_requests"],
        )
        return min(-(-most // page) * page, tokens)
    return workloads.swa_tokens(tokens, config["swa_full_tokens_ratio"], page)


def allocator(tokens, page_size, swa_tokens=None):
    kv = stand_ins.Nothing()
    if swa_tokens is not None:
        both = SWATokenToKVPoolAllocator(tokens, swa_tokens, page_size, torch.float16, "cpu", _WindowPool(), False)
        if page_size > 1:
            both.full_attn_allocator.use_triton_kernels = both.swa_attn_allocator.use_triton_kernels = False
        return both
    if page_size == 1:
        return TokenToKVPoolAllocator(tokens, torch.float16, "cpu", kv, False)
    paged = PagedTokenToKVPoolAllocator(tokens, page_size, torch.float16, "cpu", kv, False)
    paged.use_triton_kernels = False
    return paged


def token_ids(ids):
    return array("q", ids)


def low_priority_values_first(req):
    return runtime_context.get_schedule().schedule_low_priority_values_first


class _Same:
    """Answers with what it was asked about: hooks of data parallelism and n-gram embeddings."""

    def maybe_prepare_mlp_sync_batch(self, batch, need_sync=None):
        return batch

    def maybe_convert_decode_to_extend(self, batch):
        return batch

    def prepare_for_forward(self, batch, chunked_req=None):
        return batch

    def drop_sync_wait_carry(self):
        pass


class Hooks:
    def make_tree_cache(self, params):
        params.tree_core_backend = None  # as a server: Rust
        return registry.default_radix_cache_factory(stand_ins.Nothing(
            params=params, is_hybrid_swa=self.is_hybrid_swa, is_hybrid_ssm=self.is_hybrid_ssm, enable_hierarchical_cache=False,
            full_tokens_per_layer=self.max_total_num_tokens,
            disable_radix_cache=self.disable_radix_cache, server_args=runtime_context.get_server_args(),
        ))

    def init_release(self):
        import sglang.srt.managers.scheduler as scheduler_module

        self.server_args = runtime_context.get_server_args()
        self.max_new_tokens_limit = scheduler_module.envs.SGLANG_MAX_NEW_TOKENS_LIMIT.get()
        self.dp_attn_adapter = self.ngram_embedding_manager = _Same()
        self.future_map = self.spec_algorithm.create_future_map(
            self.device, self.req_to_token_pool, needs_cpu_seq_lens=True, needs_confidence_relay=False
        )
        self.init_batch_result_processor()
        self.total_prefill_uncached_tokens = self.total_prefill_busy_us = 0
        self.decode_moment_totals = [0.0] * 6
        self._prev_step = self._prev_prefill_end_ts = None
        self._sched_idled = False
        self._pause_intervals, self._pause_started_at = [], None
        self._last_stall_publish_ts = 0

    def ingest_requests(self, stop_at_pause=False):
        self.arrive()
        self._engine_paused = False

    def send_abort_output(self, abort_req, req):
        self.aborted(req.rid)

    def reset_new_token_ratio(self):
        self.new_token_ratio_tracker.reset()

    def is_partly_filled(self, req):
        return req.extend_end < len(req.full_untruncated_fill_ids)

    def publish_load_snapshot(self, force=False):
        return None

    def _record_step_counters(self, batch, result):
        pass

    def maybe_send_health_check_signal(self):
        pass

    def _maybe_report_active_ranks(self):
        pass

    def _maybe_clear_mm_inputs(self, batch):
        pass

    def _record_scheduler_state_for_paused_engine(self):
        pass
