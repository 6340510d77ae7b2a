#include "launch/flags/speculation_flags.h"

#include <string_view>
#include <utility>

#include "launch/cli/flag_values.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {

void declare_speculation(FlagSet& flags, SpeculationArgs& args) {
  flags.group("Speculative decoding");
  // Notes that a flag was given that means nothing without an algorithm.
  const auto noted = [&args](FlagSet::ReadValue read) {
    return [&args, read = std::move(read)](std::string_view flag, const std::string& value) {
      read(flag, value);
      args.given = flag;
    };
  };
  flags.add_value("--speculative-algorithm,--speculative-algo", "NAME",
                  "EAGLE, EAGLE3, NEXTN, STANDALONE or NGRAM (default: none)",
                  [&args](std::string_view flag, const std::string& value) {
                    std::string upper = value;
                    for (char& c : upper) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
                    if (upper == "DFLASH" || upper == "DSPARK" || upper == "UNO" || upper == "FROZEN_KV_MTP")
                      throw_user_error(
                          "{} {}: is not simulated; EAGLE, EAGLE3, NEXTN, STANDALONE and NGRAM are", flag,
                          value);
                    word({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"}, args.algorithm)(flag, upper);
                  });
  flags.add_value("--speculative-draft-model-path,--speculative-draft-model", "MODEL",
                  "the model or head that drafts, as --model-path (default: the target's own layer for the "
                  "next token, where it has one)",
                  noted(text(args.draft_model_path)));
  flags.add_value("--speculative-num-steps", "N", "tokens drafted one after another (default: by model)",
                  noted(count(args.num_steps, 1, 64)));
  flags.add_value("--speculative-eagle-topk", "K", "guesses for each of them (default: by model)",
                  noted(count(args.eagle_topk, 1, 64)));
  flags.add_value("--speculative-num-draft-tokens", "N",
                  "tokens verified in a step, the one sampled last included (default: by model; NGRAM: 12)",
                  noted(count(args.num_draft_tokens, 2, 256)));
  flags.add_value("--speculative-ngram-max-bfs-breadth", "N",
                  "widest tree of drafts that NGRAM makes; 1: a chain (default 10)",
                  noted(count(args.ngram_max_bfs_breadth, 1, 256)));
  flags.add_value("--speculative-attention-mode", "HALF",
                  "whose attention backend drafts and verifies: prefill or decode (default prefill)",
                  noted(word({"prefill", "decode"}, args.attention_mode)));
  flags.add_value("--speculative-draft-attention-backend", "NAME",
                  "of the model that drafts (default: the one that verifies)",
                  noted(text(args.draft_attention_backend)));
  flags.add_value(
      "--speculative-draft-kv-cache-dtype", "DTYPE",
      "of the draft model's KV: auto, bf16, fp8_e4m3 or fp8_e5m2 (default: as --kv-cache-dtype)",
      noted(word({"auto", "bf16", "bfloat16", "fp8_e4m3", "fp8_e5m2"}, args.draft_kv_cache_dtype)));
  flags.add_value("--speculative-draft-model-quantization", "METHOD",
                  "of the draft model's weights, as --quantization, or unquant (default: as the target's)",
                  noted(text(args.draft_quantization)));
  flags.add_value(
      "--speculative-moe-a2a-backend", "NAME",
      "how tokens reach the draft model's experts: none or deepep (default: as --moe-a2a-backend)",
      noted(word({"none", "deepep", "mooncake", "nixl", "flashinfer", "megamoe", "flashinfer_megamoe"},
                 args.moe_a2a_backend)));
  flags.add_value(
      "--speculative-accept-rates", "RATES",
      "modeled execution: how often the first guess of draft 1, 2 … is right where those before it were, for "
      "example 0.8,0.7,0.6, of which the last goes on; or trace: what the trace says",
      noted([&args](std::string_view flag, const std::string& value) {
        args.accept_rates.clear();
        args.accept_from_trace = value == "trace";
        if (args.accept_from_trace) return;
        for (const std::string& rate : split_list(value))
          args.accept_rates.push_back(parse_real(flag, rate, 0, true, 1, true));
        if (args.accept_rates.empty()) throw_user_error("{}: the value is empty", flag);
      }));
  flags.add_value("--speculative-accept-lengths", "FILE",
                  "modeled execution: recorded distribution, lines of tokens kept of a step and how often "
                  "(3,120), or with the request's step in front, from 0, where it changes (0,1,90)",
                  noted(text(args.accept_lengths_file)));
}

}  // namespace tpsim::launch
