#include "launch/serve/live_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <utility>

#include "launch/serve/call_choice.h"
#include "launch/serve/protocol/json_fields.h"

namespace tpsim::launch {

namespace {

// A name that no other request has: 32 hexadecimal digits.
std::string invented_name() {
  thread_local std::mt19937_64 random{(std::uint64_t{std::random_device{}()} << 32) | std::random_device{}()};
  return fmt::format("{:016x}{:016x}", random(), random());
}

}  // namespace

// One answer's request.
class LiveCall::Choice final : public LiveRequest {
 public:
  Choice(LiveCall& call, Answer& answer, const SamplingFields& sampling)
      : call_(call),
        text_(call.context_, call.model_, sampling, answer,
              /*wants_ids=*/call.call_.api == GenerateCall::Api::kGenerate) {}

  WireThread& thread() const override { return call_.exchange_->thread(); }

  void on_news(const TokenNews& news) override {
    if (call_.over_ || answer().finish) return;
    take(news);
    if (!call_.context_.computes) call_.context_.counts.note_due(news.due);
  }

  Answer& answer() { return text_.answer(); }

  std::uint64_t id = 0;  // at the replica
  bool submitted = false;
  bool named = true;   // known to RequestNames
  bool dirty = false;  // has something that its client was not sent

 private:
  friend class LiveCall;

  void take(const TokenNews& news) {
    if (!call_.call_.stream) {
      text_.take(news);
    } else {
      if (dirty && !call_.exchange_->ready()) ++call_.context_.merged_deltas;
      const std::uint32_t before = answer().completion_tokens;
      text_.take(news);
      dirty = dirty || answer().finish || text_.shows(before);
    }
    if (answer().finish) {
      // Stopped by what it said: the replica goes on until it is told.
      if (!news.end) call_.context_.fleet.cancel(id);
      call_.on_finished(*this);
    } else if (dirty) {
      call_.flush();
    }
  }

  LiveCall& call_;
  CallChoice text_;
};

// The request that brings a prompt into the cache.
class LiveCall::Prefix final : public LiveRequest {
 public:
  Prefix(LiveCall& call, std::size_t prompt) : call_(call), prompt_(prompt) {}

  WireThread& thread() const override { return call_.exchange_->thread(); }
  void on_news(const TokenNews& news) override {
    if (!call_.over_ && news.end) call_.on_prefix(prompt_, news);
  }

  std::uint64_t id = 0;

 private:
  LiveCall& call_;
  const std::size_t prompt_;
};

LiveCall::LiveCall(ServeContext& context, const ServedModel& model, std::string_view route, GenerateCall call,
                   std::vector<std::vector<std::uint32_t>> prompts,
                   std::chrono::steady_clock::time_point arrived, std::shared_ptr<Exchange> exchange,
                   Gate::Pass pass)
    : context_(context),
      model_(model),
      route_(route),
      call_(std::move(call)),
      prompts_(std::move(prompts)),
      arrived_(arrived),
      exchange_(std::move(exchange)),
      pass_(std::move(pass)) {
  const std::int64_t created = std::time(nullptr);
  switch (call_.api) {
    case GenerateCall::Api::kGenerate:
      format_ = make_native_format(call_, model_.format);
      break;
    case GenerateCall::Api::kCompletions:
      format_ = make_completion_format(call_, model_.format, created);
      break;
    case GenerateCall::Api::kChat:
      format_ = make_chat_format(call_, model_.format, created);
      break;
  }
  context_.counts.begin(route_, "POST");
  answers_.resize(prompts_.size() * call_.n);
  unfinished_ = answers_.size();
}

LiveCall::~LiveCall() {
  context_.counts.end(route_, "POST");
  for (const std::unique_ptr<Choice>& choice : choices_) drop_name(*choice);
}

// Once: the name may be another's by now.
void LiveCall::drop_name(Choice& choice) {
  if (std::exchange(choice.named, false)) context_.names.erase(choice.answer().id);
}

void LiveCall::start() {
  take_names();
  exchange_->listen(shared_from_this());
  if (!over_) begin();
}

void LiveCall::take_names() {
  for (std::size_t i = 0; i < answers_.size(); ++i) {
    const std::vector<std::string>& given = call_.rids;
    std::string name;
    if (call_.n > 1 || given.empty()) {
      name = invented_name();
    } else if (given.size() == answers_.size() && (call_.single || given.size() > 1)) {
      name = given[i];
    } else {
      name = given.front() + "_" + std::to_string(i);
    }
    if (!context_.names.reserve(name)) refuse_value("Duplicate request ID detected: " + name);
    answers_[i].id = name;
    answers_[i].index = static_cast<std::uint32_t>(i);
    answers_[i].prompt_tokens = static_cast<std::uint32_t>(prompts_[i / call_.n].size());
    choices_.push_back(std::make_unique<Choice>(*this, answers_[i], call_.sampling_of(i / call_.n)));
  }
}

void LiveCall::begin() {
  if (call_.stream) {
    counted_ = true;
    ++context_.open_streams;
  }
  if (call_.stream && format_->begins_at_once()) {
    streaming_ = true;
    context_.counts.add(route_, "POST", 200);
    exchange_->begin_stream("text/event-stream; charset=utf-8", model_.answer_headers);
  }
  if (call_.n > 1) {
    submit_prefix(0);
  } else {
    submit_choices(arrived_);
  }
}

scheduler::WorkloadRequest LiveCall::request_of(std::size_t prompt, std::uint32_t max_new_tokens) const {
  scheduler::WorkloadRequest request;
  for (const std::uint32_t id : prompts_[prompt]) request.prompt.append({id, 1});
  request.max_new_tokens = max_new_tokens;
  request.model = model_.number;
  request.priority = call_.priority;
  request.extra_key = hash_of_name(call_.extra_key);
  request.session = hash_of_name(call_.routing_key);
  const SamplingFields& sampling = call_.sampling_of(prompt);
  constexpr double kGreedy = 1e-6;  // SGLang's _SAMPLING_EPS
  const bool greedy = sampling.temperature < kGreedy || sampling.top_k == 1;
  request.sampling = {.temperature = greedy ? 0 : sampling.temperature,
                      .top_k = sampling.top_k < 0 ? 0 : static_cast<std::uint32_t>(sampling.top_k),
                      .top_p = sampling.top_p,
                      .seed = sampling.seed.value_or(context_.answers.load()),
                      .ignore_eos = !context_.computes || sampling.ignore_eos};
  return request;
}

void LiveCall::submit_prefix(std::size_t prompt) {
  prefix_ = std::make_unique<Prefix>(*this, prompt);
  auto request = std::make_shared<scheduler::WorkloadRequest>(request_of(prompt, 1));
  prefix_->id =
      context_.fleet.submit(std::move(request), prompt == 0 ? arrived_ : std::chrono::steady_clock::now(),
                            std::shared_ptr<LiveRequest>(shared_from_this(), prefix_.get()));
}

void LiveCall::on_prefix(std::size_t prompt, const TokenNews& news) {
  if (news.end != scheduler::RequestState::kCompleted) {
    fail(news.status, news.because);
  } else if (prompt + 1 < prompts_.size()) {
    submit_prefix(prompt + 1);
  } else {
    submit_choices(std::chrono::steady_clock::now());
  }
}

void LiveCall::submit_choices(std::chrono::steady_clock::time_point sent) {
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = *choices_[i];
    const std::size_t prompt = i / call_.n;
    auto request = std::make_shared<scheduler::WorkloadRequest>(request_of(prompt, 0));
    request->max_new_tokens = choice.text_.tokens_to_ask(request->prompt.size());
    if (!context_.computes) {
      request->output = model_.invented.tokens(++context_.answers, request->max_new_tokens);
      choice.text_.will_say(request);
    }
    choice.submitted = true;
    choice.id = context_.fleet.submit(std::move(request), sent,
                                      std::shared_ptr<LiveRequest>(shared_from_this(), &choice));
    context_.names.set(choice.answer().id, choice.id);
  }
}

