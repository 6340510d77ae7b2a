"""SGLang's own scheduler on a CPU, with a forward pass that names the tokens of the workload.

What runs is the `sglang` package that is first on sys.path (0.5.23, 0.5.14 or 0.5.12): Scheduler.event_loop_normal
and event_loop_overlap and everything that they call. Replaced are the model worker, Scheduler.__init__ (the same
attributes, without processes), what comes from and goes to sockets, metrics and CUDA streams. What differs from
release to release in that is in release_*.py.
"""

import collections
import importlib
import json
import logging
import os
import tempfile
import warnings

import stand_ins
import workloads

warnings.filterwarnings("ignore")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
stand_ins.install(["tvm_ffi", "gguf", "sentencepiece", "sgl_kernel"])

import torch  # noqa: E402

torch.set_num_threads(1)

import transformers  # noqa: E402

# Releases older than the installed Transformers register models that it knows by now.
_register = transformers.AutoConfig.register
transformers.AutoConfig.register = lambda *args, **kwargs: _register(*args, **{**kwargs, "exist_ok": True})

import sglang  # noqa: E402
from sglang.srt.disaggregation.utils import DisaggregationMode  # noqa: E402
from sglang.srt.managers import schedule_policy  # noqa: E402
from sglang.srt.managers import scheduler as scheduler_module  # noqa: E402
from sglang.srt.managers.io_struct import AbortReq  # noqa: E402
from sglang.srt.managers.schedule_batch import Req  # noqa: E402
from sglang.srt.managers.utils import GenerationBatchResult, validate_input_length  # noqa: E402
from sglang.srt.mem_cache.cache_init_params import CacheInitParams  # noqa: E402
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool  # noqa: E402
from sglang.srt.sampling.sampling_params import SamplingParams  # noqa: E402
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm  # noqa: E402

RELEASES = {"0.5.23": "release_0_5_23", "0.5.14": "release_0_5_14", "0.5.12": "release_0_5_12"}
RELEASE = next((r for r in RELEASES if sglang.__version__.startswith(r)), None)
if RELEASE is None:
    raise ImportError(f"sglang {sglang.__version__}: this harness was written for {', '.join(RELEASES)}")
release = importlib.import_module(RELEASES[RELEASE])

VOCABULARY = 2_000_000_000
_NOT_LOOKED_AT = 77  # the token of a chunk in the middle, or of a pass after the end

logging.getLogger().setLevel(logging.ERROR)
for _name in list(logging.root.manager.loggerDict):
    if _name.startswith("sglang"):
        logging.getLogger(_name).setLevel(logging.CRITICAL)


# A chunk that is small for the window pool leaves room for another; SGLang keeps one of them and forgets the rest of
# the other's prompt. tpsim admits one.
_TWO_CHUNKS = "two requests are truncated in one pass"


def _rid(index):
    """All of one length: an abort is for every request whose id begins with its own."""
    return f"{index:06d}"


class Finished(Exception):
    """Nothing is left to do: leaves the event loop."""


class Stuck(Exception):
    """Requests wait, nothing runs and nothing will change: the server would spin for ever."""


def _in_order_of_choice(preempt):
    """SGLang puts preempted requests back in the order of a set of objects, that is, of their addresses. Here: in
    the order in which it chose them (least important first, then latest)."""

    def preempt_to_schedule(self, *args):
        before = len(self.preempt_list)
        done = preempt(self, *args)
        sign = -1 if release.low_priority_values_first(*args) else 1
        self.preempt_list[before:] = sorted(
            self.preempt_list[before:], key=lambda r: (sign * r.priority, -r.time_stats.wait_queue_entry_time)
        )
        return done

    return preempt_to_schedule


schedule_policy.PrefillAdder.preempt_to_schedule = _in_order_of_choice(schedule_policy.PrefillAdder.preempt_to_schedule)


class Worker:
    """The model worker: its forward pass names the next token of every request."""

    def __init__(self, outputs):
        self.outputs = outputs
        self.model_runner = stand_ins.Nothing(attn_backend=stand_ins.Nothing(), prefill_aware_swa=False)

    def forward_batch_generation(self, batch, **kwargs):
        ids = []
        for req, length in zip(batch.reqs, batch.seq_lens.tolist(), strict=True):
            output = self.outputs[int(req.rid)]
            position = length - len(req.origin_input_ids)
            ids.append(output[position] if 0 <= position < len(output) else _NOT_LOOKED_AT)
        return GenerationBatchResult(next_token_ids=torch.tensor(ids, dtype=torch.int64))


