#include "scheduler/workload/conversations.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "proto/base/error.h"
#include "proto/base/stop_flag.h"
#include "scheduler/workload/sampler.h"
#include "scheduler/workload/trace_reader.h"

namespace tpsim::scheduler {
namespace {

constexpr double kMaxSeconds = 1e8;  // three years
constexpr std::uint64_t kMaxConversations = 100'000'000;
constexpr std::uint64_t kMaxPromptLen = std::uint64_t{1} << 24;

template <typename Number>
void check(const char* flag, Number value, std::type_identity_t<Number> min,
           std::type_identity_t<Number> max) {
  if (!(value >= min && value <= max)) {
    throw_user_error("{} is {}; a {}number from {} to {} is needed", flag, value,
                     std::is_integral_v<Number> ? "whole " : "", min, max);
  }
}

void check(const ConversationOptions& options) {
  check("--num-conversations", options.num_conversations, 0, kMaxConversations);
  check("--duration", options.duration, 0, kMaxSeconds);
  if (options.num_conversations == 0 && options.duration == 0) {
    throw_user_error(
        "--num-conversations and --duration are both 0; give one of them, or the trace has no end");
  }
  check("--request-rate", options.request_rate, 1e-6, 1e6);
  check("--burstiness", options.burstiness, 0.05, 20);
  check("--system-prompts", options.system_prompts, 0, 1'000'000);
  check("--system-prompt-median", options.system_prompt_median, 1, 1e6);
  check("--system-prompt-sigma", options.system_prompt_sigma, 0, 5);
  check("--turns-mean", options.turns_mean, 1, 1000);
  check("--message-median", options.message_median, 1, 1e6);
  check("--message-sigma", options.message_sigma, 0, 5);
  check("--document-probability", options.document_probability, 0, 1);
  check("--document-median", options.document_median, 1, 1e6);
  check("--document-sigma", options.document_sigma, 0, 5);
  check("--answer-median", options.answer_median, 1, 1e6);
  check("--answer-sigma", options.answer_sigma, 0, 5);
  check("--think-time-mean", options.think_time_mean, 0, kMaxSeconds);
  check("--answer-rate", options.answer_rate, 1e-3, 1e9);
  check("--max-prompt-len", options.max_prompt_len, 1, kMaxPromptLen);
  check("--max-answer-len", options.max_answer_len, 1, kMaxPromptLen);
}

double whole_milliseconds(double seconds) { return std::floor(seconds * 1000 + 0.5) / 1000; }

class Generator {
 public:
  explicit Generator(const ConversationOptions& options) : options_(options), sampler_(options.seed) {
    double popularity = 0;
    for (std::uint64_t k = 1; k <= options.system_prompts; ++k) {
      // At most half of a prompt, so that there is room for a conversation.
      const std::uint32_t length = draw_length(options.system_prompt_median, options.system_prompt_sigma,
                                               std::max<std::uint64_t>(1, options.max_prompt_len / 2));
      system_prompts_.push_back(take_ids(length));
      popularity += 1.0 / static_cast<double>(k);
      popularity_.push_back(popularity);
    }
  }

  Workload generate() {
    // Gamma gaps of mean m and coefficient of variation c have shape 1/c² and scale m c².
    const double variance = options_.burstiness * options_.burstiness;
    const double mean_gap = options_.turns_mean / options_.request_rate;
    double start = 0;
    const std::uint64_t limit =
        options_.num_conversations == 0 ? kMaxConversations : options_.num_conversations;
    for (std::uint64_t i = 0; i < limit; ++i) {
      if (i > 0) start += sampler_.gamma(1 / variance, mean_gap * variance);
      if (too_late(start)) break;
      StopFlag::throw_if_requested();
      converse(start, static_cast<std::uint32_t>(i + 1));
    }
    if (workload_.requests.empty()) {
      throw_user_error("--max-prompt-len {} leaves no room for a message; make it larger",
                       options_.max_prompt_len);
    }
    workload_.name = "conversations";
    workload_.format = "tpsim";
    sort_by_arrival(workload_);
    return std::move(workload_);
  }

 private:
  bool too_late(double time) const {
    return time > kMaxSeconds || (options_.duration > 0 && time > options_.duration);
  }

  std::uint32_t draw_length(double median, double sigma, std::uint64_t max) {
    const double drawn = std::floor(sampler_.lognormal(median, sigma) + 0.5);
    return static_cast<std::uint32_t>(std::clamp(drawn, 1.0, static_cast<double>(max)));
  }

  kvcache::TokenRun take_ids(std::uint32_t length) {
    const kvcache::TokenRun run{next_id_, length};
    next_id_ += length;
    if (next_id_ > kGeneratedTokenBase) {
      throw_user_error("the trace has more than 2^48 tokens; lower --num-conversations or --duration");
    }
    return run;
  }

  void converse(double time, std::uint32_t session) {
    kvcache::TokenSequence history;
    if (!system_prompts_.empty()) {
      const double at = sampler_.uniform() * popularity_.back();
      const auto chosen = std::upper_bound(popularity_.begin(), popularity_.end() - 1, at);
      history.append(system_prompts_[static_cast<std::size_t>(chosen - popularity_.begin())]);
    }
    const std::uint64_t turns = sampler_.geometric(options_.turns_mean);
    std::optional<double> think_time;  // before the turn; the first has none
    for (std::uint64_t turn = 0; turn < turns && !too_late(time); ++turn) {
      std::uint64_t message =
          draw_length(options_.message_median, options_.message_sigma, options_.max_prompt_len);
      if (turn == 0 && sampler_.uniform() < options_.document_probability) {
        message += draw_length(options_.document_median, options_.document_sigma, options_.max_prompt_len);
      }
      // A first message that is too long is cut, as users do; a later one ends the conversation.
      const std::uint64_t room =
          options_.max_prompt_len - std::min<std::uint64_t>(options_.max_prompt_len, history.size());
      if (turn == 0) message = std::min(message, room);
      if (message == 0 || message > room) return;
      history.append(take_ids(static_cast<std::uint32_t>(message)));
      const kvcache::TokenRun answer =
          take_ids(draw_length(options_.answer_median, options_.answer_sigma, options_.max_answer_len));

      WorkloadRequest request;
      request.arrival_time = whole_milliseconds(time);
      request.prompt = history;
      request.max_new_tokens = answer.length;
      request.session = session;
      if (think_time) request.think_time = whole_milliseconds(*think_time);
      request.output.append(answer);
      workload_.requests.push_back(std::move(request));

      history.append(answer);
      think_time = sampler_.exponential(options_.think_time_mean);
      time += answer.length / options_.answer_rate + *think_time;
    }
  }

  const ConversationOptions& options_;
  Sampler sampler_;
  kvcache::TokenId next_id_ = 0;
  std::vector<kvcache::TokenRun> system_prompts_;
  std::vector<double> popularity_;  // running sum
  Workload workload_;
};

}  // namespace

Workload make_conversations(const ConversationOptions& options) {
  check(options);
  return Generator(options).generate();
}

}  // namespace tpsim::scheduler
