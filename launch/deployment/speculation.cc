#include "launch/deployment/speculation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string_view>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "rank/config/quantization_config.h"
#include "rank/config/shard.h"

namespace tpsim::launch {
namespace {

using scheduler::AcceptanceByStep;
using scheduler::AcceptLengths;
using scheduler::SpeculativeAlgorithm;

constexpr std::uint32_t kNgramDraftTokens = 12;

// N-grams' masks are made request by request in all releases; spec v1 takes what was accepted apart on the
// host.
rank::DraftHost draft_host(const proto::HostProfile::DraftHost& host, bool overlaps) {
  return {.seconds = host.step_seconds(), .seconds_of_request = host.request_seconds(), .overlaps = overlaps};
}

struct Tree {
  std::uint32_t num_steps, topk, num_draft_tokens;
};

// _auto_choose_speculative_params.
Tree default_tree(const std::string& algorithm, const rank::ModelConfig& model) {
  if (algorithm != "STANDALONE" && model.facts.wide_draft_tree) return {5, 4, 8};
  return {3, 1, 4};
}

// Drafts that num_steps steps with topk guesses each come to.
std::uint64_t most_drafts(std::uint32_t num_steps, std::uint32_t topk) {
  return topk + std::uint64_t{num_steps - 1} * topk * topk;
}

void resolve_tree(const SpeculationArgs& args, const rank::ModelConfig& model, Speculation& out) {
  scheduler::SpeculationConfig& config = out.config;
  if (!args.num_steps) {
    if (args.eagle_topk || args.num_draft_tokens)
      throw_user_error("--speculative-num-steps: is required beside --speculative-{}; give all three or none",
                       args.eagle_topk ? "eagle-topk" : "num-draft-tokens");
    const Tree tree = default_tree(out.algorithm, model);
    config.num_steps = tree.num_steps;
    config.topk = tree.topk;
    config.num_draft_tokens = tree.num_draft_tokens;
    say(out.notes,
        "--speculative-num-steps {} --speculative-eagle-topk {} --speculative-num-draft-tokens "
        "{}: SGLang's choice for {}",
        config.num_steps, config.topk, config.num_draft_tokens, model.architecture);
    return;
  }
  if (!args.eagle_topk)
    throw_user_error(
        "--speculative-eagle-topk: is required beside --speculative-num-steps; give all three or none");
  config.num_steps = *args.num_steps;
  config.topk = *args.eagle_topk;
  if (config.topk == 1) {
    config.num_draft_tokens = config.num_steps + 1;
    out.draft_tokens_adjusted =
        args.num_draft_tokens.value_or(config.num_draft_tokens) != config.num_draft_tokens;
    if (out.draft_tokens_adjusted)
      say(out.warnings,
          "--speculative-num-draft-tokens {}: with --speculative-eagle-topk 1 SGLang verifies "
          "one more than --speculative-num-steps, {}",
          *args.num_draft_tokens, config.num_draft_tokens);
    return;
  }
  if (!args.num_draft_tokens)
    throw_user_error("--speculative-num-draft-tokens: is required with --speculative-eagle-topk {}",
                     config.topk);
  config.num_draft_tokens = *args.num_draft_tokens;
  const std::uint64_t most = most_drafts(config.num_steps, config.topk) + 1;
  if (config.num_draft_tokens < 2 || config.num_draft_tokens > most)
    throw_user_error(
        "--speculative-num-draft-tokens {}: {} steps with {} guesses each make trees of 2 to {} tokens",
        config.num_draft_tokens, config.num_steps, config.topk, most);
}

void resolve_ngram(const SpeculationArgs& args, Speculation& out) {
  scheduler::SpeculationConfig& config = out.config;
  if (args.eagle_topk)
    throw_user_error(
        "--speculative-eagle-topk {}: NGRAM drafts from the text, --speculative-ngram-max-bfs-breadth says "
        "how wide; leave it out",
        *args.eagle_topk);
  config.topk = args.ngram_max_bfs_breadth;
  config.num_draft_tokens = args.num_draft_tokens.value_or(kNgramDraftTokens);
  config.num_steps = args.num_steps.value_or(std::max(1U, config.num_draft_tokens / config.topk));
}

double number_of_draws(const std::vector<double>& weights) {
  return std::accumulate(weights.begin(), weights.end(), 0.0);
}

// Lines of a length and how often it was, comma between; or, where acceptance changes while an answer grows,
// of the number of a request's step, from 0, a length and how often that was: they hold until the next
// number, the first from the beginning. A line that begins with a letter is a heading.
AcceptanceByStep read_accept_lengths(const std::string& path, std::uint32_t most) {
  std::ifstream file(path);
  if (!file) throw_user_error("--speculative-accept-lengths {}: cannot be read", path);
  AcceptanceByStep all;
  std::vector<double> weights(most, 0.0);
  std::uint64_t step = 0;
  std::size_t fields = 0;
  const auto close = [&] {
    if (number_of_draws(weights) <= 0)
      throw_user_error("--speculative-accept-lengths {}: names no length that ever was{}", path,
                       step > 0 ? fmt::format(" from step {} on", step) : "");
    all.from(all.known() ? static_cast<std::uint32_t>(step) : 0, AcceptLengths(weights));
    std::fill(weights.begin(), weights.end(), 0.0);
  };
  std::string line;
  for (std::size_t number = 1; std::getline(file, line); ++number) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    const bool heading =
        !line.empty() && ((line[0] >= 'a' && line[0] <= 'z') || (line[0] >= 'A' && line[0] <= 'Z'));
    if (line.empty() || (number == 1 && heading)) continue;
    const std::string where = fmt::format("--speculative-accept-lengths {}:{}", path, number);
    const std::vector<std::string> parts = split_list(line);
    if (parts.size() < 2 || parts.size() > 3 || (fields > 0 && parts.size() != fields))
      throw_user_error(
          "{}: is no line of a length and how often it was, for example 3,120, nor, like all others, of a "
          "request's step, a length and how often that was, for example 0,3,120",
          where);
    fields = parts.size();
    if (fields == 3) {
      const std::uint64_t here = parse_count(where + " step", parts[0], 0, 1U << 31);
      const bool first = !all.known() && number_of_draws(weights) <= 0;
      if (here < step)
        throw_user_error("{}: step {} stands after step {}; sort the lines", where, here, step);
      if (here > step && !first) close();
      step = here;
    }
    const std::uint64_t length = parse_count(where + " length", parts[fields - 2], 1, most);
    weights[length - 1] += parse_real(where + " weight", parts[fields - 1], 0, true, 1e18, true);
  }
  close();
  return all;
}

// What is known where nothing can be assumed: tokens that SGLang's own tests ask for of GSM8K
// (test/registered/spec/test_ngram_speculative_decoding.py, test_standalone_speculative_decoding.py), and
// what vLLM's pull 24344 has of code that is edited, as rates of a chain.
std::string published_range(const Speculation& speculation) {
  if (!speculation.draft)
    return "text; try 0.3 to 0.7: SGLang's own test asks for 1.8 tokens a step of GSM8K, which is a rate of "
           "0.45, and edits of code, which repeat their prompt, reach 0.7 (vLLM's pull request 24344)";
  if (!speculation.draft->is_head())
    return "draft model and the text; try 0.6 to 0.85: SGLang's own test asks for 3.6 tokens of steps of "
           "5 of GSM8K, which is a rate of 0.83";
  return "head; nobody published it of one like this";
}

// Modeled ranks compute no tokens: somebody has to say how many drafts are right.
void resolve_acceptance(const ServerArgs& server, const rank::ModelConfig& model, Speculation& out) {
  const SpeculationArgs& args = server.speculation;
  scheduler::SpeculationConfig& config = out.config;
  config.computed = server.numeric();
  if (server.numeric()) {
    if (!args.accept_rates.empty() || args.accept_from_trace || !args.accept_lengths_file.empty())
      throw_user_error(
          "--speculative-accept-{}: is for --executor modeled, numeric ranks verify drafts themselves",
          args.accept_lengths_file.empty() ? "rates" : "lengths");
    return;
  }
  if ((!args.accept_rates.empty() || args.accept_from_trace) && !args.accept_lengths_file.empty())
    throw_user_error(
        "--speculative-accept-lengths: excludes --speculative-accept-rates, give one of the two");
  const bool chain = config.algorithm == SpeculativeAlgorithm::kNgram || config.topk == 1;
  const std::uint32_t longest = chain ? config.num_draft_tokens : config.num_steps + 1;
  out.longest_accepted = longest;
  if (args.accept_from_trace) return;
  if (!args.accept_lengths_file.empty()) {
    config.accepted = read_accept_lengths(args.accept_lengths_file, longest);
    return;
  }
  std::vector<double> rates = args.accept_rates;
  if (rates.empty() && out.draft) out.assumed = published_acceptance(model.architecture, out.draft->kind);
  if (out.assumed) rates = {out.assumed->rate};
  if (rates.empty())
    throw_user_error(
        "--speculative-accept-rates: is required by --speculative-algorithm {}, or "
        "--speculative-accept-lengths FILE: priced passes compute no tokens that could be verified, and how "
        "many drafts are right hangs on the {}",
        out.algorithm, published_range(out));
  const AcceptLengths lengths = AcceptLengths::from_rates(rates, chain ? longest - 1 : config.num_steps,
                                                          chain ? 1 : config.topk, config.num_draft_tokens);
  config.accepted = lengths;
  if (out.assumed)
    say(out.warnings,
        "--speculative-accept-rates: nobody said how many drafts are right, and speed hangs on it; {:g} is "
        "assumed, which keeps {:.2f} tokens a step, {} ({})",
        out.assumed->rate, lengths.mean(), out.assumed->of, out.assumed->source);
}

// As the target's --quantization unless the flag says otherwise (server_args.py, speculative_draft_model_
// quantization). A layer of the target has its own resolved already.
void resolve_draft_weights(const SpeculationArgs& args, const std::string& of_target, bool next_layer,
                           rank::QuantizationConfig& quantization) {
  if (args.draft_quantization == "unquant") {
    quantization = {};
    return;
  }
  if (args.draft_quantization.empty() && (next_layer || of_target.empty())) return;
  try {
    quantization = rank::resolve_quantization(
        quantization, args.draft_quantization.empty() ? of_target : args.draft_quantization);
  } catch (const UserError& error) {
    constexpr std::string_view kOther = "--quantization";
    const std::string_view sentence = error.what();
    if (args.draft_quantization.empty() || !sentence.starts_with(kOther)) throw;
    throw UserError("--speculative-draft-model-quantization" + std::string(sentence.substr(kOther.size())));
  }
}

void refuse_what_cannot_be(const ServerArgs& args, const rank::ModelConfig& model) {
  const std::string flag = "--speculative-algorithm " + args.speculation.algorithm;
  const bool dp = args.parallel.data_parallel_attention();
  const std::string& algorithm = args.speculation.algorithm;
  if (dp && (algorithm == "STANDALONE" || algorithm == "NGRAM"))
    throw_user_error(
        "{}: SGLang refuses it with data-parallel attention; use EAGLE, EAGLE3 or NEXTN, or leave "
        "--enable-dp-attention out",
        flag);
  if (dp && args.enable_mixed_chunk && algorithm != "STANDALONE" && algorithm != "NGRAM" &&
      args.sglang_release.rules.heads_mix_chunks)
    throw_user_error(
        "--enable-mixed-chunk: with {} and data-parallel attention it is not simulated; leave it out", flag);
  if (model.is_compressed() && algorithm != "EAGLE")  // arg_groups/deepseek_v4_hook.py:149 of 0.5.23
    throw_user_error("{}: SGLang refuses it for {}, whose own head it takes as EAGLE", flag, model.name);
  if (model.facts.draft_head != rank::DraftHead::kNone)
    throw_user_error("--model-path: {} is a head that drafts; name it by --speculative-draft-model-path",
                     model.architecture);
}

}  // namespace