class SpeculativeWorker(Worker):
    """The worker of a speculative algorithm without models: each request keeps as many tokens of a step as the
    workload says. The drafts that it keeps, and the token behind them, are the output's next ones."""

    def __init__(self, workload, config):
        super().__init__([r["output"] for r in workload])
        self.accept_lens = [r["accept_lens"] for r in workload]
        self.config, self.drafts = config, config["speculative_num_draft_tokens"]
        self.verified = collections.Counter()  # steps of a request

    def on_verify_complete_cpu(self, *args, **kwargs):
        pass

    def _tokens(self, rid, position, count):
        output = self.outputs[rid][position : position + count]
        return output + [_NOT_LOOKED_AT] * (count - len(output))

    def steps(self, batch):
        """(how many tokens it keeps of this step, the tokens) of each request that decodes."""
        kept = []
        for req, length in zip(batch.reqs, batch.seq_lens.tolist(), strict=True):
            rid, named = int(req.rid), self.accept_lens[int(req.rid)]
            # The token sampled last has no KV yet: the next one is behind it.
            tokens = self._tokens(rid, length - len(req.origin_input_ids) + 1, self.drafts)
            kept.append((named[min(self.verified[rid], len(named) - 1)], tokens))
            self.verified[rid] += 1
        return kept

    def forward_batch_generation(self, batch, on_publish=None, **kwargs):
        if batch.forward_mode.is_decode():
            stride, steps = self.drafts, self.steps(batch)
        else:
            behind = [length - len(r.origin_input_ids) for r, length in zip(batch.reqs, batch.seq_lens.tolist())]
            stride, steps = 1, [(1, self._tokens(int(r.rid), at, 1) if at >= 0 else [_NOT_LOOKED_AT])
                                for r, at in zip(batch.reqs, behind)]
        accept_lens = torch.tensor([kept for kept, _ in steps], dtype=torch.int32)
        new_seq_lens = batch.seq_lens + accept_lens if stride > 1 else batch.seq_lens.clone()
        if on_publish is not None:
            on_publish(new_seq_lens)
        last = torch.tensor([tokens[kept - 1] for kept, tokens in steps], dtype=torch.int32)
        ids = torch.tensor([token for _, tokens in steps for token in tokens], dtype=torch.int64)
        result = GenerationBatchResult(
            next_token_ids=ids, accept_lens=accept_lens, speculative_num_draft_tokens=self.drafts,
            next_draft_input=release.speculative_input(self.config, new_seq_lens, accept_lens, last),
        )
        result.new_seq_lens = new_seq_lens
        return result


