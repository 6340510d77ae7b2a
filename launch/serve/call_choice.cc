#include "launch/serve/call_choice.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "launch/serve/protocol/json_fields.h"

namespace tpsim::launch {

std::uint32_t hash_of_name(std::string_view name) {
  if (name.empty()) return 0;
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash == 0 ? 1 : hash;
}

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) longest_ = std::max(longest_, stop.size());
}

std::optional<StopStrings::Match> StopStrings::push(std::string_view piece) {
  if (longest_ == 0) return std::nullopt;
  if (tail_.size() >= longest_) tail_.erase(0, tail_.size() - (longest_ - 1));
  tail_ += piece;
  std::size_t first = std::string::npos;
  std::string_view which;
  for (const std::string& stop : stops_) {
    const std::size_t at = tail_.find(stop);
    if (at < first) {
      first = at;
      which = stop;
    }
  }
  if (first == std::string::npos) return std::nullopt;
  return Match{which, tail_.size() - first};
}

bool StopStrings::may_begin() const {
  const std::string_view tail = tail_;
  return std::any_of(stops_.begin(), stops_.end(), [tail](std::string_view stop) {
    for (std::size_t size = std::min(stop.size() - 1, tail.size()); size > 0; --size) {
      if (tail.ends_with(stop.substr(0, size))) return true;
    }
    return false;
  });
}

CallChoice::CallChoice(const ServeContext& context, const ServedModel& model, const SamplingFields& sampling,
                       Answer& answer, bool wants_ids)
    : context_(context),
      model_(model),
      sampling_(sampling),
      answer_(answer),
      wants_ids_(wants_ids),
      stops_(sampling.stop) {
  if (context.computes && !model.format.skip_tokenizer)
    text_ = model.tokenizer->stream(sampling.skip_special_tokens);
}

std::uint32_t CallChoice::tokens_to_ask(std::uint64_t prompt_tokens) {
  const std::uint64_t room =
      model_.context_length - std::min<std::uint64_t>(prompt_tokens, model_.context_length);
  std::uint64_t wanted = room;
  if (sampling_.max_new_tokens) {
    wanted = std::max<std::uint32_t>(*sampling_.max_new_tokens, 1);
  } else if (!context_.computes) {
    wanted = context_.default_output_tokens;
    ends_by_itself_ = true;
  }
  if (context_.max_output_tokens) wanted = std::min<std::uint64_t>(wanted, *context_.max_output_tokens);
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(std::min(wanted, room), 1));
}

std::uint32_t CallChoice::next_id(const TokenNews& news, std::uint32_t i) {
  if (i < news.ids.size()) return news.ids[i];
  if (request_ == nullptr) return 0;
  const auto runs = request_->output.runs();
  if (run_ >= runs.size()) return last_id_;
  const auto id = static_cast<std::uint32_t>(runs[run_].first + run_offset_);
  if (++run_offset_ == runs[run_].length) {
    ++run_;
    run_offset_ = 0;
  }
  return id;
}

void CallChoice::take(const TokenNews& news) {
  if (news.count > 0) {
    answer_.cached_tokens = news.cached_tokens;
    answer_.cached_host = news.cached_host;
    answer_.cached_storage = news.cached_storage;
    answer_.retractions = news.retractions;
  }
  for (std::uint32_t i = 0; i < news.count && !answer_.finish; ++i) take_token(next_id(news, i));
  if (news.end && !answer_.finish) finish(news);
  if (answer_.finish) answer_.e2e_latency = news.latency;
}

void CallChoice::take_token(std::uint32_t id) {
  ++answer_.completion_tokens;
  last_id_ = id;
  if (wants_ids_) answer_.add_id(id);
  const std::vector<std::uint32_t>& stop_ids = sampling_.stop_token_ids;
  if (!stop_ids.empty() && std::find(stop_ids.begin(), stop_ids.end(), id) != stop_ids.end()) {
    if (sampling_.no_stop_trim && text_ != nullptr) add_text(text_->push(id));
    answer_.finish = FinishReason{.kind = FinishReason::Kind::kStop, .matched = std::to_string(id)};
    return;
  }
  if (model_.format.skip_tokenizer) return;
  if (text_ != nullptr)
    add_text(text_->push(id));
  else
    add_text(model_.invented.text(id));
}

void CallChoice::add_text(std::string_view piece) {
  append_escaped(piece, answer_.text);
  const std::optional<StopStrings::Match> match = stops_.push(piece);
  if (!match) return;
  const std::size_t cut = match->bytes_from_start - (sampling_.no_stop_trim ? match->stop.size() : 0);
  std::string cut_off;
  append_escaped(stops_.last(cut), cut_off);
  answer_.text.resize(answer_.text.size() - std::min(cut_off.size(), answer_.text.size()));
  answer_.finish = FinishReason{.kind = FinishReason::Kind::kStop, .matched = json_string(match->stop)};
}

void CallChoice::finish(const TokenNews& news) {
  using Kind = FinishReason::Kind;
  if (text_ != nullptr) add_text(text_->finish());
  if (answer_.finish) return;
  const auto& eos = model_.eos_ids;
  switch (*news.end) {
    case scheduler::RequestState::kCompleted:
      answer_.finish = FinishReason{.kind = Kind::kStop};
      if (context_.computes && !sampling_.ignore_eos && answer_.completion_tokens > 0 &&
          std::find(eos.begin(), eos.end(), last_id_) != eos.end())
        answer_.finish->matched = std::to_string(last_id_);
      else if (!ends_by_itself_)
        answer_.finish = FinishReason{.kind = Kind::kLength, .length = answer_.completion_tokens};
      else if (!eos.empty())
        answer_.finish->matched = std::to_string(eos.front());
      return;
    case scheduler::RequestState::kRejected:
      answer_.finish =
          FinishReason{.kind = Kind::kAbort,
                       .message = news.because,
                       .status = news.status,
                       .error_type = news.status == 400 ? "BadRequestError" : "ServiceUnavailable"};
      return;
    case scheduler::RequestState::kCancelled:
      answer_.finish = FinishReason{.kind = Kind::kAbort, .message = "Aborted"};
      return;
    case scheduler::RequestState::kFailed:  // of no server that is alone
    case scheduler::RequestState::kUnfinished:
      answer_.finish = FinishReason{.kind = Kind::kAbort,
                                    .message = news.because,
                                    .status = news.status,
                                    .error_type = "ServiceUnavailable"};
  }
}

bool CallChoice::shows(std::uint32_t before) const {
  const std::uint32_t interval = sampling_.stream_interval.value_or(context_.stream_interval);
  const std::uint32_t now = answer_.completion_tokens;
  // SGLang tells those whose number is 1 of an interval; several may come at once.
  const bool due =
      interval <= 1 ? now > before : (now + interval - 1) / interval > (before + interval - 1) / interval;
  return due && !stops_.may_begin();
}

void CallChoice::before_event() {
  if (answer_.begun || answer_.first_sent_time > 0) return;
  answer_.first_sent_time =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void CallChoice::forget_sent() {
  if (answer_.text_sent == answer_.text.size()) {
    answer_.text.clear();
    answer_.text_sent = 0;
  }
  if (answer_.ids_sent == answer_.ids.size()) {
    answer_.ids.clear();
    answer_.ids_sent = 0;
  }
}

}  // namespace tpsim::launch
