#include "launch/flags/attention_flags.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "launch/cli/flag_values.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

FlagSet::ReadValue backend_name(std::optional<std::string>& target) {
  return [&target](std::string_view flag, const std::string& value) {
    if (value.empty()) throw_user_error("{}: the value is empty, name a backend", flag);
    if (value.find_first_of("+,") != std::string::npos)
      throw_user_error(
          "{} {}: takes one backend; name a pair by --prefill-attention-backend and "
          "--decode-attention-backend",
          flag, value);
    target = value;
  };
}

// "fa3", or "flashinfer+fa3" (prefill+decode).
BackendPair parse_pair(std::string_view flag, const std::string& text) {
  const std::size_t plus = text.find('+');
  BackendPair pair{text.substr(0, plus), plus == std::string::npos ? text : text.substr(plus + 1)};
  if (pair.prefill.empty() || pair.decode.empty() || pair.decode.find('+') != std::string::npos)
    throw_user_error("{} {}: must be a backend or a pair PREFILL+DECODE", flag, text.empty() ? "''" : text);
  return pair;
}

// "all" alone sets `all` and names none.
void read_backend_list(std::string_view flag, const std::vector<std::string>& values,
                       std::vector<BackendPair>& target, bool& all) {
  target.clear();
  all = values.size() == 1 && values.front() == "all";
  if (all) return;
  for (const std::string& value : values) {
    for (const std::string& part : split_list(value)) {
      BackendPair pair = parse_pair(flag, part);
      if (pair.prefill == "all" || pair.decode == "all")
        throw_user_error("{} {}: all stands for every backend and pair, give it alone", flag, value);
      for (const BackendPair& other : target) {
        if (other.name() == pair.name()) throw_user_error("{} {}: is named twice", flag, pair.name());
      }
      target.push_back(std::move(pair));
    }
  }
}

// Names are checked with the deployment, which knows device and KV cache.
void declare_sparse(FlagSet& flags, AttentionArgs& args) {
  const auto kernel = [](std::optional<std::string>& to) {
    return [&to](std::string_view, const std::string& value) { to = value; };
  };
  flags.add_value(
      "--nsa-prefill-backend,--dsa-prefill-backend", "NAME",
      "kernel of sparse attention (DeepSeek-V3.2, GLM-5) in prefill: flashmla_sparse, flashmla_kv, "
      "flashmla_auto, fa3, trtllm or tilelang (default: by GPU and --kv-cache-dtype)",
      kernel(args.nsa_prefill_backend));
  flags.add_value("--nsa-decode-backend,--dsa-decode-backend", "NAME",
                  "kernel of sparse attention in decode (default: by GPU and --kv-cache-dtype)",
                  kernel(args.nsa_decode_backend));
}

}  // namespace

void declare_cache(FlagSet& flags, AttentionArgs& args) {
  flags.add_value(
      "--page-size", "TOKENS", "of one KV page: 1, 16, 32, 64 or 128 (default: 1, or what the backend needs)",
      [&args](std::string_view flag, const std::string& value) {
        const bool good = value == "1" || value == "16" || value == "32" || value == "64" || value == "128";
        if (!good) throw_user_error("{} {}: must be 1, 16, 32, 64 or 128", flag, value);
        args.page_size = static_cast<std::uint32_t>(parse_count(flag, value, 1, 128));
      });
  flags.add_value(
      "--kv-cache-dtype", "TYPE",
      "auto, bf16, bfloat16, fp8_e4m3, fp8_e5m2, fp4_e2m1; for numeric execution also float16, "
      "float32 (default auto: the model's; numeric: --dtype's, else float32)",
      word({"auto", "bf16", "bfloat16", "fp16", "float16", "fp32", "float32", "fp8_e4m3", "fp8_e5m2",
            "fp4_e2m1"},
           args.kv_cache_dtype, {{"bf16", "bfloat16"}, {"fp16", "float16"}, {"fp32", "float32"}}));
}

void declare_attention(FlagSet& flags, AttentionArgs& args, bool compare) {
  flags.group("Attention");
  if (compare) {
    flags.add_list("--attention-backends", "LIST",
                   "backends and PREFILL+DECODE pairs to compare, for example fa3,triton,flashinfer+fa3, or "
                   "all that can serve (required; of a sweep, default: chosen for GPU and model)",
                   [&args](std::string_view flag, const std::vector<std::string>& values) {
                     read_backend_list(flag, values, args.attention_backends, args.all_attention_backends);
                   });
  } else {
    flags.add_value("--attention-backend", "NAME",
                    "for prefill and decode (default: chosen for GPU and model)",
                    backend_name(args.attention_backend));
    flags.add_value("--prefill-attention-backend", "NAME", "for prefill (default: --attention-backend)",
                    backend_name(args.prefill_attention_backend));
    flags.add_value("--decode-attention-backend", "NAME", "for decode (default: --attention-backend)",
                    backend_name(args.decode_attention_backend));
  }
  declare_sparse(flags, args);
  declare_cache(flags, args);
}

void declare_mla(FlagSet& flags, AttentionArgs& args) {
  flags.add_switch("--disable-chunked-prefix-cache",
                   "an MLA model's cached prefix is attended to by the absorbed kernel, never in chunks",
                   args.disable_chunked_prefix_cache);
  flags.add_switch("--flashinfer-mla-disable-ragged",
                   "flashinfer and flashmla extend an MLA model with the absorbed kernel only",
                   args.flashinfer_mla_disable_ragged);
}

void check_modeled_cache(const AttentionArgs& args) {
  if (args.kv_cache_dtype == "float16" || args.kv_cache_dtype == "float32") {
    throw_user_error(
        "--kv-cache-dtype {}: is for --executor numeric, SGLang has no such cache; use auto, bf16, fp8_e4m3, "
        "fp8_e5m2 or fp4_e2m1",
        args.kv_cache_dtype);
  }
}

}  // namespace tpsim::launch