class SimScheduler(release.Hooks, scheduler_module.Scheduler):
    """Scheduler with the attributes that its __init__ sets up for one GPU, without one."""

    def __init__(self, config, workload, clock, args):
        self.config, self.workload, self.clock = config, workload, clock
        self.steps, self.rejected, self.all_reqs = [], set(), {}
        self.evicted_tokens = 0
        self.retractions = collections.Counter()
        self.continuing = set()

        nothing = stand_ins.Nothing()
        self.server_args = args
        self.page_size = config["page_size"]
        for name in ("schedule_policy", "enable_priority_scheduling", "schedule_low_priority_values_first",
                     "priority_scheduling_preemption_threshold"):
            setattr(self, name, config[name])
        self.abort_on_priority_when_disabled = False
        self.enable_overlap = not config["disable_overlap_schedule"]
        for name in ("enable_overlap_mlx", "enable_pdmux", "enable_lora", "enable_lora_overlap_loading",
                     "enable_lmcache", "enable_hisparse", "enable_hierarchical_cache", "enable_hicache_storage",
                     "enable_session_radix_cache", "enable_unified_cache_external_linker", "enable_decode_hicache",
                     "enable_unified_memory", "attn_dp_enabled", "enable_fpm", "enable_dynamic_chunking",
                     "enable_metrics", "is_hybrid_swa", "require_mlp_sync", "gracefully_exit",
                     "enable_kv_cache_events", "return_health_check_ipcs", "_war_barrier_enabled", "current_scheduler_metrics_enabled",
                     "enable_continuous_input_polling"):
            setattr(self, name, False)
        for name in ("tokenizer", "dllm_config", "sliding_window_size", "full_tokens_per_layer", "swa_tokens_per_layer",
                     "max_queued_requests", "min_free_slots_delayer", "prefill_delayer", "dynamic_chunk_sizer",
                     "draft_worker", "external_corpus_manager", "decode_offload_manager", "hisparse_coordinator",
                     "lora_drainer", "load_snapshot_writer", "truncation_align_size", "rust_server",
                     "scripted_scheduler_hook", "scheduler_stage_metrics", "metrics_collector", "cur_batch",
                     "_confidence_budget_prepare", "idle_sleeper", "mm_receiver", "_pending_chunked_abort_req"):
            setattr(self, name, None)
        self.skip_tokenizer_init = self.is_generation = True
        self.tp_size = self.pp_size = self.dp_size = self.kv_shard_widening = self.attn_tp_size = 1
        self.tp_rank = self.pp_rank = self.attn_tp_rank = 0
        self.pp_group = stand_ins.Nothing(is_last_rank=True)
        self.ps = stand_ins.Nothing(pp_size=1, pp_rank=0, tp_size=1, tp_rank=0, dp_size=1)
        self.spec_algorithm = SpeculativeAlgorithm.from_string(config.get("speculative_algorithm"))
        self.disaggregation_mode = DisaggregationMode.NULL
        self.dllm_manager = stand_ins.Nothing(any_staging_reqs=lambda: False)
        self.grammar_manager = stand_ins.Nothing(
            has_waiting_grammars=lambda: False, grammar_queue=[], process_req_with_grammar=lambda req: False
        )
        self.metrics_reporter = stand_ins.Nothing(enable_metrics=False)
        for name in ("load_inquirer", "load_publisher", "ipc_channels", "profiler_manager", "output_streamer",
                     "send_to_tokenizer", "send_to_detokenizer", "request_receiver", "beam_coordinator"):
            setattr(self, name, nothing)
        self.device, self.device_module = "cpu", stand_ins.NoDevice
        self.forward_stream = self.schedule_stream = self.copy_stream = stand_ins.NoDevice.Stream()
        self.forward_stream_ctx = self.copy_stream_ctx = nothing
        self.enable_async_d2h_copy = False
        self.batch_record_buf, self.batch_record_ct = [None] * 2, 0
        self.processed_tokens_counter = 0
        self.model_config = scheduler_module.ModelConfig.from_server_args(args)

        # What tp_worker.get_worker_info() answers.
        self.max_total_num_tokens = config["max_total_tokens"] // self.page_size * self.page_size
        self.max_prefill_tokens = config["max_prefill_tokens"]
        self.max_running_requests = config["max_running_requests"]
        self.max_req_len = min(self.model_config.context_len - 1, self.max_total_num_tokens - 1)
        self.max_req_input_len = self.max_req_len - 5

        longest = max(len(r["prompt"]) + r["max_new_tokens"] for r in workload) + 8
        if "speculative_algorithm" in config:  # rows have room for what is reserved, too
            longest += release.speculative_row_tokens(config)
        self.is_hybrid_ssm = workloads.has_states(config)
        self.req_to_token_pool = release.state_pool(config, longest) if self.is_hybrid_ssm else ReqToTokenPool(
            size=self.max_running_requests, max_context_len=longest, device="cpu", enable_memory_saver=False
        )
        self.disable_radix_cache = config["disable_radix_cache"]
        windows = {}
        if config["sliding_window"]:
            self.is_hybrid_swa, self.sliding_window_size = True, config["sliding_window"]
            self.swa_tokens_per_layer = release.swa_tokens(config, self.max_total_num_tokens)
            windows = {"sliding_window_size": self.sliding_window_size}
        self.token_to_kv_pool_allocator = release.allocator(
            self.max_total_num_tokens, self.page_size, *([self.swa_tokens_per_layer] if windows else [])
        )
        self.tree_cache = self.make_tree_cache(CacheInitParams(
            disable=self.disable_radix_cache,
            req_to_token_pool=self.req_to_token_pool,
            token_to_kv_pool_allocator=self.token_to_kv_pool_allocator,
            page_size=self.page_size,
            eviction_policy=config["eviction_policy"],
            chunked_prefill_size=config["chunked_prefill_size"],
            is_eagle=self.spec_algorithm.is_eagle(),
            **windows,
            **(release.state_cache_params() if self.is_hybrid_ssm else {}),
        ))
        self._count_evictions()
        self.tp_worker = self.model_worker = (
            release.speculative_worker(SpeculativeWorker)(workload, config)
            if "speculative_algorithm" in config else Worker([r["output"] for r in workload])
        )

        self.model_worker.allocated = self.record_allocated
        self.init_running_status()
        self.session_controller = nothing
        self.init_chunked_prefill()
        self.init_schedule_policy()
        self.init_release()

        # The clock: the scheduler's time; when the pass that was just launched ends; when the one before does.
        self.now = 0.0
        self.launched_end = self.pending_end = None
        self.first_pass, self.idle_passes = True, 0
        self.next_arrival = 0  # requests come in this order
        self.cancels = sorted((r["cancel"], i) for i, r in enumerate(workload) if r.get("cancel") is not None)
        self.cancelled = set()
        self.in_flight = set()

    def _count_evictions(self):
        """Counts the tokens that the pool gains (one entry point of the cache may call the other)."""
        depth = []
        pool = self.token_to_kv_pool_allocator
        free = self._full_free

        def counted(function):
            def call(*args, **kwargs):
                if depth:
                    return function(*args, **kwargs)
                depth.append(True)
                before, result = free(), None
                try:
                    result = function(*args, **kwargs)
                    return result
                finally:
                    depth.pop()
                    # Between passes states make room for others while pages that are freed still wait for the end
                    # of a group.
                    gained = result.num_tokens_evicted if self.is_hybrid_ssm and result else free() - before
                    self.evicted_tokens += gained

            return call

        for name in ("evict", "evict_for_alloc"):
            if hasattr(self.tree_cache, name):
                setattr(self.tree_cache, name, counted(getattr(self.tree_cache, name)))

    def _full_free(self):
        pool = self.token_to_kv_pool_allocator
        return pool.full_available_size() if self.is_hybrid_swa else pool.available_size()

    # ---- time and arrivals ----

    def arrive(self):
        """At the head of every pass of the event loop: moves the clock, hands over what has arrived."""
        launched, pending = self.launched_end, self.pending_end
        idle = launched is None and pending is None
        if self.enable_overlap:
            if launched is not None:
                self.now += self.clock.scheduler_step_seconds
            if pending is not None:
                self.now = max(self.now, pending)
            self.pending_end = launched
        elif launched is not None:
            self.now = launched
        self.launched_end = None
        if not idle:
            self.idle_passes = 0
        elif not self.first_pass:
            self._pass_idle_time()
        self.first_pass = False
        self._take_arrivals()

    def _take_cancels(self):
        """abort_request for what its client does not want any more; before the requests that came meanwhile."""
        while self.cancels and self.cancels[0][0] / workloads.TICKS <= self.now:
            index = self.cancels.pop(0)[1]
            if index in self.all_reqs and self._has_left(index):
                continue
            self.cancelled.add(index)
            if index in self.all_reqs:
                self.abort_request(AbortReq(rid=_rid(index)))

    def _take_arrivals(self):
        self._take_cancels()
        self.in_flight = {i for i in self.in_flight if not self._has_left(i)}
        while self._may_send() and self._next_time() <= self.now:
            index = self.next_arrival
            self.next_arrival += 1
            if index in self.cancelled:  # before the scheduler has seen it
                continue
            self.in_flight.add(index)
            self._receive(index)
            if self._has_left(index):
                self.in_flight.discard(index)

    def _pass_idle_time(self):
        self.in_flight = {i for i in self.in_flight if not self._has_left(i)}
        if not self.waiting_queue and self._may_send():
            self.now = max(self.now, self._next_time())
            return
        # A server spins here while requests wait; after a few passes nothing changes until the next arrives.
        if self.waiting_queue and self.cancels and self.idle_passes >= 3:
            if not self.is_hybrid_swa:
                raise Stuck("a request waits for ever, or until its client has enough")
            times = [self.cancels[0][0] / workloads.TICKS] + ([self._next_time()] if self._may_send() else [])
            self.now = max(self.now, min(times))
            return
        if self.idle_passes < 3:
            return
        if self.chunked_req is not None:
            raise Stuck("a chunk waits for ever")
        if self._may_send():
            self.now = max(self.now, self._next_time())
        elif self.waiting_queue:
            raise Stuck(f"{len(self.waiting_queue)} requests wait for ever")
        else:
            # 0.5.14 and 0.5.12 forget preempted requests where the one that they made room for was not admitted.
            self.rejected |= self.in_flight
            raise Finished

    def _may_send(self):
        places = self.config["max_concurrency"]
        return self.next_arrival < len(self.workload) and (places == 0 or len(self.in_flight) < places)

    def _next_time(self):
        return self.workload[self.next_arrival]["arrival"] / workloads.TICKS

    def _has_left(self, index):
        return index in self.rejected or index not in self.all_reqs or self.all_reqs[index].finished()

    def _receive(self, index):
        """handle_generate_request, from the request on."""
        spec = self.workload[index]
        params = SamplingParams(max_new_tokens=spec["max_new_tokens"], temperature=0, ignore_eos=spec["ignore_eos"])
        params.normalize(None)
        req = Req(
            _rid(index), "", release.token_ids(spec["prompt"]), params, vocab_size=VOCABULARY,
            eos_token_ids={workloads.EOS}, extra_key=spec["extra_key"], priority=spec["priority"],
            disagg_mode=self.disaggregation_mode,
        )
        req.tokenizer = None
        self.all_reqs[index] = req
        self.init_req_max_new_tokens(req)
        if req.to_finish is not None or validate_input_length(req, self.max_req_input_len, False):
            self.rejected.add(index)  # SGLang runs one token of the request before it says so
            return
        self._add_request_to_queue(req)

    def on_idle(self):
        # The memory checks, metrics and sleeps of the real one have no place here.
        if self.is_fully_idle():
            self.reset_new_token_ratio()
        self.idle_passes += 1

    # ---- records ----

    def _add_request_to_queue(self, req, is_retracted=False):
        if is_retracted:  # not where it was preempted: as SGLang's metrics count retractions
            self.retractions[int(req.rid)] += 1
        super()._add_request_to_queue(req, is_retracted=is_retracted)

    def record_allocated(self):
        """Spec v1 takes slots when the pass runs."""
        self.steps[-1].update(kv_free=self._full_free(), kv_cached=self.tree_cache.evictable_size())

    def aborted(self, rid):
        self.rejected.add(int(rid))

    def run_batch(self, batch, *args, **kwargs):
        mode = batch.forward_mode.name
        if sum(self.is_partly_filled(r) for r in batch.reqs) > 1 and mode != "DECODE":
            raise Stuck(_TWO_CHUNKS)
        decoding = len(batch.decoding_reqs or []) if mode == "MIXED" else 0
        extend = 0 if mode == "DECODE" else len(batch.reqs) - decoding
        pool, extends = self.token_to_kv_pool_allocator, batch.reqs[:extend]
        record = {
            "mode": mode,  # DECODE where drafts are verified, too
            "extend_requests": extend,
            "extend_tokens": sum(batch.extend_lens[:extend]) if extend else 0,
            "cached_tokens": sum(batch.prefix_lens[i] for i, r in enumerate(extends) if r.rid not in self.continuing),
            "decode_requests": len(batch.reqs) - extend,
            "waiting": len(self.waiting_queue),
            "running": self.req_to_token_pool.size - self.req_to_token_pool.available_size(),
            "kv_free": self._full_free(),
            "kv_cached": self.tree_cache.evictable_size(),
            "extends": list(zip(batch.prefix_lens[:extend], batch.extend_lens[:extend])) if extend else [],
            "requests": [int(r.rid) for r in batch.reqs],
        }
        if self.is_hybrid_swa:
            record.update(kv_cached=self.tree_cache.full_evictable_size(), swa_free=pool.swa_available_size(),
                          swa_cached=self.tree_cache.swa_evictable_size())
        if self.is_hybrid_ssm:
            record.update(states_free=self.req_to_token_pool.mamba_allocator.available_size(),
                          states_cached=self.tree_cache.mamba_evictable_size())
        partly = {r.rid for r in extends if self.is_partly_filled(r)}
        # A chunk that the window pool has no room for waits while others decode.
        self.continuing = (self.continuing - {r.rid for r in extends}) | partly
        self.steps.append(record)
        if len(self.steps) > self.config["step_limit"]:
            raise Stuck("too many steps")
        self.launched_end = self.clock.end_of_step(
            len(self.steps) - 1, self.now, record["extend_tokens"], record["decode_requests"]
        )
        return super().run_batch(batch, *args, **kwargs)