// What computing does not do yet.
void refuse_numeric_head(const ServerArgs& args, const rank::ModelConfig& model,
                         const rank::DraftModel& draft) {
  const std::string flag = "--speculative-draft-model-path " + args.speculation.draft_model_path;
  if (draft.kind == rank::DraftKind::kNextN) {
    if (args.speculation.draft_model_path.empty() || args.speculation.draft_model_path == args.model_path)
      return;
    throw_user_error(
        "{}: --executor numeric drafts with the layer of the target's own checkpoint; leave it out", flag);
  }
  if (!draft.not_computed.empty())
    throw_user_error(
        "{}: --executor numeric computes no head with \"{}\" in its config.json; use another one, or "
        "--executor modeled",
        flag, draft.not_computed);
  if (draft.kind == rank::DraftKind::kEagle || !draft.own_head) {
    if (draft.config.vocab_size != model.vocab_size)
      throw_user_error(
          "{}: has {} tokens in its vocabulary and {} has {}; a head that shares its target's output head "
          "needs the same",
          flag, draft.config.vocab_size, model.name, model.vocab_size);
  }
  if (draft.kind != rank::DraftKind::kEagle3) return;
  if (draft.config.num_layers != 1)
    throw_user_error(
        "{}: --executor numeric computes EAGLE3 heads of one layer, this one has {}; use --executor modeled",
        flag, draft.config.num_layers);
  if (draft.hidden_layers.empty())
    throw_user_error(
        "{}: reads hidden states that {} with its {} layers does not have; name layers of it by "
        "eagle_config.eagle_aux_hidden_state_layer_ids in its config.json",
        flag, model.name, model.num_layers);
}

