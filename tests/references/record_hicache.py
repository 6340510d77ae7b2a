"""Records what SGLang's own HiRadixCache does: record_hicache.py UNPACKED_SGLANG_0.5.12 OUT.txt [SEEDS]

Its radix_cache.py and hiradix_cache.py run as they are, over lists in place of tensors, a page allocator, and a
controller that hands out host slots and is told when its copies are done; everything else that they import is empty.
Each seed is a workload of random insertions, matches, locks, evictions, loads and finished copies, a line each:
what was done, and what was there after it (write_back falls over in some). tests/unit/kvcache/recorded_hicache_test.cc does the same again.
"""
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import random
import sys
import types
from pathlib import Path
from unittest import mock

SITE, OUT = Path(sys.argv[1]), Path(sys.argv[2])
SEEDS = int(sys.argv[3]) if len(sys.argv) > 3 else 42
REAL = {f"sglang.srt.mem_cache.{name}" for name in
        ("radix_cache", "hiradix_cache", "base_prefix_cache", "evict_policy", "cache_init_params")}
BLOCK = 4  # tokens of a key that stand together


class Tensor(list):
    def clone(self):
        return Tensor(self)

    def __getitem__(self, at):
        got = list.__getitem__(self, at)
        return Tensor(got) if isinstance(at, slice) else got

    def numel(self):
        return len(self)