_MODEL = {  # any dense model with a long context
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 1, "vocab_size": VOCABULARY,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16", "rope_theta": 10000.0,
    "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": workloads.EOS, "tie_word_embeddings": False,
}


# Layers of both kinds, whatever their number: the state pool is made as small as it can be.
_HYBRID_MODEL = {
    **_MODEL, "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 1, "linear_num_value_heads": 1,
    "linear_key_head_dim": 2, "linear_value_head_dim": 2, "linear_conv_kernel_dim": 2, "num_experts": 0,
    "head_dim": 16, "decoder_sparse_step": 1, "mlp_only_layers": [0, 1],
}


def _server_args(config, model_path, **more):
    names = ("page_size", "chunked_prefill_size", "max_prefill_tokens", "max_running_requests", "schedule_policy",
             "schedule_conservativeness", "enable_mixed_chunk", "disable_radix_cache", "disable_overlap_schedule",
             "enable_priority_scheduling", "schedule_low_priority_values_first",
             "priority_scheduling_preemption_threshold", "disable_priority_preemption")
    arguments = {name: config[name] for name in names}
    if "speculative_algorithm" in config:
        names = ["speculative_algorithm", "speculative_num_draft_tokens"]
        if config["speculative_algorithm"] == "NGRAM":
            arguments["speculative_ngram_max_bfs_breadth"] = 1
        else:
            names += ["speculative_num_steps", "speculative_eagle_topk"]
            arguments["speculative_draft_model_path"] = model_path
        arguments.update({name: config[name] for name in names})
    if config["retraction_policy"] != "length":
        arguments["retraction_policy"] = config["retraction_policy"]
    if workloads.has_states(config):
        for name in ("mamba_radix_cache_strategy", "mamba_track_interval"):
            arguments[name] = config[name]
    return scheduler_module.ServerArgs(
        model_path=model_path, device="cpu", skip_tokenizer_init=True, load_format="dummy",
        attention_backend=release.attention_backend(config), disable_cuda_graph=True, mem_fraction_static=0.5,
        radix_eviction_policy=config["eviction_policy"], **arguments, **more,
    )