void refuse_numeric(const ServerArgs& args, const rank::ModelConfig& model, const Speculation& speculation) {
  const std::string& algorithm = speculation.algorithm;
  if (model.is_hybrid_linear())
    throw_user_error(
        "--speculative-algorithm {}: --executor numeric does not take states of gated delta-net layers, "
        "which {} has, back to what was accepted; use --executor modeled",
        algorithm, model.name);
  if (model.is_sparse())
    throw_user_error(
        "--speculative-algorithm {}: --executor numeric does not verify with sparse attention, which {} has; "
        "use --executor modeled",
        algorithm, model.name);
  if (model.is_compressed() && speculation.config.has_head())
    throw_user_error(
        "--speculative-algorithm {}: --executor numeric computes no head that reads the streams of {}; use "
        "--executor modeled",
        algorithm, model.name);
  if (args.parallel.data_parallel_attention())
    throw_user_error(
        "--speculative-algorithm {}: --executor numeric does not draft with data-parallel attention; use "
        "--executor modeled",
        algorithm);
  if (args.enable_mixed_chunk && speculation.config.has_head() && args.sglang_release.rules.heads_mix_chunks)
    throw_user_error(
        "--enable-mixed-chunk: with --speculative-algorithm {} --executor numeric computes no steps that "
        "prefill and decode; leave it out",
        algorithm);
  for (const auto& [flag, value] :
       {std::pair<std::string_view, const std::string&>{"--speculative-draft-kv-cache-dtype",
                                                        args.speculation.draft_kv_cache_dtype},
        {"--speculative-draft-model-quantization", args.speculation.draft_quantization},
        {"--speculative-moe-a2a-backend", args.speculation.moe_a2a_backend}}) {
    if (!value.empty())
      throw_user_error(
          "{} {}: is for --executor modeled, numeric ranks draft as the checkpoint is; leave it out", flag,
          value);
  }
  if (speculation.draft && speculation.draft->is_head()) refuse_numeric_head(args, model, *speculation.draft);
  bool windows = false, chunks = false;
  for (const rank::AttentionKind& kind : model.attention) {
    windows = windows || kind.sliding_window > 0;
    chunks = chunks || kind.attention_chunk > 0;
  }
  if (chunks)
    throw_user_error(
        "--speculative-algorithm {}: --executor numeric verifies no attention within chunks, which {} has; "
        "use --executor modeled",
        algorithm, model.name);
  if (windows && speculation.config.topk > 1 && args.disable_radix_cache)
    throw_user_error(
        "--disable-radix-cache: with sliding windows --executor numeric lets go of what a tree of drafts is "
        "masked against; use --speculative-ngram-max-bfs-breadth 1, or leave it out");
}

