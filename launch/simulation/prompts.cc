#include "launch/simulation/prompts.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "scheduler/workload/images.h"
#include "scheduler/workload/json_record.h"
#include "scheduler/workload/trace_input.h"

namespace tpsim::launch {

std::vector<std::uint32_t> parse_prompt_ids(std::string_view flag, const std::string& text) {
  std::vector<std::uint32_t> ids;
  for (const std::string& id : split_list(text))
    ids.push_back(
        static_cast<std::uint32_t>(parse_count(flag, id, 0, std::numeric_limits<std::uint32_t>::max())));
  return ids;
}

std::vector<scheduler::ImageInput> parse_images(std::string_view flag, const std::string& text) {
  std::vector<scheduler::ImageInput> images;
  for (const std::string& one : split_list(text)) {
    const std::size_t colon = one.find(':');
    const std::size_t times = one.find('x', colon == std::string::npos ? 0 : colon);
    const std::size_t at = std::min(one.find('@'), one.size());
    if (colon == std::string::npos || times == std::string::npos || times > at)
      throw_user_error("{} {}: is not a list of images like 7:640x480,8:64x64@3 (ID:WIDTHxHEIGHT@POSITION)",
                       flag, in_quotes(one));
    scheduler::ImageInput image;
    const auto number = [&](std::size_t begin, std::size_t end, std::uint64_t least, std::uint64_t most) {
      return parse_count(flag, one.substr(begin, end - begin), least, most);
    };
    image.content = number(0, colon, 0, scheduler::kUnnamedImages - 1);
    image.width = static_cast<std::uint32_t>(number(colon + 1, times, 1, scheduler::kMostPixels));
    image.height = static_cast<std::uint32_t>(number(times + 1, at, 1, scheduler::kMostPixels));
    if (at < one.size())
      image.position =
          static_cast<std::uint32_t>(number(at + 1, one.size(), 0, scheduler::kMaxRequestTokens));
    if (!images.empty() && image.position < images.back().position)
      throw_user_error(
          "{} {}: its position is before that of the image that precedes it; positions must ascend", flag,
          in_quotes(one));
    images.push_back(image);
  }
  return images;
}

std::vector<Prompt> read_prompts(const std::filesystem::path& file) {
  return read_prompts(scheduler::open_file(file), file.string());
}

std::vector<Prompt> read_prompts(std::unique_ptr<scheduler::ByteSource> source, const std::string& name) {
  constexpr std::array<std::string_view, 4> kKeys = {"prompt_ids", "images", "image_ids", "image_positions"};
  scheduler::TraceInput input(scheduler::decode(std::move(source), name), name);
  scheduler::JsonRecord record(kKeys);
  std::vector<Prompt> prompts;
  std::uint64_t unnamed_images = scheduler::kUnnamedImages;
  std::string_view line;
  while (input.next_filled_line(line)) {
    const scheduler::Place place = input.place();
    record.parse(line, place);
    if (!record.unknown_key().empty())
      place.fail("key {} is unknown; a line is {{\"prompt_ids\": [1, 2, 3]}}",
                 in_quotes(record.unknown_key()));
    const scheduler::JsonField& field = record.field(0);
    if (field.kind != scheduler::JsonKind::kUnsigneds || field.values.empty())
      place.fail("\"prompt_ids\" is {}; a list of at least one token id like [1, 2, 3] is needed",
                 field.kind == scheduler::JsonKind::kUnsigneds ? "an empty list" : record.found(0));
    Prompt prompt;
    prompt.where = fmt::format("{}:{}", place.name, place.line);
    for (const std::uint64_t id : field.values) {
      if (id > std::numeric_limits<std::uint32_t>::max()) place.fail("{} is not a token id", id);
      prompt.ids.push_back(static_cast<std::uint32_t>(id));
    }
    prompt.images = scheduler::read_images(record, {1, 2, 3}, place, unnamed_images);
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) throw_user_error("{}: has no prompts; a line is {{\"prompt_ids\": [1, 2, 3]}}", name);
  return prompts;
}

void check_prompts(const std::vector<Prompt>& prompts, std::uint32_t vocab_size) {
  for (const Prompt& prompt : prompts) {
    for (const std::uint32_t id : prompt.ids) {
      if (id >= vocab_size)
        throw_user_error("{}: token id {} is beyond the vocabulary of {} entries", prompt.where, id,
                         vocab_size);
    }
  }
}

void Outputs::on_request(const scheduler::RequestRecord& record) {
  Output& output = outputs_.at(record.id);
  output.completed = record.state == scheduler::RequestState::kCompleted;
  output.cached_tokens = record.cached_tokens;
  output.cached_host = record.cached_host;
  output.token_ids.assign(record.output_ids.begin(), record.output_ids.end());
  output.prompt_logits.assign(record.prompt_logits.begin(), record.prompt_logits.end());
}

scheduler::WorkloadRequest request_of(const Prompt& prompt, std::uint32_t max_new_tokens,
                                      const scheduler::SamplingParams& sampling) {
  scheduler::WorkloadRequest request;
  for (const std::uint32_t id : prompt.ids) request.prompt.append({id, 1});
  request.max_new_tokens = max_new_tokens;
  request.sampling = sampling;
  request.images = prompt.images;
  return request;
}

}  // namespace tpsim::launch