class Empty(types.ModuleType):
    """A module that has whatever is asked of it."""
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {})
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name in REAL:
            return importlib.util.spec_from_file_location(name, SITE / (name.replace(".", "/") + ".py"))
        if name.split(".")[0] in ("sglang", "triton", "torch", "numpy"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Empty(spec.name)

    def exec_module(self, module):
        if module.__name__ == "torch":
            module.Tensor = Tensor
            module.cat = lambda parts, dim=0: Tensor(itertools.chain(*parts))
            module.empty = lambda *shape, **kind: Tensor()
            module.device = str
            module.int64 = None
        if module.__name__ == "sglang.srt.mem_cache.utils":
            module.split_node_hash_value = lambda *_: (None, None)


sys.meta_path.insert(0, Finder())
import time  # noqa: E402

ticks = itertools.count(1)
time.monotonic = lambda: next(ticks)
hi = importlib.import_module("sglang.srt.mem_cache.hiradix_cache")
rc = importlib.import_module("sglang.srt.mem_cache.radix_cache")
hi.StorageMedium.GPU = hi.StorageMedium.CPU = None
from sglang.srt.mem_cache.base_prefix_cache import (  # noqa: E402
    EvictParams, InitLoadBackParams, InsertParams, MatchPrefixParams)


class Pool:
    def __init__(self, tokens):
        self.free_slots, self.device = Tensor(range(tokens)), "cpu"

    def available_size(self):
        return len(self.free_slots)

    def alloc(self, count):
        if count > len(self.free_slots):
            return None
        taken, self.free_slots = self.free_slots[:count], self.free_slots[count:]
        return taken

    def free(self, slots):
        self.free_slots = Tensor(self.free_slots + list(slots))


class Event:
    def __init__(self):
        self.done = False

    def query(self):
        return self.done

    def synchronize(self):
        self.done = True


class Controller:
    def __init__(self, device, host, policy):
        self.mem_pool_device_allocator, self.mem_pool_host, self.write_policy = device, host, policy
        self.ack_write_queue, self.ack_load_queue, self.load_queue = [], [], []

    def write(self, device_indices, node_id):
        slots = self.mem_pool_host.alloc(len(device_indices))
        if slots is not None:
            self.ack_write_queue.append((None, Event(), [node_id]))
        return slots

    def load(self, host_indices, node_id):
        slots = self.mem_pool_device_allocator.alloc(len(host_indices))
        if slots is not None:
            self.ack_load_queue.append((None, Event(), [node_id]))
        return slots

    def evict_device(self, slots):
        self.mem_pool_device_allocator.free(slots)
        return len(slots)

    def evict_host(self, slots):
        self.mem_pool_host.free(slots)
        return len(slots)


def make(page, policy, eviction, device_tokens, host_tokens):
    cache = hi.HiRadixCache.__new__(hi.HiRadixCache)
    device, host = Pool(device_tokens), Pool(host_tokens)
    cache.cache_controller, cache.token_to_kv_pool_host = Controller(device, host, policy), host
    cache.page_size, cache.enable_storage, cache.enable_storage_metrics = page, False, False
    cache.ongoing_write_through, cache.ongoing_load_back, cache.prefetch_loaded_tokens_by_reqid = {}, {}, {}
    cache.write_through_threshold = 1 if policy == "write_through" else 2
    cache.load_back_threshold, cache.evictable_host_leaves, cache.metrics_collector = 10, set(), None
    cache._record_all_cleared_event = cache._record_store_event = cache._record_remove_event = lambda *a, **k: None
    cache.update_eviction_metrics = cache._all_reduce_attn_groups = lambda *a, **k: None
    cache._get_extra_pools = lambda: {}
    params = mock.Mock(disable=False, token_to_kv_pool_allocator=device, page_size=page, enable_kv_cache_events=False,
                       is_eagle=False, eviction_policy=eviction, enable_metrics=False)
    with mock.patch.object(hi.HiRadixCache, "reset", rc.RadixCache.reset):
        rc.RadixCache.__init__(cache, params)
    return cache


def nodes(cache):
    count, todo = 0, [cache.root_node]
    while todo:
        count += 1
        todo.extend(todo.pop().children.values())
    return count


def run(seed, out):
    rng = random.Random(seed)
    page = rng.choice([1, 1, 4, 8])
    policy = rng.choice(["write_through", "write_through", "write_through_selective", "write_back"])
    eviction = rng.choice(["lru", "lru", "lfu", "fifo", "filo", "mru", "slru", "priority"])
    device_tokens = page * rng.choice([40, 80, 160])
    host_tokens = device_tokens * rng.choice([1, 2, 3]) + page
    cache = make(page, policy, eviction, device_tokens, host_tokens)
    pool, host = cache.cache_controller.mem_pool_device_allocator, cache.cache_controller.mem_pool_host
    torch = sys.modules["torch"]
    out.append(f"begin {seed} {page} {policy} {eviction} {device_tokens} {host_tokens}")
    said, locked = [], []
    width = rng.choice([1, 2, 3])

    def key_of(blocks):
        return rc.RadixKey(token_ids=[b * 100 + i for b in blocks for i in range(BLOCK)], extra_key=None)

    def some_key():
        blocks = []
        if said and rng.random() < 0.8:
            old = rng.choice(said[-30:])
            blocks = old[:rng.randint(1, len(old))] if rng.random() < 0.5 else list(old)
        more = rng.randint(0 if blocks else 1, 6 * width)
        blocks = blocks + [rng.randint(1, 12) for _ in range(more)]
        return blocks[:device_tokens // BLOCK // 2]

    for _ in range(rng.choice([60, 120])):
        what = rng.choices(["serve", "match", "evict", "writes", "loads", "unlock"], [8, 2, 1, 3, 3, 3])[0]
        line, result = what, ""
        if what == "serve":  # a request: matched, loaded back, its pages allocated, inserted
            blocks, priority = some_key(), rng.randint(0, 3)
            holds = rng.random() < 0.3
            key = key_of(blocks)
            length = len(key) // page * page
            match = cache.match_prefix(MatchPrefixParams(key=key))
            have, node = len(match.device_indices), match.last_device_node
            prefix = match.device_indices
            cache.inc_lock_ref(node)
            loaded = Tensor()
            if match.host_hit_length > 0:
                loaded, last = cache.init_load_back(
                    InitLoadBackParams(best_match_node=match.best_match_node, host_hit_length=match.host_hit_length))
                cache.dec_lock_ref(node)
                node = last
                cache.inc_lock_ref(node)
            prefix = torch.cat([prefix, loaded])
            need = length - len(prefix)
            if pool.available_size() < need:
                cache.evict(EvictParams(num_tokens=need))
            fresh = pool.alloc(need)
            line = f"serve {','.join(map(str, blocks))} {priority} {int(holds)}"
            result = f"{have} {match.host_hit_length} {len(loaded)}"
            if fresh is None:
                result += " -"
            else:
                # Another may have inserted the same meanwhile; nobody did.
                value = torch.cat([prefix, fresh])
                got = cache.insert(InsertParams(key=key, value=value, priority=priority)).prefix_len
                assert got >= len(prefix)  # else what was just loaded is no more in the tree
                pool.free(value[len(prefix):got])
                result += f" {got}"
                said.append(blocks)
            cache.dec_lock_ref(node)
            if holds and fresh is not None:
                again = cache.match_prefix(MatchPrefixParams(key=key))
                cache.inc_lock_ref(again.last_device_node)
                locked.append(again.last_device_node)
        elif what == "match":
            blocks = some_key()
            match = cache.match_prefix(MatchPrefixParams(key=key_of(blocks)))
            line, result = f"match {','.join(map(str, blocks))}", f"{len(match.device_indices)} {match.host_hit_length}"
        elif what == "evict":
            tokens = rng.randint(1, device_tokens // 2)
            line, result = f"evict {tokens}", str(cache.evict(EvictParams(num_tokens=tokens)).num_tokens_evicted)
        elif what in ("writes", "loads"):
            queue = cache.cache_controller.ack_write_queue if what == "writes" else cache.cache_controller.ack_load_queue
            done = rng.randint(0, len(queue))
            for _, event, _ in queue[:done]:
                event.done = True
            line = f"{what} {done}"
            if what == "loads":
                cache.loading_check()
            elif cache.ongoing_write_through:
                with mock.patch.object(torch, "tensor", lambda v, **k: mock.Mock(item=lambda: v), create=True), \
                        mock.patch.object(torch, "int", int, create=True), \
                        mock.patch.object(torch.distributed, "ReduceOp", mock.Mock(), create=True):
                    cache.writing_check()
        elif locked:
            at = rng.randrange(len(locked))
            line = f"unlock {at}"
            cache.dec_lock_ref(locked.pop(at))
        else:
            continue
        state = (f"{cache.evictable_size_} {cache.protected_size_} {pool.available_size()} {host.available_size()} "
                 f"{nodes(cache)} {len(cache.cache_controller.ack_write_queue)}")
        out.append(f"{line} | {result} | {state}")


lines = ["# What HiRadixCache of SGLang 0.5.12 does: record_hicache.py."]
fallen = []
for seed in range(SEEDS):
    rows = []
    try:
        run(seed, rows)
        lines += rows
    except (AssertionError, TypeError):  # it evicts by write_back what it is loading, or holds already
        fallen.append(seed)
OUT.write_text("\n".join(lines) + "\n")
print(f"{len(lines)} lines of {SEEDS - len(fallen)} workloads; it fell over {fallen}")