def run(config, requests, clock, kind=SimScheduler, loop=None, **more):
    """The steps that SGLang forms, and what became of the requests. `loop` runs the event loop of a scheduler of that
    kind, `more` are arguments of its server."""
    workload = [dict(r, prompt=workloads.spell(r["prompt"]), output=workloads.spell(r["output"])) for r in requests]
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(_HYBRID_MODEL if workloads.has_states(config) else _MODEL, file)
        args = _server_args(config, folder, **more)
        release.publish(args, config)
        scheduler = kind(config, workload, clock, args)
    stuck = None
    try:
        if loop is not None:
            loop(scheduler)
        elif config["disable_overlap_schedule"]:
            scheduler.event_loop_normal()
        else:
            scheduler.event_loop_overlap()
    except Finished:
        pass
    except Stuck as error:
        stuck = str(error)
    reqs = scheduler.all_reqs
    return {
        "release": RELEASE,
        "swa_tokens": scheduler.swa_tokens_per_layer or 0,
        "steps": scheduler.steps,
        "rejected": sorted(scheduler.rejected),
        "cancelled": sorted(scheduler.cancelled),
        "stuck": stuck,
        "retractions": {i: scheduler.retractions[i] for i in reqs},
        # A speculative step may go on behind the end; clients see what is before it.
        "output_tokens": {i: min(len(r.output_ids), r.finished_len or len(r.output_ids)) for i, r in reqs.items()},
        "evicted": scheduler.evicted_tokens,
    }
