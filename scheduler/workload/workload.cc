#include "scheduler/workload/workload.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "proto/base/hash.h"

namespace tpsim::scheduler {

void start_at_zero(Workload& workload) {
  const double first = workload.requests.front().arrival_time;
  if (first == 0) return;
  for (WorkloadRequest& request : workload.requests) request.arrival_time -= first;
}

void sort_by_arrival(Workload& workload) {
  if (workload.requests.empty()) return;
  std::ranges::stable_sort(workload.requests, {}, &WorkloadRequest::arrival_time);
  start_at_zero(workload);
  std::unordered_map<std::uint32_t, std::uint32_t> sessions;
  std::unordered_map<std::uint32_t, std::uint32_t> namespaces;
  std::vector<std::string> extra_keys = {""};
  std::vector<std::uint16_t> models(workload.models.size() + 1);
  std::vector<std::string> names;
  for (WorkloadRequest& request : workload.requests) {
    if (request.session != 0) {
      const auto next = static_cast<std::uint32_t>(sessions.size() + 1);
      request.session = sessions.try_emplace(request.session, next).first->second;
    }
    if (request.extra_key != 0) {
      const auto next = static_cast<std::uint32_t>(extra_keys.size());
      const auto [entry, is_new] = namespaces.try_emplace(request.extra_key, next);
      if (is_new) extra_keys.push_back(std::move(workload.extra_keys[request.extra_key]));
      request.extra_key = entry->second;
    }
    if (request.model != 0) {
      std::uint16_t& number = models[request.model];
      if (number == 0) {
        names.push_back(std::move(workload.models[request.model - 1U]));
        number = static_cast<std::uint16_t>(names.size());
      }
      request.model = number;
    }
  }
  workload.extra_keys = std::move(extra_keys);
  workload.models = std::move(names);
}

void OutlineBuilder::add(const WorkloadRequest& request, std::uint64_t prompt_length) {
  const std::uint64_t position = outline_.requests++;
  bool replies = false;
  if (request.session != 0) {
    outline_.conversations = true;
    if (request.session >= last_of_session_.size()) last_of_session_.resize(request.session + std::size_t{1});
    std::uint32_t& last = last_of_session_[request.session];
    replies = last != 0;
    if (replies) {
      outline_.followed.resize(position);
      outline_.followed[last - 1] = true;
      ++outline_.turns;
    }
    last = static_cast<std::uint32_t>(position + 1);
  }
  if (request.model == 0) outline_.unnamed_models = true;
  if (position == 0) outline_.first_arrival = request.arrival_time;
  outline_.last_arrival = request.arrival_time;
  if (!replies) outline_.last_start = request.arrival_time;
  outline_.shortest_prompt =
      position == 0 ? prompt_length : std::min(outline_.shortest_prompt, prompt_length);
  outline_.images = outline_.images || !request.images.empty();
  for (const ImageInput& image : request.images)
    outline_.unsized_images = outline_.unsized_images || image.width == 0;
  if (request.accept_lens.empty() && !outline_.without_accept_lens) outline_.without_accept_lens = position;
  for (const std::uint32_t length : request.accept_lens) {
    if (length <= outline_.longest_accept_len) continue;
    outline_.longest_accept_len = length;
    outline_.longest_accepting = position;
  }
}

WorkloadOutline OutlineBuilder::finish() {
  if (outline_.turns > 0) outline_.followed.resize(outline_.requests);
  return std::move(outline_);
}

StreamedWorkload::StreamedWorkload(std::string name, std::string format, std::vector<std::string> notes,
                                   std::function<RequestReader()> read)
    : read_(std::move(read)) {
  OutlineBuilder builder;
  const RequestReader next = read_();
  while (const std::shared_ptr<const WorkloadRequest> request = next())
    builder.add(*request, request->prompt.size());
  outline_ = builder.finish();
  outline_.name = std::move(name);
  outline_.format = std::move(format);
  outline_.notes = std::move(notes);
}

WorkloadInMemory::WorkloadInMemory(const std::shared_ptr<const Workload>& workload)
    : StreamedWorkload(workload->name, workload->format, workload->notes, [workload] {
        return [workload, position = std::size_t{0}]() mutable -> std::shared_ptr<const WorkloadRequest> {
          if (position == workload->requests.size()) return nullptr;
          // Owned by the workload: nothing is counted.
          return {std::shared_ptr<const WorkloadRequest>(), &workload->requests[position++]};
        };
      }) {
  outline_.lengths_only = workload->lengths_only;
  outline_.models = workload->models;
}

std::uint64_t hash_of(const StreamedWorkload& workload) {
  std::uint64_t hash = 0;
  const auto add = [&hash](std::uint64_t number) { hash = hash_with(hash, number); };
  const auto add_real = [&add](double number) { add(std::bit_cast<std::uint64_t>(number)); };
  const RequestReader next = workload.read();
  while (const std::shared_ptr<const WorkloadRequest> request = next()) {
    add_real(request->arrival_time);
    add(std::uint64_t{request->max_new_tokens} << 32 ^ request->extra_key);
    add(std::uint64_t{request->session} << 32 ^ static_cast<std::uint32_t>(request->priority.value_or(0)));
    if (request->model != 0) add(request->model);
    add((request->priority ? 1 : 0) + (request->think_time ? 2 : 0) + (request->sampling.ignore_eos ? 4 : 0));
    add_real(request->think_time.value_or(0));
    for (const kvcache::TokenSequence* tokens : {&request->prompt, &request->output}) {
      add(tokens->runs().size());
      for (const kvcache::TokenRun& run : tokens->runs()) add(hash_with(run.first, run.length));
    }
    add(request->accept_lens.size());
    for (const std::uint32_t length : request->accept_lens) add(length);
    add(request->images.size());
    for (const ImageInput& image : request->images) {
      add(std::uint64_t{image.width} << 32 ^ image.height);
      add(image.content);
      add(std::uint64_t{image.position} << 32 ^ image.tokens);
    }
  }
  return hash;
}

Workload in_memory(const StreamedWorkload& streamed) {
  const WorkloadOutline& outline = streamed.outline();
  Workload workload;
  workload.name = outline.name;
  workload.format = outline.format;
  workload.notes = outline.notes;
  workload.models = outline.models;
  workload.lengths_only = outline.lengths_only;
  workload.requests.reserve(outline.requests);
  const RequestReader next = streamed.read();
  while (const std::shared_ptr<const WorkloadRequest> request = next()) workload.requests.push_back(*request);
  return workload;
}

}  // namespace tpsim::scheduler