// What does not go with it: mixed chunks, overlap.
void switch_off(const BatchArgs& args, Speculation& out) {
  const bool mixes = out.config.has_head() && args.sglang_release.rules.heads_mix_chunks;
  if (out.switches.mixed_chunk && !mixes) {
    say(out.notes, "--enable-mixed-chunk: is off, {} of SGLang {} does not mix", out.algorithm,
        args.sglang_release.name);
    out.switches.mixed_chunk = false;
  }
  if (!out.config.v2 && out.switches.overlap) {
    say(out.notes, "the schedule is not overlapped: {} of SGLang {} is spec v1", out.algorithm,
        args.sglang_release.name);
    out.switches.overlap = false;
  }
}

Speculation resolve_speculation(const ServerArgs& server, const proto::HostProfile& host,
                                const rank::ModelConfig& model) {
  const SpeculationArgs& args = server.speculation;
  Speculation out;
  out.switches = {server.enable_mixed_chunk, !server.disable_overlap_schedule, !server.disable_radix_cache};
  out.verifies_with_prefill = args.verifies_with_prefill();
  if (args.algorithm.empty()) {
    if (!args.given.empty()) throw_user_error("{}: needs --speculative-algorithm", args.given);
    return out;
  }
  refuse_what_cannot_be(server, model);
  out.algorithm = args.algorithm == "NEXTN" ? "EAGLE" : args.algorithm;
  out.config.algorithm = out.algorithm == "EAGLE"        ? SpeculativeAlgorithm::kEagle
                         : out.algorithm == "EAGLE3"     ? SpeculativeAlgorithm::kEagle3
                         : out.algorithm == "STANDALONE" ? SpeculativeAlgorithm::kStandalone
                                                         : SpeculativeAlgorithm::kNgram;
  if (out.config.algorithm == SpeculativeAlgorithm::kNgram) {
    for (const auto& [flag, given] :
         {std::pair<std::string_view, bool>{"--speculative-draft-model-path", !args.draft_model_path.empty()},
          {"--speculative-draft-attention-backend", args.draft_attention_backend.has_value()},
          {"--speculative-draft-kv-cache-dtype", !args.draft_kv_cache_dtype.empty()},
          {"--speculative-draft-model-quantization", !args.draft_quantization.empty()},
          {"--speculative-moe-a2a-backend", !args.moe_a2a_backend.empty()}}) {
      if (given) throw_user_error("{}: NGRAM drafts without a model; leave it out", flag);
    }
    resolve_ngram(args, out);
    out.host = draft_host(host.ngram(), /*overlaps=*/false);
  } else {
    resolve_tree(args, model, out);
    out.draft = rank::load_draft_model(out.algorithm, args.draft_model_path, model);
    resolve_draft_weights(args, server.quantization, out.draft->kind == rank::DraftKind::kNextN,
                          out.draft->config.quantization);
    if (out.draft->kind == rank::DraftKind::kEagle && server.parallel.data_parallel_attention())
      throw_user_error(
          "--speculative-draft-model-path {}: SGLang's {} cuts attention by --tp alone, and not with "
          "--enable-dp-attention; use an EAGLE3 head, or NEXTN",
          args.draft_model_path, out.draft->config.architecture);
  }
  out.config.follow(server.sglang_release, server.disable_overlap_schedule);
  if (out.draft) out.host = draft_host(out.config.v2 ? host.draft_v2() : host.draft_v1(), out.config.v2);
  resolve_acceptance(server, model, out);
  if (server.numeric()) refuse_numeric(server, model, out);
  switch_off(server, out);
  return out;
}