void LiveCall::on_finished(Choice& choice) {
  drop_name(choice);
  --unfinished_;
  flush();
}

void LiveCall::fail(unsigned status, const std::string& message) {
  if (over_) return;
  const std::string type(status == 400 ? "BadRequestError" : std::to_string(status));
  if (streaming_) {
    out_.clear();
    format_->failed(status, type, message, out_);
    exchange_->write(out_);
    exchange_->end_stream();
  } else {
    const bool plain = call_.api == GenerateCall::Api::kGenerate && status == 400;
    context_.counts.add(route_, "POST", status);
    exchange_->respond(
        {.status = status,
         .body = error_body(plain ? ErrorStyle::kPlain : ErrorStyle::kOpenAi, status, type, message)});
  }
  end();
}

void LiveCall::flush() {
  if (over_) return;
  if (call_.stream) {
    flush_stream();
  } else if (unfinished_ == 0) {
    answer_whole();
  }
}

void LiveCall::flush_stream() {
  if (!streaming_) {
    streaming_ = true;
    context_.counts.add(route_, "POST", 200);
    exchange_->begin_stream("text/event-stream; charset=utf-8", model_.answer_headers);
  }
  if (!exchange_->ready()) return;
  out_.clear();
  for (const std::unique_ptr<Choice>& choice : choices_) {
    if (!choice->dirty) continue;
    choice->dirty = false;
    choice->text_.before_event();
    format_->event(choice->answer(), out_);
    if (format_->sends_deltas()) choice->text_.forget_sent();
  }
  const bool last = unfinished_ == 0;
  if (last) format_->closing(answers_, out_);
  exchange_->write(out_);
  if (!last) return;
  exchange_->end_stream();
  end();
}

void LiveCall::answer_whole() {
  for (const Answer& answer : answers_) {
    if (!answer.finish->is_error()) continue;
    fail(answer.finish->status, answer.finish->message);
    return;
  }
  for (const std::unique_ptr<Choice>& choice : choices_) choice->text_.before_event();
  context_.counts.add(route_, "POST", 200);
  exchange_->respond({.body = format_->whole(answers_), .headers = model_.answer_headers});
  end();
}

// Whatever is still at the replica is not wanted any more.
void LiveCall::end() {
  if (over_) return;
  over_ = true;
  if (counted_) --context_.open_streams;
  if (prefix_ != nullptr) context_.fleet.cancel(prefix_->id);
  for (const std::unique_ptr<Choice>& choice : choices_) {
    drop_name(*choice);
    if (choice->submitted && !choice->answer().finish) context_.fleet.cancel(choice->id);
  }
}

}  // namespace tpsim::launch