void select_for_speculation(const ServerArgs& args, const rank::ModelConfig& model,
                            attention::Selection& selection) {
  const SpeculationArgs& speculation = args.speculation;
  if (speculation.algorithm.empty()) return;
  selection.verifies_with_prefill = speculation.verifies_with_prefill();
  if (speculation.algorithm == "NGRAM") {
    selection.spec_topk = speculation.ngram_max_bfs_breadth;
    selection.topk_flag = "--speculative-ngram-max-bfs-breadth";
    return;
  }
  selection.spec_topk = speculation.eagle_topk.value_or(default_tree(speculation.algorithm, model).topk);
  selection.spec_topk_given = speculation.eagle_topk.has_value();
}

std::uint64_t draft_reserve_mib(const ServerArgs& args, const Speculation& speculation) {
  if (!speculation.draft || args.sglang_release.rules.draft_model_from_pool) return 0;
  return speculation.draft->is_head() ? 4 * 1024 : 6 * 1024;
}

void write_speculation(const ServerArgs& args, const Speculation& speculation, Rows& out) {
  if (!speculation.config.enabled()) return;
  const SpeculationArgs& given = args.speculation;
  out["speculative_algorithm"] = speculation.algorithm;
  out["speculative_num_steps"] = std::to_string(speculation.config.num_steps);
  out["speculative_eagle_topk"] = std::to_string(speculation.config.topk);
  out["speculative_num_draft_tokens"] = std::to_string(speculation.config.num_draft_tokens);
  out["speculative_attention_mode"] = given.attention_mode;
  if (speculation.draft) {
    out["speculative_draft_model_path"] =
        given.draft_model_path.empty() ? args.model_path : given.draft_model_path;
    if (given.draft_attention_backend)
      out["speculative_draft_attention_backend"] = *given.draft_attention_backend;
    if (!given.draft_kv_cache_dtype.empty())
      out["speculative_draft_kv_cache_dtype"] = given.draft_kv_cache_dtype;
    if (!given.draft_quantization.empty())
      out["speculative_draft_model_quantization"] = given.draft_quantization;
    if (!given.moe_a2a_backend.empty()) out["speculative_moe_a2a_backend"] = given.moe_a2a_backend;
  } else {
    out["speculative_ngram_max_bfs_breadth"] = std::to_string(given.ngram_max_bfs_breadth);
  }
  if (given.accept_from_trace) out["speculative_accept_rates"] = "trace";
  if (speculation.assumed)
    out["speculative_accept_rates"] = fmt::format("{:g} (assumed)", speculation.assumed->rate);
  if (!given.accept_rates.empty())
    out["speculative_accept_rates"] = fmt::format("{}", fmt::join(given.accept_rates, ","));
  if (!given.accept_lengths_file.empty()) out["speculative_accept_lengths"] = given.accept_lengths_file;
}

void check_accept_lens(const Speculation& speculation, bool from_trace,
                       const scheduler::WorkloadOutline& workload) {
  if (!speculation.config.enabled()) return;
  if (from_trace && workload.without_accept_lens)
    throw_user_error("--speculative-accept-rates trace: request {} of {} has no accept_lens",
                     *workload.without_accept_lens, workload.name);
  if (speculation.longest_accepted > 0 && workload.longest_accept_len > speculation.longest_accepted)
    throw_user_error("{}: request {} keeps {} tokens of a step, which has {} at most", workload.name,
                     workload.longest_accepting, workload.longest_accept_len, speculation.longest_accepted);
}

void write_speculation_shares(proto::RunReport& report) {
  if (!report.has_speculation() || report.ranks().empty()) return;
  const proto::RankReport& rank = report.ranks(0);
  const proto::PassSeconds& decode = rank.decode();
  const double all =
      decode.attention() + decode.gemm() + decode.collective() + decode.other() + decode.launch();
  if (all <= 0) return;
  proto::Speculation& out = *report.mutable_speculation();
  out.set_draft_share(decode.draft() / all);
  out.set_draft_extend_share(decode.draft_extend() / all);
  out.set_verify_share(1 - out.draft_share() - out.draft_extend_share());
}

}  // namespace tpsim::launch
